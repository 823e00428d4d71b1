"""The blob cache of a bucket behaves like one store, wherever a blob is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from slackwater.spark.runtime import blob_cache, local_copies
from slackwater.spark.runtime.blob_cache import BlobCache
from slackwater.spark.runtime.local_copies import LocalCopies, LocalCopy


class Store(dict[str, bytes]):
    """A store that records reads and deletions."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.deleted: list[str] = []

    def __getitem__(self, name: str) -> bytes:
        self.read.append(name)
        return super().__getitem__(name)

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


# ---- copies in files


@dataclass(frozen=True)
class Committed:
    """The state after a batch: what the store and the small state contain, and the blobs that these are."""

    store: dict[str, bytes] = field(default_factory=dict)
    cached: dict[str, bytes] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)
    copied: dict[str, LocalCopy] = field(default_factory=dict)
    expected: dict[str, bytes] = field(default_factory=dict)


def damage(random: Random, file: Path) -> None:
    content = bytearray(file.read_bytes())
    match random.randrange(3):
        case 0:
            file.unlink()
        case 1:
            file.write_bytes(content[: random.randrange(len(content))])
        case _:
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
            file.write_bytes(content)


@pytest.mark.parametrize("seed", range(20))
def test_the_cache_equals_one_store_whatever_happens_to_copies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    monkeypatch.setattr(blob_cache, "_MAX_BLOB", 20)
    monkeypatch.setattr(blob_cache, "_CAPACITY", 60)
    monkeypatch.setattr(blob_cache, "_MIN_COPIED", 8)
    monkeypatch.setattr(local_copies, "_INTERVAL", 50)
    random = Random(seed)
    # two executors, of which the first has two processes; and a machine without a local folder
    executors = [LocalCopies(tmp_path / name, capacity=150) for name in ("first", "first", "second")]
    history = [Committed()]
    for _ in range(60):
        # mostly the next batch; sometimes a batch is repeated, or an older checkpoint is restored
        last = history[-1] if random.random() < 0.7 else random.choice(history)
        store, expected = Store(), dict(last.expected)
        store.update(last.store)
        copies = random.choice([*executors, None])
        blobs = BlobCache(store, dict(last.cached), last.stored, copies, last.copied)
        for _ in range(random.randrange(8)):
            name = str(random.randrange(12))
            if name not in expected or random.random() < 0.4:
                blobs[name] = expected[name] = random.randbytes(random.randrange(40))
            elif random.random() < 0.5:
                assert blobs[name] == expected[name]
            else:
                del blobs[name], expected[name]
        blobs.evict()
        assert blobs.copied.keys() <= blobs.stored
        assert copies is not None or not blobs.copied
        committed = Committed(
            dict(store), dict(blobs.cached), sorted(blobs.stored), dict(blobs.copied), expected
        )
        if random.random() < 0.2:
            assert {name: blobs[name] for name in blobs} == expected
        if random.random() < 0.8:  # otherwise the batch fails here, after it has deleted and written copies
            history.append(committed)
        for file in (path for path in sorted(tmp_path.rglob("*")) if path.is_file() and path.stat().st_size):
            if random.random() < 0.1:
                damage(random, file)
    last = history[-1]
    store = Store()
    store.update(last.store)
    again = BlobCache(store, last.cached, last.stored, executors[0], last.copied)
    assert {name: again[name] for name in again} == last.expected


LARGE = bytes(1 << 17)


def test_a_blob_that_has_a_copy_is_not_read_from_the_store(tmp_path: Path) -> None:
    store = Store()
    blobs = BlobCache(store, copies=LocalCopies(tmp_path / "copies"))
    blobs["0"] = LARGE
    again = BlobCache(store, {}, blobs.stored, LocalCopies(tmp_path / "copies"), blobs.copied)
    assert again["0"] == LARGE
    assert not store.read
    assert store.keys() == {"0"}


def test_evicted_blobs_have_copies_from_some_size_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(blob_cache, "_CAPACITY", 0)
    blobs = BlobCache(Store(), copies=LocalCopies(tmp_path / "copies"))
    blobs["0"], blobs["1"] = bytes((1 << 14) - 1), bytes(1 << 14)
    blobs.evict()
    assert blobs.stored == {"0", "1"}
    assert blobs.copied.keys() == {"1"}


def test_a_blob_without_a_copy_is_read_from_the_store_and_copied(tmp_path: Path) -> None:
    store = Store()
    blobs = BlobCache(store)
    blobs["0"] = LARGE
    assert not blobs.copied
    for _ in range(2):
        blobs = BlobCache(store, {}, blobs.stored, LocalCopies(tmp_path / "copies"), blobs.copied)
        assert blobs["0"] == LARGE
    assert store.read == ["0"]


@pytest.mark.parametrize("change", ["overwritten", "smaller", "deleted", "damaged"])
def test_an_outdated_copy_is_deleted(tmp_path: Path, change: str) -> None:
    blobs = BlobCache(Store(), copies=LocalCopies(tmp_path / "copies"))
    blobs["0"] = LARGE
    (before,) = (tmp_path / "copies").iterdir()
    match change:
        case "overwritten":
            blobs["0"] = LARGE[1:]
        case "smaller":
            blobs["0"] = b"small"
        case "deleted":
            del blobs["0"]
        case _:
            before.write_bytes(b"damaged")
            assert blobs["0"] == LARGE
    after = list((tmp_path / "copies").iterdir())
    assert before not in after
    assert len(after) == len(blobs.copied) == (change in ("overwritten", "damaged"))


def test_a_cache_without_copies_forgets_those_of_an_executor(tmp_path: Path) -> None:
    store = Store()
    first = BlobCache(store, copies=LocalCopies(tmp_path / "copies"))
    first["0"] = LARGE
    second = BlobCache(store, {}, first.stored, None, first.copied)
    second["0"] = LARGE[1:]
    third = BlobCache(store, {}, second.stored, LocalCopies(tmp_path / "copies"), second.copied)
    assert third["0"] == LARGE[1:]
