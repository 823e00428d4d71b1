"""A real browser on the console: what a person reads, by mouse and by keyboard, with good and bad luck.

Set SLACKWATER_SCREENSHOTS to a folder to keep the pictures, and SLACKWATER_UPDATE_PICTURES to replace the one
of the documentation.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import open_store
from slackwater.monitoring.events import RunEnded, RunStarted
from slackwater.monitoring.record_tables import RecordTables
from slackwater.time import SECOND, now
from slackwater.ui.running_console import RunningConsole
from slackwater.ui.views import Views
from tests.support.browser import chromium, keep_screenshot, needs_chromium
from tests.support.console_store import ERROR, MARKUP, fill
from tests.support.notebook_values import reprs

pytestmark = [pytest.mark.proof, needs_chromium]
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "console.png"
VIEWS = {
    "now": "#/now",
    "query": "#/now/5f0c",
    "windows": "#/windows/5f0c",
    "late": "#/late/5f0c",
    "ingestion": "#/ingestion",
    "job": "#/ingestion/orders",
    "streams": "#/streams",
    "stream": "#/streams/shop%2Fbids",
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 800}},
}
Opened = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    fill(f"sqlite:///{folder}/store.db", folder, now())
    return folder


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    """A store of its own for each test, so that it may be changed or lost."""
    for name in ("store.db", "orders.yaml"):
        shutil.copy(template / name, tmp_path / name)
    return tmp_path / "store.db"


@pytest.fixture
def console(store: Path) -> Iterator[RunningConsole]:
    views = Views(f"sqlite:///{store}", jobs=[store.parent / "orders.yaml"])
    with RunningConsole(views, port=0).start() as running:
        yield running


@pytest.fixture
def opened(browser: Browser, console: RunningConsole) -> Iterator[Opened]:
    """Opens a view in a new page; an error in the page or a dialog fails the test."""
    problems: list[str] = []
    contexts = []

    def open_view(route: str, **look: Any) -> Page:
        context = browser.new_context(**look)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on(
            "console",
            lambda message: (
                problems.append(message.text)
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )
        page.goto(f"{console.address}{route}")
        return page

    yield open_view
    for context in contexts:
        context.close()
    assert problems == []


def shown(page: Page) -> str:
    return page.inner_text("main")


@pytest.mark.parametrize("look", LOOKS)
def test_every_view_is_accessible_and_fits_its_width(opened: Opened, look: str) -> None:
    page = opened("", **LOOKS[look])
    for name, route in VIEWS.items():
        page.goto(page.url.split("#")[0] + route)
        page.wait_for_selector("main .card")
        page.wait_for_timeout(300)
        keep_screenshot(page, f"{name}-{look}")
        violations = Axe().run(page).response["violations"]
        assert [(name, each["id"], each["nodes"][0]["html"]) for each in violations] == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"


def test_now_says_why_the_watermark_stands_still(opened: Opened) -> None:
    page = opened("#/now/5f0c")
    expect(page.locator("h1")).to_contain_text("held by partition '7'")
    text = shown(page)
    sentence = r"orders: watermark \d\d:\d\d:\d\d, 6 min behind; held by partition '7', silent since \d\d:"
    assert re.search(sentence, text)
    assert "7 active" in text
    assert "1 silent" in text
    assert "gap at sequence 4" in text
    held = text.partition("Who held it back")[2]
    assert held.index("partition '7'") < held.index("partition '2'")


def test_the_picture_of_the_documentation_is_taken(browser: Browser, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    job = fill(url, tmp_path, now(), names=("8", "9"))
    with RunningConsole(Views(url, jobs=[job]), port=0).start() as running:
        page = browser.new_page(viewport={"width": 1280, "height": 1010}, color_scheme="light")
        page.goto(f"{running.address}#/now/5f0c")
        expect(page.locator("h1")).to_contain_text("held by partition '7', silent since")
        expect(page.locator("table.ladder tbody tr")).to_have_count(10)
        expect(page.locator(".live")).to_contain_text("live")
        page.wait_for_timeout(300)
        taken = page.screenshot()
        page.close()
    committed = PICTURE.read_bytes()
    if os.environ.get("SLACKWATER_UPDATE_PICTURES"):
        PICTURE.write_bytes(taken)
    # Width and height in the header of a PNG: the committed picture was taken by this test.
    assert committed[:24] == taken[:24]


def test_the_ladder_is_filtered_and_sorted(opened: Opened) -> None:
    page = opened("#/now/5f0c?operator=0.0")
    ladder = page.locator("table.ladder").first
    expect(ladder.locator("tbody tr").first).to_contain_text("silent")
    page.get_by_label("Filter").fill("gap")
    expect(ladder.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Filter").fill("")
    page.get_by_label("Sort by").select_option("name")
    expect(ladder.locator("tbody tr").first).to_contain_text("0")


def test_names_with_markup_or_10000_characters_are_text(opened: Opened) -> None:
    page = opened("#/now/5f0c")
    expect(page.locator("main")).to_contain_text(MARKUP)
    assert page.title() == "Now · Slackwater"
    assert "x" * 100 not in shown(page)
    page.goto(page.url.split("#")[0] + "#/late/5f0c")
    expect(page.locator("main")).to_contain_text("shop=<img src=x onerror=alert(1)>")
    page.goto(page.url.split("#")[0] + "#/streams/" + "x%3Cb%3E" * 1_200)
    expect(page.locator("main")).to_contain_text("Nothing to show")


def test_windows_say_when_they_close(opened: Opened) -> None:
    page = opened("#/windows/5f0c")
    expect(page.locator("main")).to_contain_text("closes when the watermark reaches")
    page.locator("main table a").first.click()
    expect(page.locator("main")).to_contain_text("First seen")
    assert "end=" in page.url
    deep = opened("#/" + page.url.partition("#/")[2])
    expect(deep.locator("main")).to_contain_text("First seen")


def test_moving_the_lag_line_says_what_it_would_keep(opened: Opened) -> None:
    page = opened("#/late/5f0c")
    lag = page.get_by_role("slider", name="Lag", exact=True)
    lag.focus()
    for _ in range(3):
        lag.press("ArrowRight")
    expect(page.locator("main")).to_contain_text(
        re.compile(r"instead of .*: 54 of 54 late rows kept, results .* later")
    )
    box = lag.locator("line").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] - 5, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] - 300, box["y"] + 60, steps=4)
    page.mouse.up()
    more = re.compile(r"more rows late, results .* earlier")
    assert more.search(page.locator("main .sentence").nth(1).inner_text())


def test_a_failed_unit_is_found_with_the_keyboard_alone(opened: Opened) -> None:
    page = opened("#/ingestion/orders")
    expect(page.locator("main")).to_contain_text("4 failed, 3 owed, 4 to read again, 16 done")
    grid = page.get_by_role("grid")
    grid.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowLeft", "Enter"):
        grid.press(key)
    expect(page.locator("main")).to_contain_text("The command that reads it")
    text = shown(page)
    assert ERROR in text
    assert "--only-failed" in text
    assert "country=SE" in text
    assert "unit=" in page.url
    deep = opened("#/" + page.url.partition("#/")[2])
    expect(deep.locator("main")).to_contain_text("The command that reads it")


def test_units_with_markup_or_10000_characters_are_text(browser: Browser, tmp_path: Path) -> None:
    long = "x" * 10_000
    units = json.dumps([MARKUP, long, "it's"])
    axis = "{name: at, type: datetime, range: {from: 2024-03-01, to: P0D}}"
    file = tmp_path / "odd.yaml"
    file.write_text(
        f"ms.job.name: odd\nms.watermark: [{axis}, {{name: shop, type: unit, units: {units}}}]\n"
        "ms.work.unit.partition: monthly\n",
        encoding="utf-8",
    )
    url = f"sqlite:///{tmp_path}/store.db"
    open_store(url, create=True).close()
    with RunningConsole(Views(url, jobs=[file]), port=0).start() as running:
        page = browser.new_page()
        dialogs: list[str] = []
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        page.goto(f"{running.address}#/ingestion/odd")
        page.wait_for_selector("[role=gridcell]")
        grid = page.get_by_role("grid")
        for row in range(3):
            grid.focus()
            grid.press("Home")
            for _ in range(row):
                grid.press("ArrowDown")
            grid.press("Enter")
            expect(page.locator("main")).to_contain_text("The command that reads it")
        assert dialogs == []
        assert page.title() == "Ingestion · Slackwater"
        assert long[:200] not in shown(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.close()


def test_the_calendar_zooms(opened: Opened) -> None:
    page = opened("#/ingestion/orders")
    page.wait_for_selector("[role=gridcell]")
    days = page.locator("[role=gridcell]").count()
    page.get_by_role("button", name="Weeks").click()
    expect(page.get_by_role("button", name="Weeks")).to_have_attribute("aria-pressed", "true")
    assert 0 < page.locator("[role=gridcell]").count() < days
    page.get_by_role("button", name="Hours").click()
    expect(page.get_by_role("button", name="← Earlier")).to_be_enabled()


def test_the_stalled_writer_is_named(opened: Opened) -> None:
    page = opened("#/streams")
    page.get_by_role("link", name="shop/bids").click()
    expect(page.locator("main")).to_contain_text("held back by writer 'gateway-2'")
    row = page.locator("table.ladder tbody tr").filter(has_text="gateway-2")
    expect(row).to_contain_text("holds the mark back")


def test_the_time_zone_is_switched(opened: Opened) -> None:
    page = opened("#/streams/shop%2Fbids", timezone_id="Asia/Tokyo")
    made = page.locator("section").filter(has_text="The newest marks").locator("tbody tr").first
    first = made.locator("td").nth(3)
    expect(first).to_contain_text("Z")
    utc = first.inner_text()
    page.get_by_role("button", name="Time zone: UTC").click()
    expect(first).not_to_contain_text("Z")
    hours = (int(first.inner_text()[-12:-10]) - int(utc[-13:-11])) % 24
    assert hours == 9


def test_sentences_are_in_the_chosen_time_zone_and_names_stay(opened: Opened) -> None:
    page = opened("#/now/5f0c", timezone_id="Asia/Tokyo")
    pattern = re.compile(
        r"^orders: watermark (\d\d):(\d\d:\d\d), 6 min behind; .* since (\d\d)(:\d\d:\d\d); "
    )
    utc = pattern.match(page.locator("h1").inner_text())
    page.get_by_role("button", name="Time zone: UTC").click()
    page.get_by_role("button", name="Time zone: local").wait_for()
    tokyo = pattern.match(page.locator("h1").inner_text())
    assert utc is not None
    assert tokyo is not None
    assert [(int(tokyo[hour]) - int(utc[hour])) % 24 for hour in (1, 3)] == [9, 9]
    assert (tokyo[2], tokyo[4]) == (utc[2], utc[4])
    text = "held by 'at 10:00:00', silent since 2024-03-01T20:00:00Z"
    written = page.evaluate("""async (text) => (await import("/static/lib.js")).local(text)""", text)
    assert written == "held by 'at 10:00:00', silent since 2024-03-02 05:00:00"


def stop_query(store: Path) -> None:
    with open_store(f"sqlite:///{store}") as opened_store:
        event = RunEnded("5f0c", "run-1", now(), "the cable was pulled")
        opened_store.write(lambda connection: RecordTables().write(connection, [event], now=now()))


def test_a_change_appears_by_itself_unless_the_page_is_paused(opened: Opened, store: Path) -> None:
    page = opened("#/now/5f0c")
    other = opened("#/now/5f0c")
    expect(page.locator("h1")).to_contain_text("partition '7'")
    expect(other.locator("h1")).to_contain_text("partition '7'")
    other.get_by_role("button", name="Pause").click()
    stop_query(store)
    expect(page.locator("h1")).to_contain_text("the cable was pulled")
    assert "the cable was pulled" not in shown(other)
    other.get_by_role("button", name="Resume").click()
    expect(other.locator("h1")).to_contain_text("the cable was pulled")


def test_a_store_that_is_gone_leaves_the_page_with_its_age(opened: Opened, store: Path) -> None:
    page = opened("#/now/5f0c")
    expect(page.locator("h1")).to_contain_text("partition '7'")
    store.rename(store.with_name("moved.db"))
    expect(page.locator("main")).to_contain_text("The store cannot be read")
    expect(page.locator("main")).to_contain_text("Showing what was read at")
    expect(page.locator("h1")).to_contain_text("partition '7'")
    store.with_name("moved.db").rename(store)
    expect(page.locator("main")).not_to_contain_text("The store cannot be read", timeout=30_000)


def test_a_restart_of_the_server_is_noticed(opened: Opened, console: RunningConsole, store: Path) -> None:
    page = opened("#/now/5f0c")
    expect(page.locator("h1")).to_contain_text("partition '7'")
    console.close()
    expect(page.locator("main")).to_contain_text("The console's server does not answer")
    expect(page.locator("h1")).to_contain_text("partition '7'")
    port = int(console.address.rstrip("/").rpartition(":")[2])
    with RunningConsole(Views(f"sqlite:///{store}"), port=port).start():
        expect(page.locator("main")).to_contain_text("The server was restarted at", timeout=30_000)
        expect(page.locator(".live")).to_contain_text("live")
        page.close()


def age_shown(page: Page) -> str:
    """How old the report is, by the page."""
    found = re.search(r"Last report .*? \((.*?)\)", shown(page))
    assert found is not None
    return found[1]


def test_a_jump_of_the_browsers_clock_changes_no_age(opened: Opened) -> None:
    page = opened("#/now/5f0c")
    expect(page.locator("h1")).to_contain_text("partition '7'")
    page.clock.set_system_time("2031-01-01T00:00:00Z")
    page.wait_for_timeout(2_500)
    assert re.fullmatch(r"(\d+ min )?(\d+ s )?ago", age_shown(page))
    assert page.evaluate("new Date().getFullYear()") == 2031


def test_a_clock_of_the_store_that_was_set_back_gives_no_negative_age(opened: Opened, store: Path) -> None:
    page = opened("#/now/5f0c")
    expect(page.locator("h1")).to_contain_text("partition '7'")
    with open_store(f"sqlite:///{store}") as opened_store:
        later = now() + 3_600 * SECOND  # written before the clock was set back by an hour
        event = RunStarted("5f0c", "run-2", "orders", later)
        opened_store.write(lambda connection: RecordTables().write(connection, [event], now=later))
    page.reload()
    expect(page.locator("main")).to_contain_text("just now")
    text = shown(page)
    assert "−" not in text.partition("Lag along the chain")[0]
    assert "no report for" not in text


def test_a_page_that_slept_for_an_hour_says_so_and_catches_up(opened: Opened, store: Path) -> None:
    page = opened("", viewport={"width": 1280, "height": 900})
    page.clock.install()
    page.goto(page.url.split("#")[0] + "#/now/5f0c")
    page.reload()
    expect(page.locator("h1")).to_contain_text("partition '7'")
    page.context.set_offline(True)
    page.evaluate("dispatchEvent(new Event('offline'))")
    page.clock.fast_forward("01:00:00")
    assert re.search(r"1 h", age_shown(page))
    stop_query(store)
    page.context.set_offline(False)
    page.clock.fast_forward(5_000)
    expect(page.locator("h1")).to_contain_text("the cable was pulled")


def test_a_query_that_was_dropped_from_the_store_stays_with_its_age(opened: Opened, store: Path) -> None:
    page = opened("#/now/5f0c")
    expect(page.locator("h1")).to_contain_text("partition '7'")
    with open_store(f"sqlite:///{store}") as opened_store:
        gone = sql.delete(schema.queries).where(schema.queries.c.id == "5f0c")
        opened_store.write(lambda connection: connection.execute(gone))
    expect(page.locator("main")).to_contain_text("Not up to date: query = '5f0c': is not in the store")
    expect(page.locator("main")).to_contain_text("Showing what was read at")
    expect(page.locator("h1")).to_contain_text("partition '7'")
    page.goto(page.url.split("#")[0] + "#/now")
    expect(page.locator("main")).to_contain_text("clicks")
    expect(page.locator("main")).not_to_contain_text("orders")


@pytest.mark.parametrize(
    ("route", "text"),
    [
        ("#/now/orders", "held by partition '7'"),
        ("#/now/5f0c?operator=0.0&key=default", "Origins of operator 0.0"),
        ("#/now/5f0c?filter=gap", "1 of 10"),
        ("#/windows/orders?operator=0.0", "open windows by end"),
        ("#/late/5f0c?origin=3", "Dropped rows"),
        ("#/ingestion/orders", "country=SE"),
        ("#/streams/shop%2Fbids", "gateway-2"),
    ],
)
def test_every_view_has_an_address_of_its_own(opened: Opened, route: str, text: str) -> None:
    page = opened(route)
    expect(page.locator("main")).to_contain_text(text)
    assert route in page.url


def test_the_whole_page_is_used_with_the_keyboard(opened: Opened) -> None:
    page = opened("#/now")
    expect(page.locator("main")).to_contain_text("orders")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("held by partition '7'")


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_what_notebooks_show_is_readable(browser: Browser, ground: str) -> None:
    colours = {"light": "background:#ffffff;color:#111111", "dark": "background:#111827;color:#e5e7eb"}
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    body = "".join(f"<section>{html}</section>" for html in reprs().values())
    page.set_content(
        f"<!doctype html><html lang=en><title>n</title><body style='{colours[ground]}'><main><h1>n</h1>{body}"
    )
    keep_screenshot(page, f"notebook-{ground}")
    rules = {"runOnly": ["color-contrast", "svg-img-alt", "duplicate-id"]}
    assert [each["id"] for each in Axe().run(page, options=rules).response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()
