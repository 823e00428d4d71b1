"""Ctrl-C while a job runs: a word at once, nothing more begins, what runs on Spark is cancelled.

The handler of the signal only notes that it came. A thread does the rest, because the main thread may be
within a call of Spark or of the console, neither of which can be begun again in the middle of itself.
"""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from slackwater.cli.console import note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_END: Final = b"\0"
_AGAIN: Final = 0.5
"""Seconds between two attempts: a unit may begin its next job on Spark after one was cancelled."""


class Stopping:
    """Hears Ctrl-C between the beginning and the end of a block; ``asked`` is set from then on.

    >>> with Stopping() as stopping:
    ...     stopping.asked.is_set()
    False
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._over = threading.Event()
        self._reading, self._writing = socket.socketpair()
        self._spark: SparkSession | None = None
        self._before: Any = None
        self._thread = threading.Thread(target=self._attend, name="stopping", daemon=True)

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._heard)
            # the signal may reach another thread, and the main thread may sleep on: this wakes ours
            self._writing.settimeout(0)
            signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self._thread.start()
        return self

    def cancels(self, spark: SparkSession) -> None:
        """From now on what runs on this session is cancelled; it had put its own handler in place of ours."""
        if self._before is not None and not self.asked.is_set():
            signal.signal(signal.SIGINT, self._heard)
        self._spark = spark

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._before is not None:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, self._before)
        self._writing.send(_END)
        self._thread.join()
        self._writing.close()
        self._reading.close()

    def _heard(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # who asks twice does not want to wait
        self.asked.set()

    def _attend(self) -> None:
        while not self.asked.is_set():
            come = self._reading.recv(1)
            if come == _END:
                return
            if come[0] == signal.SIGINT:
                self.asked.set()
        note("stopping: no further unit begins, those that run are cancelled; Ctrl-C again ends at once")
        while not self._over.wait(_AGAIN):
            if self._spark is not None:
                with suppress(Exception):  # there may be nothing left to cancel
                    self._spark.sparkContext.cancelAllJobs()
