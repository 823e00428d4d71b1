"""`slackwater simulate`: timelines, JSON, the exit code of a broken promise, and errors."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from slackwater.cli.app import app
from slackwater.simulation.ingest_copies import DeltaCopy, FolderCopy, StreamCopy, TableCopy


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments, "--scenario", "ingest", "--minutes", "1"])


def test_a_story_is_a_timeline_that_ends_with_the_result() -> None:
    shown = invoke("4", "--story")
    assert shown.exit_code == 0
    assert "120:00.000            all faults end" in shown.output
    assert "seed 4 (ingest), trace " in shown.output
    assert "all promises kept" in shown.output
    assert "1 seed, " in shown.output


@pytest.mark.search
def test_json_has_one_line_for_each_seed() -> None:
    shown = invoke("4", "--seeds", "2", "--json")
    assert shown.exit_code == 0
    first, second = (json.loads(line) for line in shown.stdout.splitlines())
    assert (first["seed"], second["seed"]) == (4, 5)
    assert first["violation"] is None
    assert first["trace"] != second["trace"]
    assert "story" not in first


@pytest.mark.search
def test_a_broken_promise_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    for copy in (DeltaCopy, FolderCopy, StreamCopy, TableCopy):
        monkeypatch.setattr(copy, "ids", lambda self: [])
    shown = invoke("4")
    assert shown.exit_code == 1
    assert "BROKEN: in the end [0, 1, 2, 3, 4] are missing in the target" in shown.output


def test_bad_arguments_are_refused() -> None:
    unknown = CliRunner().invoke(app, ["simulate", "4", "--scenario", "weather"])
    assert unknown.exit_code == 2
    assert "unknown scenario; use one of log, pipeline, ingest" in unknown.output
    assert CliRunner().invoke(app, ["simulate", "four"]).exit_code == 2
    assert invoke("4", "--seeds", "0").exit_code == 2
