"""What the Python processes that Spark keeps need not do over and over."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_imports() -> None:
    """Take all that is imported out of the sight of the collector, once in the life of a process.

    Spark has its workers collect garbage after every task. What libraries made when they were imported is
    never garbage, and looking through it would cost more than a task with few rows: 20 to 40 ms of CPU.

    >>> spare_imports()
    >>> gc.get_freeze_count() > 0
    True
    """
    gc.collect()
    gc.freeze()
