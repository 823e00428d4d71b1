"""The blob cache of a bucket behaves like one store, wherever a blob is kept."""

from __future__ import annotations

from random import Random

import pytest

from slackwater.spark.runtime import blob_cache
from slackwater.spark.runtime.blob_cache import BlobCache


class Store(dict[str, bytes]):
    """A store that records deletions."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self.deleted.append(name)


@pytest.mark.parametrize("seed", range(20))
def test_the_cache_equals_one_store_over_batches(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(blob_cache, "_MAX_BLOB", 20)
    monkeypatch.setattr(blob_cache, "_CAPACITY", 60)
    random, expected, store = Random(seed), dict[str, bytes](), Store()
    cached: dict[str, bytes] = {}
    stored: list[str] = []
    for _ in range(30):
        blobs = BlobCache(store, cached, stored)
        for _ in range(random.randrange(6)):
            name = str(random.randrange(12))
            if name in expected and random.random() < 0.4:
                del blobs[name], expected[name]
            else:
                blobs[name] = expected[name] = random.randbytes(random.randrange(30))
        blobs.evict()
        cached, stored = blobs.cached, sorted(blobs.stored)
        assert {name: blobs[name] for name in blobs} == expected
        assert len(blobs) == len(expected)
        assert sum(map(len, cached.values())) <= 60
        assert store.keys() == set(stored), "the store has no other blobs"
        assert not store.keys() & cached.keys()


def test_a_small_blob_never_reaches_the_store() -> None:
    store = Store()
    blobs = BlobCache(store)
    blobs["0"] = b"small"
    blobs.evict()
    again = BlobCache(store, blobs.cached, blobs.stored)
    del again["0"]
    again.evict()
    assert not store
    assert not store.deleted
    assert not again


def test_the_oldest_blobs_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_cache, "_CAPACITY", 10)
    store = Store()
    blobs = BlobCache(store, {"0": b"aaaa", "1": b"bbbb"})
    blobs["2"] = b"cccc"
    blobs["0"] = b"dddd"  # written again: now it is the newest
    blobs.evict()
    assert list(blobs.cached) == ["2", "0"]
    assert store == {"1": b"bbbb"}


def test_a_missing_blob_raises() -> None:
    blobs = BlobCache(Store())
    with pytest.raises(KeyError):
        blobs["0"]
    with pytest.raises(KeyError):
        del blobs["0"]
