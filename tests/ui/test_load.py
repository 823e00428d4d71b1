"""The console under load: 50 queries, 10,000 origins, 1,000 batches, 1,800 updates, 100 open pages.

A page updates at most once a second, so 1,800 updates are half an hour of its life; here they are sent as
fast as it shows them, first to the query with 10,000 origins, then to one with few. The tests check that
nothing is missed and that memory is bounded. Times depend on the machine, so they are only measured: set
SLACKWATER_FIGURES to a file to keep them.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import CDPSession, Page, expect

from slackwater.metadata.store import open_store
from slackwater.time import now
from tests.support.browser import chromium, needs_chromium
from tests.support.console_load import BATCHES, ORIGINS, QUERIES, LoadedStore, resident_bytes, served

pytestmark = [pytest.mark.proof, needs_chromium]
UPDATES = 1_800
LARGE = 200
"""How many of them are of the query with most origins."""
PAGES = 100
CHANGES = 5
"""How many changes the open pages have to hear of."""
MEGABYTE = 1_000_000
WATCH = """
window.batch = -1; window.updates = []; let started = 0, ladder = "";
const original = window.fetch;
window.fetch = (path, options) => { if (String(path).startsWith("/api/query")) started = performance.now(); return original(path, options); };
new MutationObserver(() => {
  const found = /Batch ([\\d,]+)/.exec(document.querySelector("main .card p.quiet")?.textContent ?? "");
  const number = found ? Number(found[1].replaceAll(",", "")) : -1;
  const times = document.querySelector("table.ladder tbody tr")?.textContent ?? "";
  // Both are there: the sentence of the batch, and the ladder, whose times change with every batch.
  if (number > window.batch && times && times !== ladder) { window.batch = number; ladder = times; window.updates.push(performance.now() - started); }
}).observe(document, { subtree: true, childList: true, characterData: true });
"""  # noqa: E501 - JavaScript
FIGURES: dict[str, float] = {}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoadedStore, str]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('load')}/store.db"
    with open_store(url, create=True) as store:
        writer = LoadedStore(store, now())
        writer.fill()
        yield writer, url
    if where := os.environ.get("SLACKWATER_FIGURES"):
        Path(where).write_text(json.dumps(FIGURES, indent=1))


def heap_bytes(session: CDPSession) -> int:
    session.send("HeapProfiler.collectGarbage")
    return int(session.send("Runtime.getHeapUsage")["usedSize"])


def shows(page: Page, number: int) -> None:
    # The page's content security policy forbids what `wait_for_function` does.
    limit = time.monotonic() + 30
    while page.evaluate("window.batch") < number:
        assert time.monotonic() < limit, f"the page does not show batch {number}"
        time.sleep(0.005)


def find_origins(page: Page) -> None:
    """Reach any of the origins: by their names, by their state, and page by page."""
    ladder = page.locator("table.ladder").first.locator("tbody tr")
    page.get_by_label("Filter").fill("partition-04321")
    expect(ladder).to_have_count(1)
    page.get_by_label("Filter").fill("silent")
    expect(ladder).to_contain_text(["partition-00003"])
    page.get_by_label("Filter").fill("")
    page.get_by_role("button", name="Last").click()
    expect(ladder.last).to_contain_text(f"partition-{ORIGINS - 1:05}")
    page.get_by_role("button", name="Previous").click()
    page.get_by_role("button", name="First").click()
    expect(ladder.first).to_contain_text("partition-00000")


def test_the_page_shows_every_update_and_neither_it_nor_the_server_grows(
    loaded: tuple[LoadedStore, str],
) -> None:
    writer, url = loaded
    with served(url, poll_seconds=0.02) as (address, server), chromium() as browser:
        paints: list[float] = []
        for _ in range(3):
            page = browser.new_page()
            began = time.monotonic()
            page.goto(f"{address}#/now/q0")
            page.wait_for_selector("table.ladder tbody tr")
            paints.append(time.monotonic() - began)
            page.close()
        page = browser.new_page()
        page.add_init_script(WATCH)
        page.goto(f"{address}#/now/q0")
        shows(page, BATCHES)
        assert f"{ORIGINS - 1:,} active" in page.inner_text("main")
        find_origins(page)
        page.goto(f"{address}#/now")
        page.wait_for_selector(f"text={QUERIES} queries")
        page.goto(f"{address}#/now/q0")
        session = page.context.new_cdp_session(page)
        heaps, residents = [], []
        for number in range(1, UPDATES + 1):
            if number == LARGE + 1:
                page.goto(f"{address}#/now/q1")
            shows(page, writer.write_batch(0 if number <= LARGE else 1))
            if number in (LARGE // 2, LARGE) or number % 400 == 0:
                heaps.append(heap_bytes(session))
                residents.append(resident_bytes(server))
        updates = page.evaluate("window.updates")
    FIGURES.update(
        first_paint_ms=1e3 * min(paints), update_ms=statistics.median(updates[:LARGE]),
        update_95_ms=statistics.quantiles(updates[:LARGE], n=20)[-1],
        small_update_ms=statistics.median(updates[LARGE:]),
        tab_mb=max(heaps) / MEGABYTE, tab_mb_first=heaps[0] / MEGABYTE, tab_mb_last=heaps[-1] / MEGABYTE,
        server_mb=residents[-1] / MEGABYTE, server_mb_first=residents[0] / MEGABYTE,
    )  # fmt: skip
    assert len(updates) >= UPDATES
    assert heaps[1] < 1.1 * heaps[0] + MEGABYTE, heaps
    assert heaps[-1] < 1.1 * heaps[2] + MEGABYTE, heaps
    assert residents[-1] < 1.1 * residents[1] + 4 * MEGABYTE, residents


def test_a_hundred_open_pages_hear_of_every_change(loaded: tuple[LoadedStore, str]) -> None:
    writer, url = loaded

    async def listen(client: httpx.AsyncClient, address: str, ready: asyncio.Barrier) -> list[float]:
        heard = []
        async with client.stream("GET", f"{address}api/events") as response:
            seen = -1
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    changes = json.loads(line[6:])["changes"]
                    if seen < 0:
                        await ready.wait()
                    elif changes > seen:
                        heard.append(time.monotonic())
                    seen = changes
                    if len(heard) == CHANGES:
                        return heard
        raise AssertionError("the server closed the connection")

    async def run(address: str) -> list[float]:
        limits = httpx.Limits(max_connections=PAGES)
        ready = asyncio.Barrier(PAGES + 1)
        async with httpx.AsyncClient(timeout=60, limits=limits) as client, asyncio.TaskGroup() as group:
            pages = [group.create_task(listen(client, address, ready)) for _ in range(PAGES)]
            await ready.wait()
            written = []
            for _ in range(CHANGES):
                written.append(time.monotonic())
                await asyncio.to_thread(writer.write_batch)
                await asyncio.sleep(0.5)
        heard = [page.result() for page in pages]
        return [max(each[index] for each in heard) - at for index, at in enumerate(written)]

    with served(url, poll_seconds=0.1) as (address, _):
        slowest = asyncio.run(run(address))
    FIGURES["hundred_pages_ms"] = 1e3 * max(slowest)
    assert len(slowest) == CHANGES
