"""What the Now view says equals `why()` of the operator and the reference model, for 50 random runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import polars as pl
import pytest
from playwright.sync_api import Page

from slackwater import windows
from slackwater._time_text import instant_text
from slackwater.monitoring.recorder import Recorder
from slackwater.progress.values import Watermark
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.monitor.reports import QueryReport, why
from slackwater.spark.monitor.telemetry import Telemetry
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.source_progress import SILENT_AFTER, SourceRules
from slackwater.spark.wire.wire_columns import ORIGIN, TIME
from slackwater.time import SECOND, format_instant, now
from slackwater.ui.running_console import RunningConsole
from slackwater.ui.views import Views
from tests.model.generating import GeneratorModel, Happened
from tests.support.browser import chromium, needs_chromium
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import Stage, host, shipped, ticks

RUNS = 50
LAG = 2 * SECOND


@dataclass(frozen=True)
class Truth:
    """What is true about a run: the report of its operator, and the model of its source."""

    name: str
    report: QueryReport
    watermark: int | None
    holders: set[str]
    """The origins that may hold the watermark back: those furthest behind."""
    silent: set[str]


def random_run(seed: int, heard: Telemetry, start: int) -> Truth:
    """A few batches of a few origins, as buckets process them and as the model does."""
    random = Random(seed)
    names = [f"{random.choice('abc')}{number}" for number in range(random.randint(1, 5))]
    stage = Stage(
        OperatorPlan((SourceRules(Lag(LAG)),), host(Options(windows.Fixed(10 * SECOND))), reporter=3)
    )
    model = GeneratorModel(Lag(LAG), None, 1, 0, None, discovers=True, discover=None)
    known: dict[str, int] = {}
    at, batch = start, _event(seed, 0, start, {})
    for number in range(random.randint(1, 6)):
        at = start + number * 4 * SECOND
        speaking = random.sample(names, random.randint(1, len(names)))
        rows = [
            (random.choice(speaking), random.choice("xy"), at - random.randint(0, 9_000_000), 1)
            for _ in range(random.randint(1, 12))
        ]
        peaks: dict[str, int] = {}
        for origin, _, time, _ in rows:
            peaks[origin] = max(time, peaks.get(origin, time))
        for origin in sorted(peaks.keys() - known.keys()):
            model.perform(Happened(at, "add", origin))
        for origin, time in sorted(peaks.items(), key=lambda peak: peak[1]):
            model.perform(Happened(at, "event", origin, time))
            known[origin] = at
        model.perform(Happened(at, "tick"))
        frame = pl.DataFrame(rows, schema=[ORIGIN, "key", TIME, "value"], orient="row")
        outputs = stage.step([*shipped(frame), *ticks(at)])
        texts = {"reports": [msgspec.json.encode(one.report).decode() for one in outputs]}
        batch = _event(seed, number, at, texts)
        heard.onQueryProgress(batch)
    watermarks = [each.value for past in model.outputs for each in past if isinstance(each, Watermark)]
    own = {name: model.watermark(name, len(model.steps)) for name in known}
    lowest = min(value for value in own.values() if value is not None)
    query = SimpleNamespace(name=f"run {seed}", id=seed, recentProgress=[batch.progress])
    return Truth(
        f"run {seed}",
        _reported(query),
        max(watermarks, default=None),
        {name for name, value in own.items() if value == lowest},
        {name for name, last in known.items() if at - last >= SILENT_AFTER},
    )


def _reported(query: Any) -> QueryReport:
    with pytest.MonkeyPatch.context() as patched:
        # `why` accepts only queries of Spark; this one has the reports of buckets that ran in this process.
        patched.setattr("slackwater.spark.internals.is_streaming_query", lambda _: True)
        return why(query)


def _event(seed: int, number: int, at: int, texts: dict[str, list[str]]) -> Any:
    return SimpleNamespace(
        progress=SimpleNamespace(
            id=f"q{seed}", runId=f"r{seed}", name=f"run {seed}", timestamp=format_instant(at), batchId=number,
            batchDuration=250, sources=[], stateOperators=[],
            observedMetrics={"slackwater": SimpleNamespace(asDict=lambda: texts)},
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Truth]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('truth')}/store.db"
    start = now() // SECOND * SECOND - 60 * SECOND
    with Recorder(url, pause=0, capacity=10_000) as recorder:
        heard = Telemetry(batches=10, queries=RUNS, recorder=recorder)
        found = [random_run(seed, heard, start) for seed in range(RUNS)]
    return url, found


@pytest.mark.search
def test_the_answer_of_the_endpoint_equals_why_and_the_model(runs: tuple[str, list[Truth]]) -> None:
    url, found = runs
    assert sum(len(truth.silent) > 0 for truth in found) > RUNS // 5, "the runs are worth looking at"
    with Views(url) as views:
        for truth in found:
            (reported,) = truth.report.operators
            (operator,) = views.query(truth.name).operators
            assert operator.watermark == reported.watermark == truth.watermark
            assert operator.held_by == reported.slowest.held_by
            assert operator.held_by in {f"partition {name!r}" for name in truth.holders}
            assert operator.open_windows == reported.open_windows
            origins = views.origins(truth.name).origins
            states = {origin.name: (origin.status, origin.watermark) for origin in origins}
            assert states == {one.name: (one.status, one.watermark) for one in reported.origins.listed}
            assert operator.origins == dict(Counter(origin.status for origin in origins))
            assert {name for name, (status, _) in states.items() if status == "silent"} == truth.silent


@pytest.fixture(scope="module")
def page(runs: tuple[str, list[Truth]]) -> Iterator[tuple[Page, str]]:
    with RunningConsole(Views(runs[0]), port=0).start() as console, chromium() as browser:
        yield browser.new_page(), console.address


@pytest.mark.proof
@needs_chromium
def test_a_person_reads_what_why_and_the_model_say(
    runs: tuple[str, list[Truth]], page: tuple[Page, str]
) -> None:
    shown, address = page
    for seed, truth in enumerate(runs[1]):
        shown.goto(f"{address}#/now/q{seed}")
        shown.wait_for_selector(f"h1:has-text('{truth.name}:')")
        shown.wait_for_selector("table.ladder tbody tr")
        said = shown.inner_text("h1")
        if truth.watermark is None:
            assert "watermark unknown" in said
        else:
            assert f"watermark {instant_text(truth.watermark // SECOND * SECOND)[11:19]}, " in said
        held = re.search(r"held by partition '(\w+)'", said)
        assert held is not None
        assert held[1] in truth.holders
        (reported,) = truth.report.operators
        assert reported.slowest.held_by == f"partition '{held[1]}'"
        if truth.report.operators[0].open_windows:
            assert re.search(rf"\b{reported.open_windows} windows? waits?", said)
        rows = [row.inner_text().split() for row in shown.locator("table.ladder tbody tr").all()]
        assert {name for name, state, *_ in rows if state == "silent"} == truth.silent
        assert {name for name, *_ in rows} == {one.name for one in reported.origins.listed}
