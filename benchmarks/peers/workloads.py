"""What every engine computes: count, sum and maximum of prices per auction and window.

Uses nothing but the standard library, because other engines run in environments of their own.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

SECOND = 1_000
"""In milliseconds, the unit of all times here."""
LAG = 5 * SECOND
"""Rows are at most this far behind the latest row before them."""
COLUMNS = ("auction", "start", "bids", "total", "best")
"""The columns of a result; the start of a session is its first bid."""


@dataclass(frozen=True)
class Workload:
    """A kind of window."""

    text: str
    size: int
    """The length of a window; of sessions the gap. Bids exactly this far apart are one session."""
    every: int | None = None
    """The distance of sliding windows."""
    sessions: bool = False


WORKLOADS = {
    "tumbling": Workload("tumbling 10 s", 10 * SECOND),
    "sliding": Workload("sliding 60 s every 10 s", 60 * SECOND, every=10 * SECOND),
    "sessions": Workload("sessions, gap 10 s", 10 * SECOND, sessions=True),
}


@dataclass(frozen=True)
class Job:
    """What an engine is asked to run: it writes CSV files without a header into the output folder."""

    workload: str
    data: Path
    output: Path
    cores: int
    started: bool = False
    """Whether the time begins when the engine runs, not when it is started."""

    @property
    def window(self) -> Workload:
        """The window."""
        return WORKLOADS[self.workload]


def parse_job() -> Job:
    """The job in the arguments of the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--started", action="store_true")
    return Job(**vars(parser.parse_args()))
