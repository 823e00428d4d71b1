"""The console with 50 queries, 10,000 origins and 1,000 batches of history, and 100 pages open at once."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import httpx
import pytest

from slackwater.metadata.store import MetadataStore, open_store
from slackwater.monitoring.events import BatchFinished, Event, RunStarted
from slackwater.monitoring.query_state import OperatorState, OriginState, OriginSummary, WatermarkState
from slackwater.monitoring.record_tables import RecordTables
from slackwater.time import SECOND, now
from slackwater.ui.running_console import RunningConsole
from slackwater.ui.views import Views
from tests.stores import new_store
from tests.support.browser import chromium, needs_chromium

pytestmark = pytest.mark.proof

QUERIES, ORIGINS, BATCHES, PAGES = 50, 10_000, 1_000, 100
NOW = now()


def batch(query: int, number: int, origins: OriginSummary) -> BatchFinished:
    at = NOW - (BATCHES - number) * SECOND
    held = f"partition '{number // 10 % 7}'"
    key = WatermarkState("default", at - 5 * SECOND, "slowest", held)
    state = OperatorState(
        "0",
        at,
        at - 5 * SECOND,
        "slowest",
        held,
        lag=5 * SECOND,
        keys=(key,),
        origins=origins,
        open_windows=3,
    )
    return BatchFinished(f"q{query}", "run", f"query {query}", at, number, SECOND, 100, 1_000, (state,))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetadataStore]:
    many = OriginSummary.of(
        OriginState(f"origin-{number}", "active", {"default": NOW - number * SECOND})
        for number in range(ORIGINS)
    )
    with open_store(new_store(tmp_path_factory.mktemp("load"))) as opened:
        events: list[Event] = [
            RunStarted(f"q{query}", "run", f"query {query}", NOW) for query in range(QUERIES)
        ]
        events += [batch(0, number, OriginSummary()) for number in range(BATCHES)]
        events += [batch(query, BATCHES, many) for query in range(QUERIES)]
        tables = RecordTables()
        opened.write(lambda connection: tables.write(connection, events, now=NOW))
        yield opened


@pytest.fixture
def console(store: MetadataStore) -> Iterator[RunningConsole]:
    views = Views(store.url.render_as_string(hide_password=False))
    with RunningConsole(views, port=0).start() as running:
        yield running


def change(store: MetadataStore, number: int) -> None:
    event = batch(0, BATCHES + number, OriginSummary())
    store.write(lambda connection: RecordTables().write(connection, [event], now=now()))


def test_answers_take_less_than_100_ms_and_are_bounded(console: RunningConsole) -> None:
    for path in ("api/now", "api/query?name=q0", "api/windows?name=q0", "api/late?name=q0"):
        times = []
        for _ in range(5):
            began = time.monotonic()
            response = httpx.get(f"{console.address}{path}")
            times.append(time.monotonic() - began)
            assert response.status_code == 200
            assert len(response.content) < 500_000
            time.sleep(1.1)  # longer than an answer is kept
        assert min(times) < 0.1, f"{path}: {times}"


def test_100_pages_hear_of_a_change_and_the_server_does_not_grow(
    console: RunningConsole, store: MetadataStore
) -> None:
    ready = Barrier(PAGES + 1)

    def listen(_: int) -> float:
        with httpx.stream("GET", f"{console.address}api/events", timeout=60) as response:
            statuses = (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))
            first = next(statuses)["changes"]
            for status in statuses:  # the first change is that pages listen
                if status["changes"] > first:
                    first = status["changes"]
                    break
            ready.wait(60)
            for status in statuses:
                if status["changes"] > first:
                    return time.monotonic()
        raise AssertionError("the server ended the stream")

    with ThreadPoolExecutor(PAGES) as pool:
        heard = [pool.submit(listen, number) for number in range(PAGES)]
        ready.wait(60)
        began = time.monotonic()
        change(store, 1)
        assert max(future.result() for future in heard) - began < 5
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(100):
        change(store, 2 + number)
        httpx.get(f"{console.address}api/query?name=q{number % QUERIES}")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100_000, f"{grown} KB"


@needs_chromium
def test_the_first_sentence_is_painted_within_a_second_and_the_page_does_not_grow(
    console: RunningConsole, store: MetadataStore, tmp_path: Path
) -> None:
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{console.address}#/now")
        page.wait_for_selector("main .sentence")
        painted = []
        for _ in range(3):
            page.goto("about:blank")
            began = time.monotonic()
            page.goto(f"{console.address}#/now/q0")
            page.wait_for_selector("main .sentence")
            painted.append(time.monotonic() - began)
        assert min(painted) < 1, painted
        heap = "performance.memory.usedJSHeapSize"
        sizes = []
        for number in range(30):
            change(store, 200 + number)
            page.wait_for_timeout(300)
            if number in (5, 29):
                sizes.append(page.evaluate(heap))
        assert sizes[1] < 3 * sizes[0] + 20_000_000
