"""The console on a real Spark query: the page says what the operators report."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.monitoring.sentence import sentence
from slackwater.time import now
from tests.spark.recorded_chain import run_recorded_chain
from tests.support.browser import chromium, keep_screenshot, needs_chromium

pytestmark = [pytest.mark.spark, pytest.mark.proof, needs_chromium]


def test_the_page_says_what_a_real_query_reports(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    query, _ = run_recorded_chain(spark, tmp_path, url)
    with sw.open_monitor(url) as monitor:
        state = monitor.query(query)
    with sw.ui(spark, store=url, port=0) as console, chromium() as browser:
        page = browser.new_page()
        page.goto(f"{console.address}#/now/{query}?operator=0")
        expect(page.locator("main")).to_contain_text("Origins of operator 0")
        expect(page.locator("table.ladder").first.locator("tbody tr")).to_contain_text(["input 'deliveries'"])
        page.goto(f"{console.address}#/now/{query}")
        expect(page.locator("h1")).to_have_text(sentence(state, now()))
        expect(page.locator("main")).to_contain_text("Origins of operator 0.0")
        ladder = page.locator("table.ladder").first.locator("tbody tr")
        expect(ladder.first).to_contain_text("silent")
        assert [row.inner_text().split()[:2] for row in ladder.all()] == [["b", "silent"], ["a", "active"]]
        chain = page.locator("section").filter(has_text="Lag along the chain").locator("tbody tr")
        assert [row.locator("td").first.inner_text() for row in chain.all()] == ["0", "0.0"]
        assert "operator 0.0" in chain.first.inner_text()
        held = page.locator("section").filter(has_text="Who held it back").locator("tbody tr")
        assert "partition 'b'" in held.first.inner_text()
        keep_screenshot(page, "spark-now")
        page.goto(f"{console.address}#/now/{query}?operator=0")
        expect(page.locator("main")).to_contain_text("Buffered rows")
        page.goto(f"{console.address}#/windows/{query}")
        expect(page.locator("main")).to_contain_text("2 open windows by end")
        keep_screenshot(page, "spark-windows")
        page.goto(f"{console.address}#/late/{query}")
        expect(page.locator("main")).to_contain_text("Dropped: 2 late")
        sample = page.locator("section").filter(has_text="Dropped rows").locator("tbody tr").first
        expect(sample).to_contain_text("15 s")
        expect(sample).to_contain_text("redacted")
        keep_screenshot(page, "spark-late")
