"""The number of dead letters of each query, passed on from the commits of its sink to the driver.

Spark commits the batches of a Python sink in a process of its own on the machine of the driver, so the number
is in a file. On Spark Connect that is another machine than the one that asks for reports, and the number is
only in the ledger of the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory


@dataclass(frozen=True, slots=True)
class DeadLetterCounts:
    """The counts in a folder, by the id of the query.

    >>> with TemporaryDirectory() as folder:
    ...     counts = DeadLetterCounts(folder)
    ...     counts.record("5f…", 3)
    ...     counts.of("5f…"), counts.of("1a…")
    (3, 0)
    """

    folder: str

    def record(self, query: str, count: int) -> None:
        """Set the number of dead letters of a query since it was first started."""
        file = Path(self.folder, query)
        if file.parent.is_dir():  # the folder of the driver may be on another machine
            written = file.with_suffix(".new")
            written.write_text(str(count))
            written.replace(file)

    def of(self, query: str) -> int:
        """The number of dead letters of a query; 0 if no commit has recorded any."""
        try:
            return int(Path(self.folder, query).read_text())
        except FileNotFoundError:
            return 0


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="slackwater-", ignore_cleanup_errors=True)


def dead_letter_counts() -> DeadLetterCounts:
    """The counts of the queries of this process.

    >>> dead_letter_counts() == dead_letter_counts()
    True
    """
    return DeadLetterCounts(_folder().name)
