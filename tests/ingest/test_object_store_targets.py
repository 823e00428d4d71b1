"""Targets on object stores: killed runs, runs that were replaced, and what readers see meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest

from slackwater.errors import InvalidArgument
from slackwater.ingest.job_errors import RunReplaced
from slackwater.tables.manifest import DATA, ManifestTable, parquet_dataset
from slackwater.tables.object_store import ObjectStoreFailed, object_store
from tests.ingest.object_store_writer import FILES, SLICE, UNIT, main, replace, target_of
from tests.tables.object_store import s3_server

pytestmark = pytest.mark.proof
ROOT = Path(__file__).parents[2]
TABLES = ("file", "s3", "delta")
KILLS = 8
"""The least number of requests before which a run is killed, for each table."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, str]]:
    with s3_server("lake") as variables:
        yield variables


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The kind and the URL of a table."""
    if request.param == "file":
        return "parquet", f"{tmp_path.as_uri()}/my%20orders"
    for name, value in request.getfixturevalue("bucket").items():
        monkeypatch.setenv(name, value)
    kind = "delta" if request.param == "delta" else "parquet"
    return kind, f"s3://lake/{tmp_path.name}/{kind}"


def rows_of(kind: str, url: str) -> list[tuple[str, int]]:
    """The unit and the generation of each row, in order of time."""
    read = deltalake.DeltaTable(url).to_pyarrow_table if kind == "delta" else parquet_dataset(url).to_table
    found = read().sort_by("at")
    return list(zip(found["shop"].to_pylist(), found["generation"].to_pylist(), strict=True))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes processes that have imported the writer already; none shares the threads of this one."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([main.__module__])
    return context.Process


def run(processes: Any, *arguments: Any) -> int:
    variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    process = processes(target=main, args=(*arguments, variables))
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return int(process.exitcode)


class Observer:
    """Reads a table all the time; ``mixtures`` are reads that show rows of different generations."""

    def __init__(self, kind: str, url: str) -> None:
        self.reads = 0
        self.mixtures: list[Any] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(kind, url))

    def _watch(self, kind: str, url: str) -> None:
        newest = 0
        while not self._stop.wait(0.2):  # the server has one thread
            found = {generation for _, generation in rows_of(kind, url)[FILES:-FILES]}
            if len(found) != 1 or min(found) < newest:
                self.mixtures.append(found)
            newest = max(found, default=newest)
            self.reads += 1

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_a_run_killed_at_any_request_leaves_the_old_rows_or_the_new_ones(
    table: tuple[str, str], processes: Any
) -> None:
    kind, url = table
    replace(target_of(kind, url, 1), SLICE._replace(low=0, high=10), 1)
    replace(target_of(kind, url, 2), SLICE._replace(low=20, high=30), 1)
    replace(target_of(kind, url, 3), SLICE, 3)
    kept = (UNIT.as_dict()["shop"], 1)
    request = 0
    token = 3
    with Observer(kind, url) as observer:
        while True:
            request, token = request + 1, token + 1
            ended = run(processes, kind, url, token, request)
            found = rows_of(kind, url)
            assert found[:FILES] == found[-FILES:] == [kept] * FILES
            middle = {generation for _, generation in found[FILES:-FILES]}
            assert len(found) == 3 * FILES
            assert len(middle) == 1, (request, found)
            if ended == 0:
                break
    assert middle == {token}
    assert request > KILLS
    assert observer.reads > 1
    assert not observer.mixtures

    replace(target_of(kind, url, token + 1), SLICE, token + 1)
    replace(target_of(kind, url, token + 2), SLICE, token + 2)
    store = object_store(url)
    if kind == "delta":
        assert store.keys("_slackwater") == []
    else:
        listed = {file.key for file in ManifestTable(store).read().files}
        left = set(store.keys(DATA)) - listed
        assert len(listed) == 3 * FILES
        assert len(left) == FILES  # those of the run before, for readers that have begun
        assert all(f"-{token + 1}-" in key for key in left)


def test_a_run_that_was_replaced_changes_nothing(table: tuple[str, str]) -> None:
    kind, url = table
    replace(target_of(kind, url, 5), SLICE, 5)
    asleep = target_of(kind, url, 5)
    replace(target_of(kind, url, 6), SLICE, 6)
    with pytest.raises(RunReplaced, match="another run has taken over job 'orders'"):
        replace(asleep, SLICE, 5)
    assert {generation for _, generation in rows_of(kind, url)} == {6}


def test_jobs_that_commit_at_the_same_time_keep_the_rows_of_each_other(table: tuple[str, str]) -> None:
    kind, url = table
    replace(target_of(kind, url, 1), SLICE, 1)
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            target = target_of(kind, url, 2)
            replace(target, SLICE._replace(low=100 * number, high=100 * number + 10), number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(generation for _, generation in rows_of(kind, url)) == sorted([1, 1, 2, 3] * FILES)


def test_errors_of_an_object_store_name_the_fix_and_no_credentials(
    bucket: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter-22")
    with pytest.raises(
        ObjectStoreFailed, match=r"s3://missing/orders cannot be used: .*AWS_REGION"
    ) as raised:
        parquet_dataset("s3://missing/orders")
    assert "hunter-22" not in str(raised.value)
    with pytest.raises(InvalidArgument, match="contains credentials") as refused:
        parquet_dataset("s3://app:hunter-22@lake/orders")
    assert "hunter-22" not in str(refused.value)


def test_commits_end_while_other_threads_keep_the_gil(
    bucket: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    url = "s3://lake/contention/delta"
    program = [sys.executable, "-m", "tests.ingest.object_store_contention", url]
    subprocess.run(program, cwd=ROOT, check=True, timeout=180)
    assert sorted(generation for _, generation in rows_of("delta", url)) == sorted([1, 1, 2] * FILES)
