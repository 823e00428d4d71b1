"""`slackwater why`, `origins`, `windows` and `late`, as a user types them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from slackwater.cli.app import app
from slackwater.metadata.store import open_store
from slackwater.time import MINUTE, SECOND, now
from tests.stores import new_store
from tests.support.console_store import fill_queries, fill_streams

NOW = now()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = new_store(tmp_path_factory.mktemp("queries"))
    with open_store(url) as opened:
        fill_queries(opened, NOW)
    return url


def run(store: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"SLACKWATER_STORE": store, "COLUMNS": "200"})


def test_why_prints_one_sentence_for_each_query(store: str) -> None:
    shown = run(store, "why")
    assert shown.exit_code == 0, shown.output
    running, failed = shown.stdout.splitlines()
    assert running.startswith("orders: watermark ")
    assert "6 min behind; held by partition '7', silent since " in running
    assert failed == (
        "clicks: no operator has reported yet; the query failed: ValueError: <i>price</i> is negative"
    )


def test_why_of_a_query_lists_operators_origins_and_who_held_it_back(store: str) -> None:
    shown = run(store, "why", "orders").stdout
    assert "origins of operator 0.0: 7 active, 1 silent, 1 idle, 1 gap" in shown
    assert "x" * 81 not in shown
    held = shown.partition("what held the watermark back")[2]
    assert [line.split("partition")[1].split()[0] for line in held.splitlines()[2:4]] == ["'7'", "'2'"]


def test_why_as_json_has_the_lag_of_each_operator(store: str) -> None:
    answer = json.loads(run(store, "why", "orders", "--json").stdout)
    last, source = answer["operators"]
    assert (source["lag"], source["inherited_lag"]) == (5 * MINUTE + 57 * SECOND, None)
    assert (last["lag"], last["local_lag"]) == (6 * MINUTE + 17 * SECOND, 20 * SECOND)
    assert answer["holders"][0]["held_by"] == "partition '7'"


def test_origins_are_filtered_sorted_and_paged(store: str) -> None:
    shown = run(store, "origins", "orders", "--filter", "gap").stdout
    assert "gap at sequence 4" in shown
    assert "1 of 10 match" in shown
    assert "x" * 81 not in shown
    answer = json.loads(run(store, "origins", "orders", "--sort", "name", "--offset", "2", "--json").stdout)
    assert [origin["name"] for origin in answer["origins"][:3]] == ["2", "3", "4"]
    paged = run(store, "origins", "orders", "--limit", "4").stdout
    assert "… and 6 more; see slackwater origins --offset 4" in paged
    assert run(store, "origins", "clicks").stdout == "no origins are in the reports of this query\n"


def test_windows_are_listed_by_end_with_what_they_wait_for(store: str) -> None:
    answer = json.loads(run(store, "windows", "orders", "--json").stdout)
    ends = [window["end"] for window in answer["open"]]
    assert ends == sorted(ends)
    assert answer["open"][0]["closes"].startswith("fires at ")
    assert (answer["closed"][1]["early"], answer["closed"][1]["on_time"]) == (3, 40)
    assert "open windows by end" in run(store, "windows", "orders").stdout


def test_late_shows_what_was_dropped_and_how_late_rows_are(store: str) -> None:
    answer = json.loads(run(store, "late", "orders", "--json").stdout)
    assert answer["dropped"] == {"late": 117}
    assert sum(rows for _, rows in answer["delays"][0]["bins"]) == answer["delays"][0]["rows"] == 800
    assert {sample["values"] is None for sample in answer["samples"]} == {True, False}
    shown = run(store, "late", "orders").stdout
    assert "dropped: 117 late" in shown
    assert "recommended: lag " in shown
    assert "a sample of the dropped rows" in shown


def test_an_unknown_query_or_operator_is_an_error_that_lists_the_known_ones(store: str) -> None:
    for arguments, known in (
        (("why", "none"), "'orders', 'clicks'"),
        (("why", "orders", "--operator", "9"), "known: 0, 0.0"),
    ):
        shown = run(store, *arguments)
        assert shown.exit_code == 2
        assert known in shown.output


def test_watch_prints_again_only_after_a_change(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "store.db"
    copy.write_bytes(Path(store.removeprefix("sqlite:///")).read_bytes())
    looks = 0

    def wait(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            with open_store(f"sqlite:///{copy}") as opened:
                fill_queries(opened, NOW + MINUTE)
        if looks == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("slackwater.cli.watching.sleep", wait)
    shown = run(f"sqlite:///{copy}", "why", "--json", "--watch")
    assert shown.exit_code == 130
    assert len(shown.stdout.splitlines()) == 2


@pytest.mark.search
def test_describe_says_what_a_stream_waits_for_and_where_its_groups_are(tmp_path: Path) -> None:
    url = new_store(tmp_path)
    fill_streams(url, NOW)
    shown = run(url, "stream", "describe", "shop/bids").stdout
    assert re.match(r"shop/bids: mark \S+: held back by writer 'gateway-2' at \S+, behind since", shown)
    answer = json.loads(run(url, "stream", "describe", "shop/bids", "--json").stdout)
    (group,) = answer["groups"]
    assert (group["group"], group["behind"], group["readers"]) == ("totals", 240, [])
    assert group["from"] < group["to"] < answer["watermark"]
    assert "totals" in shown
