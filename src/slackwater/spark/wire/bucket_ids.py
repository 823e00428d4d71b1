"""Bucket ids that spread evenly over Spark's shuffle partitions."""

from __future__ import annotations

from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.time import check_int64

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
    free = set(range(count))
    chosen: list[int] = []
    number = 0
    while free:
        remainder = spark_hash(number) % count
        if remainder in free:
            free.remove(remainder)
            chosen.append(number)
        number += 1
    return tuple(chosen)


def chosen_bucket_ids(buckets: int | list[int] | tuple[int, ...] | None, partitions: int) -> tuple[int, ...]:
    """The bucket ids of a stream, from its argument ``buckets``: their number, or the ids themselves.

    >>> chosen_bucket_ids(None, 2), chosen_bucket_ids([5, 7], 2)
    ((0, 2), (5, 7))
    """
    if isinstance(buckets, list | tuple):
        ids = tuple(check_int64(each, "buckets") for each in buckets)
        if len(set(ids)) < len(ids) or min(ids, default=0) < 0:
            raise InvalidArgument(
                "buckets", buckets, "are not different ids", fix="write the number of buckets"
            )
    else:
        count = partitions if buckets is None else check_int64(buckets, "buckets")
        ids = bucket_ids(count) if count > 0 else ()
    if not ids or len(ids) % partitions:
        raise InvalidArgument(
            "buckets",
            buckets,
            f"is not a multiple of spark.sql.shuffle.partitions ({partitions})",
            fix=f"write buckets={partitions}",
        )
    return ids


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
