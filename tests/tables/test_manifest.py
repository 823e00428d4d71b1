"""Manifests of Parquet tables, and the copies that Spark reads."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from slackwater.errors import CorruptState
from slackwater.tables.manifest import MANIFEST, CommitsTooFrequent, Manifest, ManifestTable, TableFile
from slackwater.tables.object_store import object_store

LOG = "_spark_metadata"


@pytest.fixture
def table(tmp_path: Path) -> ManifestTable:
    return ManifestTable(object_store(tmp_path.as_uri()))


def add(table: ManifestTable, name: str) -> Manifest:
    """Commit a version with one more file."""
    file = TableFile(f"_data/{name} ø%.parquet", 1, "{}", 0, 0, 10, 0)
    found = table.commit(lambda old: msgspec.structs.replace(old, files=(*old.files, file)))
    assert found is not None
    return found


def log(table: ManifestTable) -> dict[int, int]:
    """The versions that Spark can find, with the number of files in each."""
    found = {}
    for key in table.store.keys(LOG):
        content = table.store.read(key)
        assert content is not None
        assert content.content.startswith(b"v1")
        found[int(key.split("/")[1].split(".")[0])] = len(content.content.splitlines()) - 1
    return dict(sorted(found.items()))


def test_the_two_newest_copies_are_always_consecutive(table: ManifestTable) -> None:
    table.publish(add(table, "a"))
    add(table, "killed before it was published")
    table.publish(add(table, "b"))
    assert log(table) == {0: 1, 1: 1, 2: 3, 3: 3}


def test_a_process_that_publishes_late_does_not_replace_a_newer_copy(table: ManifestTable) -> None:
    late = add(table, "a")
    table.publish(add(table, "b"))
    table.publish(late)
    assert log(table) == {0: 1, 1: 2, 2: 2}


def test_old_copies_are_removed(table: ManifestTable) -> None:
    for number in range(14):
        table.publish(add(table, str(number)))
    assert list(log(table)) == list(range(4, 15))


def test_names_of_files_are_escaped_as_in_urls(table: ManifestTable) -> None:
    table.publish(add(table, "a"))
    content = table.store.read(f"{LOG}/1.compact")
    assert content is not None
    assert b"_data/a%20%C3%B8%25.parquet" in content.content


def test_a_commit_that_another_one_precedes_is_made_again(table: ManifestTable) -> None:
    seen: list[int] = []

    def change(found: Manifest) -> Manifest:
        if not seen:
            add(table, "of another process")
        seen.append(found.version)
        return msgspec.structs.replace(found, fences={"orders": 7})

    after = table.commit(change)
    assert seen == [0, 1]
    assert after is not None
    assert (after.version, len(after.files), after.fences) == (2, 1, {"orders": 7})


def test_a_commit_that_others_always_precede_ends(table: ManifestTable) -> None:
    def change(found: Manifest) -> Manifest:
        table.store.write(MANIFEST, msgspec.structs.replace(found, version=found.version + 1).encode())
        return msgspec.structs.replace(found, fences={"orders": 7})

    with pytest.raises(CommitsTooFrequent, match="100 attempts to commit"):
        table.commit(change)


def test_a_manifest_of_a_newer_release_or_damaged_is_refused() -> None:
    with pytest.raises(CorruptState, match="newer release"):
        Manifest.decode(b'{"format": 2}')
    with pytest.raises(CorruptState):
        Manifest.decode(b'{"format": ')


def test_the_columns_are_those_that_were_set_last() -> None:
    first = Manifest().with_columns({"id": pa.int64()})
    second = first.with_columns({"id": pa.int64(), "at": pa.date32()})
    assert second.with_columns({}).columns == {"id": pa.int64(), "at": pa.date32()}
    assert (len(first.schemas), len(second.schemas)) == (1, 2)
