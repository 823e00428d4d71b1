"""Blobs beside the small state of a bucket: the same as one store, whatever lies where."""

from __future__ import annotations

from random import Random

import pytest

from slackwater.spark.runtime import blob_cache as nearby
from slackwater.spark.runtime.blob_cache import NearbyBlobs


class Store(dict[str, bytes]):
    """A store that knows what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self.deleted.append(name)


@pytest.mark.parametrize("seed", range(20))
def test_blobs_are_those_of_one_store_over_batches(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(nearby, "_LARGE", 20)
    monkeypatch.setattr(nearby, "_ROOM", 60)
    random, expected, store = Random(seed), dict[str, bytes](), Store()
    near: dict[str, bytes] = {}
    far: list[str] = []
    for _ in range(30):
        blobs = NearbyBlobs(store, near, far)
        for _ in range(random.randrange(6)):
            name = str(random.randrange(12))
            if name in expected and random.random() < 0.4:
                del blobs[name], expected[name]
            else:
                blobs[name] = expected[name] = random.randbytes(random.randrange(30))
        blobs.settle()
        near, far = blobs.near, sorted(blobs.far)
        assert {name: blobs[name] for name in blobs} == expected
        assert len(blobs) == len(expected)
        assert sum(map(len, near.values())) <= 60
        assert store.keys() == set(far), "nothing is left behind in the store"
        assert not store.keys() & near.keys()


def test_a_small_blob_never_reaches_the_store() -> None:
    store = Store()
    blobs = NearbyBlobs(store)
    blobs["0"] = b"small"
    blobs.settle()
    again = NearbyBlobs(store, blobs.near, blobs.far)
    del again["0"]
    again.settle()
    assert not store
    assert not store.deleted
    assert not again


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby, "_ROOM", 10)
    store = Store()
    blobs = NearbyBlobs(store, {"0": b"aaaa", "1": b"bbbb"})
    blobs["2"] = b"cccc"
    blobs["0"] = b"dddd"  # written again: now it is the newest
    blobs.settle()
    assert list(blobs.near) == ["2", "0"]
    assert store == {"1": b"bbbb"}


def test_a_missing_blob_is_missing() -> None:
    blobs = NearbyBlobs(Store())
    with pytest.raises(KeyError):
        blobs["0"]
    with pytest.raises(KeyError):
        del blobs["0"]
