"""Assignment of buckets to live controllers (M6): the rule, without a store.

A controller is alive while it holds the lease of its name. All controllers compute the same assignment from
the names that are alive. Each bucket therefore belongs to one live controller, and the buckets of a dead one
go to the others when its lease expires. While a change is being noticed, two controllers may work on one
bucket. That is safe, because marks are appended by compare and set (M5).
"""

from __future__ import annotations

from collections.abc import Collection


def assigned_buckets(controller: str, alive: Collection[str], buckets: int) -> list[int]:
    """The buckets of a controller, which counts as alive; numbers of buckets differ by at most one.

    >>> [assigned_buckets(name, {"a", "b", "c"}, 8) for name in "abc"]
    [[0, 3, 6], [1, 4, 7], [2, 5]]
    """
    ordered = sorted({*alive, controller})
    return list(range(ordered.index(controller), buckets, len(ordered)))
