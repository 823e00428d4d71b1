"""Suite `plans`: the units of a run after a given history, or after earlier runs with failed units."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slackwater.ingest import History, Job, parse_job, plan
from slackwater.time import format_instant
from tests.conformance.framework import BrokenCase, Case, Fields, equal, must_fail
from tests.support.ingest import moment, row

FIELDS = Fields({"job"}, {"now", "timezone", "state", "files", "units", "count", "error", "runs"})
RUN = Fields({"now"}, {"units", "count", "error", "failed"})
UNIT = Fields({"low", "high"}, {"unit"})
STATE = Fields({"start", "high"}, {"unit"})
OUTCOMES = {"units", "count", "error"}

Row = tuple[int, int, str]


def run(case: Case) -> None:
    if ("runs" in case) == ("now" in case) or ("runs" in case and case.keys() & OUTCOMES):
        raise BrokenCase("a case has `runs`, or `now` with one of `units`, `count` and `error`")
    timezone = case.get("timezone", "UTC")
    history = History()
    for number, entry in enumerate(case.get("state", []), 1):
        STATE.check(entry, f"state {number}")
        start, high, key = row(entry, ("start", "high"), timezone)
        history.succeeded(start, key, high)
    runs = case.get("runs") or [{name: case[name] for name in {"now", *OUTCOMES} & case.keys()}]
    with tempfile.TemporaryDirectory(prefix="plans-") as folder:
        keys = _keys(case, Path(folder))
        for number, each in enumerate(runs, 1):
            RUN.check(each, f"run {number}")
            if len(each.keys() & OUTCOMES) != 1:
                raise BrokenCase(f"run {number} has one of `units`, `count` and `error`")
            if "error" in each:
                must_fail(each["error"], lambda each=each: _planned(keys, history, each, timezone))  # type: ignore[misc]  # mypy knows no default in a lambda
                continue
            planned = _planned(keys, history, each, timezone)
            where = f"run {number} of {len(runs)}"
            if "count" in each:
                equal(f"{where}: count", each["count"], len(planned))
            else:
                for entry in each["units"]:
                    UNIT.check(entry, f"{where}: unit")
                wanted = [row(entry, ("low", "high"), timezone) for entry in each["units"]]
                equal(f"{where}: units", _shown(wanted), _shown([unit[1:] for unit in planned]))
            failed = each.get("failed", [])
            if any(index >= len(planned) for index in failed):
                raise BrokenCase(f"{where}: `failed` names a unit that is not planned")
            for index, (start, low, high, key) in enumerate(planned):
                if index in failed:
                    history.failed(start, key, low)
                else:
                    history.succeeded(start, key, high)


def _planned(
    keys: Mapping[str, Any], history: History, each: Mapping[str, Any], timezone: str
) -> list[tuple[int, int, int, str]]:
    """Start of the partition, low, high and key of every unit; the job is read anew for every run."""
    job: Job = parse_job(keys, environment={})
    units = plan(job, history, moment(each["now"], timezone)).units
    return [(work.start, work.low, work.high, work.unit.key) for work in units]


def _keys(case: Case, folder: Path) -> dict[str, Any]:
    """The keys of the job, with its files written and their paths replaced."""
    keys = dict(case["job"])
    if "timezone" in case:
        keys["ms.timezone"] = case["timezone"]
    places: dict[str, str] = {}
    for number, (name, records) in enumerate(case.get("files", {}).items()):
        places[name] = str(folder / f"{number}.jsonl")
        Path(places[name]).write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    if places:
        keys["ms.secondary.input"] = _replaced(keys.get("ms.secondary.input", []), places)
    return keys


def _replaced(inputs: Any, places: Mapping[str, str]) -> Any:
    if isinstance(inputs, str):
        with suppress(ValueError):
            return json.dumps(_replaced(json.loads(inputs), places))
        return inputs
    return [
        {**item, "path": places.get(str(item.get("path")), item.get("path"))}
        if isinstance(item, dict)
        else item
        for item in inputs
    ]


def _shown(rows: list[Row]) -> list[tuple[str, str, str]]:
    return [(format_instant(low), format_instant(high), key) for low, high, key in rows]
