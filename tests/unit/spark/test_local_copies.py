"""Copies of blobs in files: whole or not at all, bounded, and never needed."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.checkpoint.bucket_summary import summarize_bucket
from slackwater.spark.runtime import blob_cache, local_copies
from slackwater.spark.runtime.bucket import FORM, BucketOutput, OperatorPlan, SavedBucket, Totals
from slackwater.spark.runtime.local_copies import LocalCopies, LocalCopy, worker_copies
from slackwater.spark.runtime.operator_inputs import SavedInputs
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.buffers import write_header
from slackwater.windows.engine.pieces import Pieces
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import BUCKETS, host, rows_frame, shipped, ticks


@pytest.fixture
def copies(tmp_path: Path) -> LocalCopies:
    return LocalCopies(tmp_path / "copies")


def written(copies: LocalCopies, blob: bytes) -> LocalCopy:
    copy = copies.write(blob)
    assert copy is not None
    return copy


def file_of(tmp_path: Path, copy: LocalCopy) -> Path:
    return tmp_path / "copies" / copy.token.hex()


@pytest.mark.parametrize("blob", [b"", b"content", bytes(1 << 20)])
def test_a_copy_is_read_as_it_was_written(copies: LocalCopies, blob: bytes) -> None:
    copy = written(copies, blob)
    assert copies.read(copy) == blob
    assert copies.read(copy) == blob


def test_every_copy_has_a_file_of_its_own(tmp_path: Path, copies: LocalCopies) -> None:
    one, other = written(copies, b"same"), written(copies, b"same")
    copies.delete(one)
    assert copies.read(one) is None
    assert copies.read(other) == b"same"
    assert [path.name for path in (tmp_path / "copies").iterdir()] == [other.token.hex()]
    copies.delete(one)


def test_another_process_reads_the_copy(tmp_path: Path, copies: LocalCopies) -> None:
    copy = written(copies, b"content")
    assert LocalCopies(tmp_path / "copies").read(copy) == b"content"


def test_only_the_owner_may_enter_the_folder(tmp_path: Path, copies: LocalCopies) -> None:
    written(copies, b"content")
    assert (tmp_path / "copies").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "content", [b"", b"conten", b"content.", b"Content", b"another"], ids=lambda content: content.decode()
)
def test_a_truncated_or_damaged_copy_is_not_read(tmp_path: Path, copies: LocalCopies, content: bytes) -> None:
    copy = written(copies, b"content")
    file_of(tmp_path, copy).write_bytes(content)
    assert copies.read(copy) is None


def test_a_folder_that_cannot_be_created_has_no_copies(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "missing" / "copies", tmp_path / "file", tmp_path / "file" / "copies"):
        copies = LocalCopies(folder)
        assert copies.write(b"content") is None
        assert copies.read(LocalCopy(bytes(16), 0, 0)) is None
        copies.delete(LocalCopy(bytes(16), 0, 0))


def test_a_folder_that_is_deleted_has_no_copies_until_the_next_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local_copies, "_INTERVAL", 10)
    copies = LocalCopies(tmp_path / "copies")
    copy = written(copies, b"12345")
    copies.delete(copy)
    (tmp_path / "copies").rmdir()
    assert copies.read(copy) is None
    assert copies.write(b"67890") is None
    assert copies.read(written(copies, b"1")) == b"1"


def test_a_file_that_cannot_be_written_whole_is_deleted(tmp_path: Path, copies: LocalCopies) -> None:
    written(copies, b"first")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limit[1]))  # no file may be longer
    try:
        assert copies.write(bytes(1 << 20)) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert len(list((tmp_path / "copies").iterdir())) == 1


# ---- bounds


def kept(copies: LocalCopies, several: Iterable[LocalCopy]) -> int:
    """How many of the copies still exist."""
    return sum(copies.read(copy) is not None for copy in several)


@pytest.mark.parametrize(("capacity", "fitting"), [(9, 3), (8, 2), (6, 2), (5, 1), (3, 1), (2, 0)])
def test_copies_are_deleted_until_the_others_fit(
    tmp_path: Path, copies: LocalCopies, capacity: int, fitting: int
) -> None:
    three = [written(copies, b"old") for _ in range(3)]
    new = written(LocalCopies(tmp_path / "copies", capacity), b"new")
    assert kept(copies, three) == fitting
    assert copies.read(new) == b"new"


def test_most_reads_succeed_if_the_copies_hardly_exceed_the_capacity(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local_copies, "_INTERVAL", 1)
    copies = LocalCopies(tmp_path / "copies", capacity=90)
    blobs: list[LocalCopy | None] = [None] * 11  # 10 bytes each
    writes = 0
    for number in range(11 * 40):  # in each batch every blob, in the same order
        copy = blobs[number % 11]
        if copy is None or copies.read(copy) is None:
            copy = blobs[number % 11] = written(copies, bytes(10))
            os.utime(file_of(tmp_path, copy), (number, number))  # the time of a file may be coarse
            writes += 1
    assert writes < 11 * 20


def test_the_size_is_checked_after_an_interval_of_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local_copies, "_INTERVAL", 10)
    copies = LocalCopies(tmp_path / "copies", capacity=5)
    found = [written(copies, bytes(size)) for size in (4, 5, 1)]
    assert kept(copies, found) == 3, "nothing was checked after 9 bytes"
    copies.write(b"")
    assert kept(copies, found) < 3


class Disk:
    """A disk on which only copies take space."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, size: int) -> None:
        self.size = size
        self._folder = folder
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=self.free()))

    def free(self) -> int:
        return self.size - sum(file.stat().st_size for file in self._folder.iterdir())


def test_copies_are_deleted_until_the_disk_has_enough_space(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local_copies, "_INTERVAL", 10)
    copies = LocalCopies(tmp_path / "copies")
    disk = Disk(monkeypatch, tmp_path / "copies", (2 << 30) + 10)
    two = [written(copies, b"12345"), written(copies, b"67890")]
    four = [*two, written(copies, b"12345"), written(copies, b"67890")]
    assert kept(copies, four) == 4, "exactly the minimum was free at the last check"
    disk.size -= 1
    new = written(copies, b"12345")
    assert kept(copies, four) == 1, "11 bytes were missing"
    assert copies.read(new) == b"12345"


def test_nothing_is_written_to_a_disk_with_little_space(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local_copies, "_INTERVAL", 10)
    copies = LocalCopies(tmp_path / "copies")
    disk = Disk(monkeypatch, tmp_path / "copies", (2 << 30) + 5)
    old = [written(copies, b"12345"), written(copies, b"67890")]
    disk.size = (2 << 30) - 1
    assert copies.write(b"12345") is None
    assert kept(copies, old) == 0, "other files take the space"
    disk.size = 2 << 30
    assert copies.write(b"67890") is None, "blobs that are not copied count as well"
    written(copies, b"again")


def test_nothing_is_written_to_a_disk_that_cannot_be_checked(
    monkeypatch: pytest.MonkeyPatch, copies: LocalCopies
) -> None:
    def failing(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("shutil.disk_usage", failing)
    assert copies.write(b"12345") is None
    assert copies.write(b"67890") is None, "as of the last check"


# ---- folders of executors that have ended

HOLDER = """
import sys
from pathlib import Path
from slackwater.spark.runtime.local_copies import LocalCopies
copies = LocalCopies(Path(sys.argv[1]))
print(copies.write(b"content").token.hex(), flush=True)
sys.stdin.read()
"""


def executor_copies(tmp_path: Path, name: str) -> Path:
    """The folder for the copies of an executor."""
    folder = tmp_path / f"blockmgr-{name}"
    folder.mkdir()
    return folder / "slackwater-blobs"


def let_an_hour_pass(folder: Path) -> None:
    """Set the time of the last change in a folder to more than an hour ago."""
    changed = time.time() - 3601
    os.utime(folder, (changed, changed))


def test_copies_are_deleted_after_the_processes_of_their_executor_have_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, own = executor_copies(tmp_path, "other"), executor_copies(tmp_path, "own")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(own.parent))
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        token = holder.stdout.readline().strip()
        assert token
        let_an_hour_pass(folder)
        local_copies.delete_abandoned(own.parent)
        assert [file.name for file in folder.iterdir()] == [token], "a process holds it"
        holder.kill()
    copies = worker_copies()
    assert copies is not None
    assert copies.read(written(copies, b"own")) == b"own"
    assert not folder.exists()
    assert folder.parent.exists(), "the other files are Spark's"


def test_copies_of_an_executor_whose_workers_were_idle_are_not_deleted(tmp_path: Path) -> None:
    folder = executor_copies(tmp_path, "other")
    folder.mkdir()
    (folder / "copy").touch()
    local_copies.delete_abandoned(tmp_path / "blockmgr-own")
    assert (folder / "copy").exists(), "its next workers read it"
    let_an_hour_pass(folder)
    local_copies.delete_abandoned(tmp_path / "blockmgr-own")
    assert not folder.exists()


def test_copies_of_this_executor_and_other_folders_are_not_deleted(tmp_path: Path) -> None:
    own, application = executor_copies(tmp_path, "own"), tmp_path / "application" / "slackwater-blobs"
    for folder in (own, application):
        folder.mkdir(parents=True)
        (folder / "file").touch()
        let_an_hour_pass(folder)
    local_copies.delete_abandoned(own.parent)
    assert (own / "file").exists()
    assert (application / "file").exists()


def test_links_and_folders_of_other_users_are_not_deleted(tmp_path: Path) -> None:
    link, foreign = executor_copies(tmp_path, "link"), executor_copies(tmp_path, "foreign")
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "letter").touch()
    link.symlink_to(tmp_path / "documents")
    foreign.mkdir()
    (foreign / "file").touch()
    for folder in (foreign, tmp_path / "documents"):
        let_an_hour_pass(folder)
    if os.getuid() == 0:
        os.chown(foreign, 12345, -1)
    else:
        foreign.chmod(0o500)
    local_copies.delete_abandoned(tmp_path / "blockmgr-own")
    assert (tmp_path / "documents" / "letter").exists()
    assert (foreign / "file").exists()
    foreign.chmod(0o700)


def test_a_folder_that_was_deleted_and_created_again_is_held(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local_copies, "_INTERVAL", 1)
    folder = executor_copies(tmp_path, "other")
    copies = LocalCopies(folder)
    copies.delete(written(copies, b"content"))
    folder.rmdir()
    copy = written(copies, b"content")
    let_an_hour_pass(folder)
    local_copies.delete_abandoned(tmp_path / "blockmgr-own")
    assert copies.read(copy) == b"content"


def test_nothing_is_written_to_a_folder_that_is_being_deleted(tmp_path: Path) -> None:
    folder = executor_copies(tmp_path, "other")
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as the process that deletes it
    try:
        assert LocalCopies(folder).write(b"content") is None
    finally:
        os.close(descriptor)
    copies = LocalCopies(folder)
    assert copies.read(written(copies, b"content")) == b"content"


# ---- workers and buckets


@pytest.mark.parametrize("value", [None, "", ",/tmp"])
def test_without_a_local_folder_there_are_no_copies(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    if value is not None:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", value)
    assert worker_copies() is None


def test_copies_are_in_the_first_local_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{tmp_path / 'second'}")
    copies = worker_copies()
    assert copies is not None
    copy = written(copies, b"content")
    assert [path.name for path in (tmp_path / "slackwater-blobs").iterdir()] == [copy.token.hex()]
    assert worker_copies() is copies, "all tasks of a process count together"


def test_the_environment_limits_the_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(local_copies, "_INTERVAL", 1)
    monkeypatch.setenv("SLACKWATER_STATE_COPIES", "1")
    copies = worker_copies()
    assert copies is not None
    two = [written(copies, bytes(1 << 20)), written(copies, bytes(1 << 20))]
    written(copies, b"new")
    assert kept(copies, two) == 1, "the two are more than 1 MiB"


@pytest.mark.parametrize("text", ["-1", "1g", "", "0.5", pytest.param("1" * 5_000, id="5,000 digits")])
def test_a_limit_that_is_no_number_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SLACKWATER_STATE_COPIES", text)
    expected = "must be a whole number of MiB; set 1024, for example, or 0 to disable copies"
    with pytest.raises(InvalidArgument, match=f"SLACKWATER_STATE_COPIES = .*: {expected}") as caught:
        worker_copies()
    assert len(str(caught.value)) < 1_000


def test_a_limit_of_zero_turns_the_copies_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setenv("SLACKWATER_STATE_COPIES", "0")
    assert worker_copies() is None


PER_ROW = windows.after_watermark(early=windows.every(count=1), late=windows.every(count=1))


class Store(dict[str, bytes]):
    """A store that counts reads."""

    reads = 0

    def __getitem__(self, name: str) -> bytes:
        self.reads += 1
        return super().__getitem__(name)


def step(
    plan: OperatorPlan, saved: bytes | None, store: Store, number: int, copies: LocalCopies | None
) -> BucketOutput:
    (bucket, *_) = BUCKETS
    rows = rows_frame([{"key": f"k{key}", "ts": number, "value": key} for key in range(300)])
    sent = [*shipped(rows), *ticks(number)]
    buffers = [(write_header(header), payload) for target, header, payload in sent if target == bucket]
    emitted = Pieces(plan.pieces(bucket, saved, store, buffers, copies))
    rest = [piece for piece in emitted if piece.height]
    output = emitted.result
    output.rows = pl.concat([*rest, *([] if output.rows is None else [output.rows])])
    return output


def test_buckets_with_and_without_copies_emit_the_same(
    monkeypatch: pytest.MonkeyPatch, copies: LocalCopies
) -> None:
    monkeypatch.setattr(blob_cache, "_MAX_BLOB", 100)
    monkeypatch.setattr(blob_cache, "_MIN_COPIED", 100)
    plan = OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(100), PER_ROW)))
    with_copies, without = Store(), Store()
    one = other = None
    for number in range(5):
        output = step(plan, one, with_copies, number, copies)
        expected = step(plan, other, without, number, None)
        assert output.rows is not None
        assert expected.rows is not None
        assert output.rows.sort("key").equals(expected.rows.sort("key"))
        one, other = output.state, expected.state
        assert FORM.decode(one).copies.keys() == set(FORM.decode(one).stored)
        assert FORM.decode(other).copies == {}
    assert with_copies.reads == 0
    assert without.reads > 0
    assert one is not None
    assert other is not None
    assert summarize_bucket(one, with_copies) == summarize_bucket(other, without)
    # A step without copies forgets them: it may overwrite a blob whose old copy still exists.
    assert FORM.decode(step(plan, one, with_copies, 5, None).state).copies == {}


def test_a_bucket_of_version_5_is_loaded() -> None:
    version_5 = (
        "05429908 01c29491 c40147c4 01439090 c405696e 6465789d 00140000 00000000 01000000 0281a130 "
        "c405736d 616c6c92 a131a132 0312ffec 48 "
    )
    expected = SavedBucket(
        now=8,
        run=1,
        ended=False,
        inputs=SavedInputs([b"G"], b"C"),
        operator=b"index",
        totals=Totals(on_time=20, ahead=1, failed=2),
        cached={"0": b"small"},
        stored=["1", "2"],
        back=3,
        copies={},
    )
    assert FORM.decode(bytes.fromhex(version_5)) == expected
