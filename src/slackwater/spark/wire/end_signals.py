"""Files with which the driver signals to a clock that the sources of its query are exhausted.

A run with ``trigger(availableNow=True)`` ends with the rows that were there when it started, but Spark does
not tell a source that the others have none left. The driver sees it in the progress of the batches: a
listener reports each batch of a run to the clock of that run, which is a process of its own on the same
machine. See `slackwater.spark.monitor.run_end` for the listener.
"""

from __future__ import annotations

import time as system_time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from slackwater.errors import ProgressError

_POLL_SECONDS: Final = 0.01


class _Batch(msgspec.Struct, frozen=True):
    """The last reported batch of a run."""

    tick: int
    quiet: bool
    """Whether no source but the clock had new rows or offsets."""


@dataclass(frozen=True, slots=True)
class EndSignals:
    """The signals of a folder; a run is identified by the time at which its clock was created.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     signals = EndSignals(folder)
    ...     signals.request(7)
    ...     signals.report(7, tick=1, quiet=True)
    ...     signals.quiet_after(7, tick=1)
    True
    """

    folder: str
    timeout_seconds: float = 60

    def request(self, run: int) -> None:
        """Ask for the batches of a run; others are not reported."""
        self._file(run).touch()

    def report(self, run: int, *, tick: int, quiet: bool) -> None:
        """Report the batch of a tick, if the run has asked for it."""
        file = self._file(run)
        if file.exists():
            written = file.with_suffix(".new")
            written.write_bytes(msgspec.json.encode(_Batch(tick, quiet)))
            written.replace(file)

    def quiet_after(self, run: int, *, tick: int) -> bool:
        """Wait until the batch of a tick is reported; return whether it had nothing but the tick.

        Raises:
            ProgressError: The batch was not reported in time.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     EndSignals(folder, timeout_seconds=0).quiet_after(7, tick=1)
        Traceback (most recent call last):
        slackwater.errors.ProgressError: the end of the sources is unknown: Spark did not report batch 1 of \
the clock within 0 seconds; start the query again, or run it without flush and then once more with flush=True
        """
        deadline = system_time.monotonic() + self.timeout_seconds
        while (known := self._reported(run)) is None or known.tick < tick:
            if system_time.monotonic() >= deadline:
                raise ProgressError(
                    f"the end of the sources is unknown: Spark did not report batch {tick} of the clock "
                    f"within {self.timeout_seconds} seconds; start the query again, or run it without flush "
                    "and then once more with flush=True"
                )
            system_time.sleep(_POLL_SECONDS)
        return known.quiet

    def _reported(self, run: int) -> _Batch | None:
        try:
            content = self._file(run).read_bytes()
        except FileNotFoundError:
            return None
        return msgspec.json.decode(content, type=_Batch) if content else None

    def _file(self, run: int) -> Path:
        return Path(self.folder) / str(run)
