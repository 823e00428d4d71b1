"""The commands for checkpoints, without Spark; reading checkpoints is in tests/spark/test_checkpoints.py."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from slackwater.cli.app import app
from slackwater.errors import InvalidArgument
from slackwater.spark.checkpoint.state_reader import OperatorState

AT = datetime(2024, 5, 1, 12, tzinfo=UTC)
WINDOW = OperatorState(
    operator=0,
    kind="window",
    description="fixed(size=10 s) key=(auction)",
    partitions=2,
    buckets=[0, 2],
    watermarks={"default": AT},
    clock=AT,
    ended=False,
    open_windows=1,
    keys=3,
    buffered=0,
    bytes=400,
    dropped_late=7,
    dropped_closed=0,
    windows=[{"start": AT, "end": None, "windows": 1, "keys": 3, "bytes": 300}],
    origins=[{"input": 0, "origin": "east", "status": "idle", "key": "default", "watermark": None}],
)
JOIN = OperatorState(
    operator=1,
    kind="join",
    description="inner join on ('id',)",
    partitions=2,
    buckets=[0],
    watermarks={},
    clock=None,
    ended=False,
    open_windows=0,
    keys=0,
    buffered=12,
    bytes=90,
    dropped_late=0,
    dropped_closed=0,
)


@pytest.fixture(autouse=True)
def checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.cli.checkpoint._local_session", lambda: None)
    reader = "slackwater.spark.checkpoint.state_reader.operator_states"
    monkeypatch.setattr(reader, lambda spark, checkpoint: [WINDOW, JOIN])


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_every_operator_is_shown_with_its_origins_and_windows() -> None:
    result = run("state", "folder", "--windows")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines == [
        "operator 0: window fixed(size=10 s) key=(auction)",
        "1 open window, 3 keys, 400 bytes in 2 buckets and 2 partitions",
        "7 rows dropped late, 0 after their window closed",
        "watermark default: 2024-05-01T12:00:00Z",
        "clock: 2024-05-01T12:00:00Z",
        "input origin status key watermark",
        "0 east idle default",
        "start end windows keys bytes",
        "2024-05-01T12:00:00Z 1 3 300",
        "operator 1: join inner join on ('id',)",
        "12 buffered rows, 90 bytes in 1 bucket and 2 partitions",
        "0 rows dropped late, 0 after their window closed",
        "no watermark yet",
        "clock:",
    ]


def test_json_has_everything() -> None:
    first, second = json.loads(run("state", "folder", "--json").stdout)
    assert (first["watermarks"], first["buckets"]) == ({"default": "2024-05-01T12:00:00Z"}, [0, 2])
    assert first["windows"][0]["end"] is None
    assert (second["kind"], second["buffered"]) == ("join", 12)


def test_a_rescale_prints_the_number_of_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.spark.checkpoint.rescaling.rescale", lambda spark, folder, number: 8)
    result = run("rescale", "folder", "--partitions", "2")
    assert result.exit_code == 0
    assert result.stdout.startswith("8 buckets in 2 partitions; ")
    assert "pass buckets=8 to sw.stream" in result.stdout


def test_an_invalid_checkpoint_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(spark: object, checkpoint: str) -> list[OperatorState]:
        raise InvalidArgument("checkpoint", checkpoint, "cannot be read")

    monkeypatch.setattr("slackwater.spark.checkpoint.state_reader.operator_states", refuse)
    result = run("state", "folder")
    assert (result.exit_code, result.stderr) == (2, "error: checkpoint = 'folder': cannot be read\n")


def test_commands_that_need_no_spark_do_not_import_it() -> None:
    program = "import sys, slackwater.cli.app; print(sorted({'pyspark', 'polars'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
