"""What readers find in tables that files are appended to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from slackwater.tables.append_table import AppendTable
from slackwater.tables.appended_delta import AppendedDelta
from slackwater.tables.appended_folder import AppendedFolder
from tests.spark.oracle import Truth, micros


def committed_files(table: AppendTable) -> list[Path]:
    """The files of a table on this machine, in the order of their commits."""
    if isinstance(table, AppendedDelta):
        folder = Path(table.table.location)
        commits = sorted((folder / "_delta_log").glob("*.json"))
        actions = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
        return [folder / action["add"]["path"] for action in actions if "add" in action]
    assert isinstance(table, AppendedFolder)
    logs = sorted((Path(table.location) / "_spark_metadata").glob("[0-9]*"), key=lambda log: int(log.stem))
    complete = [index for index, log in enumerate(logs) if log.suffix == ".compact"]
    lines = [
        json.loads(line)
        for log in logs[max(complete, default=0) :]
        for line in log.read_text(encoding="utf-8").splitlines()[1:]
    ]
    return [Path(unquote(urlsplit(line["path"]).path)) for line in lines if not line["isDir"]]


def rows_in(table: AppendTable) -> list[dict[str, Any]]:
    """The rows of a table in the order of its commits."""
    return [row for file in committed_files(table) for row in pq.read_table(file).to_pylist()]


def current_results(table: AppendTable) -> Truth:
    """The last results by ``key`` and window, from panes without structs and their retractions."""
    truth: Truth = {}
    for row in rows_in(table):
        if row.get("kind", "pane") != "pane":
            continue
        group = (row["key"], micros(row["window_start"]), micros(row["window_end"]))
        values = {name: row[name] for name in ("count", "sum", "collect")}
        values["collect"] = sorted(values["collect"])
        if row["retraction"]:
            assert truth.pop(group) == values, "a pane is retracted that is not the last one"
        else:
            assert group not in truth, "a pane that was not retracted comes again"
            truth[group] = values
    return truth
