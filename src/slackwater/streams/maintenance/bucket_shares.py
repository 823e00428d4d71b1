"""How live controllers divide the buckets of streams among themselves (M6): the rule alone.

A controller is alive while it holds the lease of its name. From the names that are alive everybody computes
the same division, so a bucket belongs to one live controller, and a dead one's buckets fall to the others
when its lease ends. While a change is being noticed two may look after one bucket, which does no harm:
marks are appended by compare and set.
"""

from __future__ import annotations

from collections.abc import Collection


def share(owner: str, alive: Collection[str], buckets: int) -> list[int]:
    """The buckets of ``owner``, which counts as alive; the sizes of shares differ by at most one.

    >>> [share(owner, {"a", "b", "c"}, 8) for owner in "abc"]
    [[0, 3, 6], [1, 4, 7], [2, 5]]
    """
    ordered = sorted({*alive, owner})
    return list(range(ordered.index(owner), buckets, len(ordered)))
