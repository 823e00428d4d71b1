"""Data files: on local and other filesystems, readable by any Arrow tool."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from slackwater.streams.log import segment_files
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.segment_files import DamagedFile, DataFolder, open_folder
from slackwater.streams.log.writer import Writer
from slackwater.time import HOUR
from tests.streams.logs import values

BATCHES = [pa.record_batch({"value": [b"a", b"b"]}), pa.record_batch({"value": [b"c" * 1000]})]


@pytest.fixture(params=["local", "through pyarrow", "no files at all"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> DataFolder:
    if request.param == "local":
        return open_folder(str(tmp_path), "shop/bids-1")
    if request.param == "no files at all":
        return DataFolder(fs._MockFileSystem(), "bucket/shop/bids-1")
    # real files behind a filesystem without memory maps and fsync, as an object store is
    return DataFolder(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "shop/bids-1")


def test_each_batch_is_read_on_its_own(folder: DataFolder) -> None:
    parts = folder.write(BATCHES, at=5)
    assert [part.events for part in parts] == [2, 1]
    for part, batch in zip(reversed(parts), reversed(BATCHES), strict=True):
        assert folder.read(part, batch.schema).equals(batch)


def test_a_file_is_an_ordinary_arrow_file(folder: DataFolder) -> None:
    (part, _) = folder.write(BATCHES, at=5)
    with folder._open(part.file) as source, pa.ipc.open_file(source) as opened:
        assert opened.read_all() == pa.Table.from_batches(BATCHES)


@pytest.mark.parametrize("damage", ["cut off", "changed", "empty"])
def test_a_changed_batch_is_not_read(folder: DataFolder, damage: str) -> None:
    (part, _) = folder.write(BATCHES, at=5)
    path = f"{folder._path}/{part.file}"
    content = bytearray(folder._filesystem.open_input_file(path).read())
    if damage == "changed":
        content[part.byte_offset + part.size // 2] ^= 1
    else:
        content = content[: part.byte_offset + part.size - 1 if damage == "cut off" else 0]
    with folder._filesystem.open_output_stream(path) as output:
        output.write(bytes(content))
    with pytest.raises(DamagedFile, match=r"does not match its checksum|cannot be read"):
        folder.read(part, BATCHES[0].schema)


def test_files_are_listed_by_creation_time_and_deleted(folder: DataFolder) -> None:
    assert folder.files(before=HOUR) == []
    made = [folder.write(BATCHES, at=at)[0] for at in (0, HOUR - 1, HOUR, 5 * HOUR)]
    names = [part.file for part in made]
    assert folder.files(before=HOUR) == names[:2]
    assert folder.files(before=HOUR + 1) == names[:3]
    folder.remove_files(names[:1])
    assert folder.files(before=9 * HOUR) == names[1:]
    with pytest.raises(DamagedFile, match="is missing"):
        folder.read(made[0], BATCHES[0].schema)
    folder.remove_files(names[:1])  # as if another controller had deleted it
    folder.remove()
    folder.remove()
    assert folder.files(before=9 * HOUR) == []


def test_a_relative_data_folder_is_found_from_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Streams.open("sqlite:///store.db", create=True) as streams:
        streams.create("a/b", data="elsewhere")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with Streams.open(f"sqlite:///{tmp_path}/store.db", create=True) as streams:
        with Writer(streams.get("a/b")) as writer:
            writer.write(b"a")
        assert values(streams.get("a/b")) == [b"a"]
    assert list((tmp_path / "elsewhere").rglob("*.arrow"))


def test_data_files_can_be_stored_below_a_uri(tmp_path: Path) -> None:
    with Streams.open(f"sqlite:///{tmp_path}/store.db", create=True) as streams:
        stream = streams.create("a/b", data=f"file://{tmp_path}/elsewhere")
        with Writer(stream) as writer:
            writer.write(b"a")
        assert values(streams.get("a/b")) == [b"a"]
        assert list((tmp_path / "elsewhere" / "a").rglob("*.arrow"))


def test_the_name_of_a_folder_that_another_process_made_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = open_folder(str(tmp_path), "shop/bids-1")
    folder.make()
    (tmp_path / "shop/bids-1/0").mkdir()  # as another writer does that has not come to flush it yet
    flushed: list[Path] = []
    monkeypatch.setattr(segment_files, "fsync_path", flushed.append)
    folder.write(BATCHES, at=5)
    assert tmp_path / "shop/bids-1" in flushed
