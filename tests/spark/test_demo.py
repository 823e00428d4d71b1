"""The demo, run as `make demo` runs it but without a terminal, and its console in a real browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from playwright.sync_api import expect

from tests.support.browser import CHROMIUM, chromium, keep_screenshot

ROOT = Path(__file__).parents[2]


def start(folder: Path, **changes: str) -> subprocess.Popen[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        # Settings that a session in this process has made for Spark.
        if not name.startswith(("PYSPARK_", "SPARK_", "_PYSPARK"))
    }
    environment |= {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(folder), "COLUMNS": "110", **changes}
    command = [sys.executable, "-u", "-m", "slackwater.demo", "pictures"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment
    )


def watch_console(address: str) -> None:
    """Look at the console of the demo while south is silent."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1180, "height": 860})
        page.goto(address)
        page.get_by_role("link", name=re.compile("demo: ")).first.click(timeout=180_000)
        expect(page.locator("h1")).to_contain_text("held by partition 'south'", timeout=180_000)
        for origin in ("north", "east", "south"):
            expect(page.locator("table.ladder").first).to_contain_text(origin)
        expect(page.locator(".live")).to_contain_text("live")
        keep_screenshot(page, "demo")


@pytest.mark.proof
def test_the_demo_runs_and_accounts_for_every_bid(tmp_path: Path) -> None:
    with start(tmp_path) as demo, ThreadPoolExecutor(1) as threads:
        lines: list[str] = []
        watching = None
        assert demo.stdout is not None
        assert demo.stderr is not None
        for line in demo.stdout:
            lines.append(line)
            found = re.search(r"Console, until the demo ends: (http://127\.0\.0\.1:\d+/)", line)
            if found and CHROMIUM is not None:
                watching = threads.submit(watch_console, found[1])
        errors = demo.stderr.read()
        assert demo.wait() == 0, "".join(lines) + errors
        if watching is not None:
            watching.result()
    shown = "".join(lines)
    assert "Console, until the demo ends: http://127.0.0.1:" in shown
    assert errors == ""
    assert "WARN" not in shown
    # South holds the watermark back, becomes idle, and comes back with bids that make panes late.
    silent = shown.split("has gone silent")[1].split("is back")[0]
    assert "held back by 'south' (slowest)" in silent
    assert re.search(r"held back by '(north|east)' \(slowest\)", silent)
    assert re.search(r"(lamp|chair|clock) +late +\d+ bids, best \d+", shown.split("is back")[1])
    assert "arrived too late" in shown
    for timing in ("early", "on time"):
        assert re.search(rf"(lamp|chair|clock) +{timing} +\d+ bids, best \d+", shown)
    sent, kept, dropped = map(int, re.findall(r"Bids: (\d+) sent, (\d+) in windows, (\d+) dropped", shown)[0])
    assert (kept + dropped, dropped) == (sent, 1)
    picture = Path("pictures") / "bids.svg"
    assert str(picture) in shown
    assert ET.parse(tmp_path / picture).getroot().tag.endswith("svg")  # noqa: S314 - our own file
    left = [path.name for path in tmp_path.iterdir() if not path.name.startswith(("hsperfdata", "."))]
    assert left == ["pictures"]


def test_without_java_the_error_names_the_fix(tmp_path: Path) -> None:
    demo = start(tmp_path, PATH="", JAVA_HOME=str(tmp_path))
    shown, _ = demo.communicate()
    assert demo.returncode == 1
    assert "Spark needs Java 17 or newer, but no Java was found; run `make demo`" in " ".join(shown.split())
    assert not (tmp_path / "pictures").exists()
