"""Metrics in the text format of Prometheus, and the dashboard and alerts that are made for them."""

from __future__ import annotations

import json
import re
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from slackwater.cli.app import app
from slackwater.ingest import WorkUnit, unit_of
from slackwater.ingest.ledger.progress_ledger import record_success
from slackwater.metadata.store import open_store
from slackwater.streams.log.catalog import Streams
from slackwater.time import MINUTE, SECOND, instant
from slackwater.ui import metrics
from slackwater.ui.metrics import MOST_SERIES, metrics_text
from tests.stores import new_store
from tests.support.console_store import fill_queries
from tests.ui.requests import app_of, request

NOW = instant("2024-03-20T12:00:00Z")
FILES = Path(metrics.__file__).parent / "prometheus"
NAMES = {
    "slackwater_watermark_timestamp_seconds", "slackwater_watermark_holder_info", "slackwater_origins",
    "slackwater_late_rows_total", "slackwater_lateness_seconds", "slackwater_panes_total",
    "slackwater_open_windows", "slackwater_state_bytes", "slackwater_ingest_watermark_timestamp_seconds",
    "slackwater_stream_mark_timestamp_seconds",
}  # fmt: skip
SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    address = new_store(tmp_path_factory.mktemp("metrics"))
    with open_store(address) as store:
        fill_queries(store, NOW)
        for country in ("NO", 'S"E\n'):
            work = WorkUnit(0, NOW, unit_of({"country": country}), 0)
            store.write(partial(record_success, job="orders", watermark="system", work=work))
        Streams(store).create("shop/bids")
    return address


def samples(text: str) -> dict[tuple[str, str], float]:
    """The values by name and labels; every line has to parse, and no series may occur twice."""
    found: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            continue
        parsed = SAMPLE.fullmatch(line)
        assert parsed is not None, line
        name, labels, value = parsed.groups()
        assert (name, labels) not in found
        found[name, labels] = float(value)
    return found


@pytest.fixture(scope="module")
def exported(url: str) -> dict[tuple[str, str], float]:
    with open_store(url) as store:
        return samples(metrics_text(store))


def value(exported: dict[tuple[str, str], float], name: str, **labels: str) -> float:
    wanted = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return exported[name, wanted]


def test_the_names_are_those_that_are_promised(url: str) -> None:
    with open_store(url) as store:
        assert set(re.findall(r"^# TYPE (\w+)", metrics_text(store), re.MULTILINE)) == NAMES


def test_watermarks_are_times_in_seconds(exported: dict[tuple[str, str], float]) -> None:
    of_source = {"query": "orders", "operator": "0.0", "time": "default"}
    at = value(exported, "slackwater_watermark_timestamp_seconds", **of_source)
    assert at == (NOW - 6 * MINUTE - 7 * SECOND) / SECOND
    held = {**of_source, "held_by": "partition '7'", "reason": "slowest"}
    assert value(exported, "slackwater_watermark_holder_info", **held) == 1


def test_a_query_that_has_ended_is_not_exported(exported: dict[tuple[str, str], float]) -> None:
    assert not [labels for _, labels in exported if "clicks" in labels]


def test_rows_and_panes_are_counted_by_reason_and_timing(exported: dict[tuple[str, str], float]) -> None:
    source = {"query": "orders", "operator": "0.0"}
    assert value(exported, "slackwater_late_rows_total", **source, outcome="late") == 117
    assert value(exported, "slackwater_panes_total", **source, timing="on_time") == 1_560
    assert value(exported, "slackwater_origins", **source, state="silent") == 1


def test_the_histogram_of_lateness_is_cumulative(exported: dict[tuple[str, str], float]) -> None:
    buckets = [at for (name, _), at in exported.items() if name == "slackwater_lateness_seconds_bucket"]
    assert all(low <= high for low, high in pairwise(buckets))
    assert buckets[-1] == value(exported, "slackwater_lateness_seconds_count", query="orders") == 6_400


def test_units_are_labelled_with_their_values_escaped(exported: dict[tuple[str, str], float]) -> None:
    found = [labels for name, labels in exported if name == "slackwater_ingest_watermark_timestamp_seconds"]
    assert len(found) == 2
    assert r'job="orders",unit="{\"country\":\"NO\"}"' in found


@pytest.mark.search
def test_the_number_of_series_is_bounded_and_long_names_stay_apart(tmp_path: Path) -> None:
    with open_store(new_store(tmp_path)) as store:
        for number in range(MOST_SERIES + 50):
            work = WorkUnit(0, 10 + number, unit_of({"name": "x" * 10_000 + str(number)}), 0)
            store.write(partial(record_success, job="many", watermark="system", work=work))
        text = metrics_text(store)
    found = [at for (name, _), at in samples(text).items() if name.startswith("slackwater_ingest")]
    assert len(found) == MOST_SERIES
    assert min(found) == 10 / SECOND
    assert max(map(len, text.splitlines())) < 500


def test_flink_names_have_flink_units(url: str) -> None:
    with open_store(url) as store:
        found = samples(metrics_text(store, names="flink"))
    prefix = "flink_taskmanager_job_task_operator"
    assert {name for name, _ in found} == {
        f"{prefix}_{name}"
        for name in ("currentInputWatermark", "currentOutputWatermark", "numLateRecordsDropped")
    }
    assert sum(at for (name, _), at in found.items() if name.endswith("Dropped")) == 117
    (at,) = [
        at
        for (name, labels), at in found.items()
        if name.endswith("currentOutputWatermark") and 'operator_id="0.0"' in labels
    ]
    assert at == (NOW - 6 * MINUTE - 7 * SECOND) // 1_000


def test_the_endpoint_and_the_command_give_the_same(url: str, tmp_path: Path) -> None:
    response = request(app_of(url, now=NOW), "/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    shown = CliRunner().invoke(app, ["metrics", "--store", url])
    assert shown.stdout == response.text
    target = tmp_path / "slackwater.prom"
    written = CliRunner().invoke(app, ["metrics", "--store", url, "--textfile", str(target)])
    assert written.exit_code == 0, written.output
    assert target.read_text(encoding="utf-8") == response.text
    assert [path.name for path in tmp_path.iterdir()] == ["slackwater.prom"]


# ---- files for Grafana and Prometheus


def expressions() -> list[str]:
    dashboard: dict[str, Any] = json.loads((FILES / "grafana-dashboard.json").read_text(encoding="utf-8"))
    alerts: dict[str, Any] = yaml.safe_load((FILES / "alerts.yml").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    found += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    variables = [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    return found + variables


def test_the_dashboard_and_the_alerts_use_only_exported_names_and_labels(
    exported: dict[tuple[str, str], float],
) -> None:
    names = {name for name, _ in exported} | NAMES
    labels = {label for _, text in exported for label in re.findall(r'(\w+)="', text)} | {"stream"}
    used = set()
    for expression in expressions():
        for name in re.findall(r"slackwater_\w+", expression):
            used.add(name)
            assert name in names, f"{name} in {expression}"
        matched = re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expression)
        grouped = [label for group in re.findall(r"\b(?:by|on|group_left) ?\(([^)]*)\)", expression)
                   for label in group.replace(" ", "").split(",") if label]  # fmt: skip
        assert set(matched) | set(grouped) <= labels, expression
    assert {name.removesuffix("_bucket") for name in used} == NAMES


def test_every_alert_says_what_is_wrong_and_what_to_run() -> None:
    alerts = yaml.safe_load((FILES / "alerts.yml").read_text(encoding="utf-8"))
    for group in alerts["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            assert "slackwater " in rule["annotations"]["description"]
