"""Bucket ids that spread evenly over Spark's shuffle partitions."""

from __future__ import annotations

from typing import Final

_MASK: Final = 0xFFFFFFFF


def bucket_ids(count: int) -> tuple[int, ...]:
    """Choose ``count`` bucket ids that spread evenly over any number of partitions that divides ``count``.

    Spark assigns a key to partition ``hash(key) mod partitions``, and its hash of the first few integers is
    uneven: with the ids 0 and 1 for two partitions, both may fall into one and the other stays idle. There is
    one id for every remainder of the hash modulo ``count``, so that the ids need not change when the state is
    rescaled.

    >>> bucket_ids(2)
    (0, 2)
    >>> [sorted(spark_hash(number) % partitions for number in bucket_ids(6)) for partitions in (2, 3)]
    [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]]
    """
    return _spread(count, count)


def former_bucket_ids(count: int, partitions: int) -> tuple[int, ...]:
    """The ids that version 0.1.0 chose, which did not record them in the state.

    >>> former_bucket_ids(2, 2) == bucket_ids(2), former_bucket_ids(4, 2) == bucket_ids(4)
    (True, False)
    """
    return _spread(count, partitions)


def _spread(count: int, partitions: int) -> tuple[int, ...]:
    free = [-(-count // partitions)] * partitions
    chosen: list[int] = []
    number = 0
    while len(chosen) < count:
        partition = spark_hash(number) % partitions
        if free[partition]:
            free[partition] -= 1
            chosen.append(number)
        number += 1
    return tuple(chosen)


def spark_hash(number: int) -> int:
    """Spark's hash of an integer (32-bit Murmur 3, seed 42), as its hash partitioner uses it.

    >>> spark_hash(0)
    933211791
    """
    mixed = _rotate(number * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    state = (_rotate(42 ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    state ^= 4
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
