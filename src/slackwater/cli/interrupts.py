"""Ctrl-C during `slackwater ingest`: stop starting units, cancel Spark jobs, report, exit.

The signal handler only sets a flag. A thread does the rest, because the main thread may be inside a call to
Spark or to the console, and neither is reentrant.
"""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from slackwater.cli.console import print_note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLOSE: Final = b"\0"
"""Written to the socket to end the thread."""
_CANCEL_INTERVAL: Final = 0.5
"""Seconds between two attempts: a unit may start its next Spark job after one was cancelled."""


class InterruptHandler:
    """Handles Ctrl-C inside a ``with`` block; ``requested`` is set from the first Ctrl-C on.

    A second Ctrl-C ends the process at once.

    >>> with InterruptHandler() as interrupt:
    ...     interrupt.requested.is_set()
    False
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._closed = threading.Event()
        self._receiver, self._sender = socket.socketpair()
        self._spark: SparkSession | None = None
        self._previous_handler: Any = None
        self._thread = threading.Thread(target=self._wait_and_cancel, name="interrupts", daemon=True)

    def __enter__(self) -> InterruptHandler:
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGINT, self._handle)
            # The operating system may deliver the signal to another thread while the main thread sleeps,
            # and Python runs handlers in the main thread only. The wakeup socket reaches our thread anyway.
            self._sender.settimeout(0)
            signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        self._thread.start()
        return self

    def cancel_jobs_of(self, spark: SparkSession) -> None:
        """Cancel the jobs of this session on Ctrl-C. Reinstalls the handler, which PySpark has replaced."""
        if self._previous_handler is not None and not self.requested.is_set():
            signal.signal(signal.SIGINT, self._handle)
        self._spark = spark

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        if self._previous_handler is not None:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, self._previous_handler)
        self._sender.send(_CLOSE)
        self._thread.join()
        self._sender.close()
        self._receiver.close()

    def _handle(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends the process at once
        self.requested.set()

    def _wait_and_cancel(self) -> None:
        while not self.requested.is_set():
            received = self._receiver.recv(1)
            if received == _CLOSE:
                return
            if received[0] == signal.SIGINT:
                self.requested.set()
        print_note(
            "stopping: cancelling running units, starting no new ones; press Ctrl-C again to exit at once"
        )
        while not self._closed.wait(_CANCEL_INTERVAL):
            if self._spark is not None:
                with suppress(Exception):  # there may be nothing left to cancel
                    self._spark.sparkContext.cancelAllJobs()
