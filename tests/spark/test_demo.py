"""The demo, run as `make demo` runs it but without a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        # Settings that a session in this process has made for Spark.
        if not name.startswith(("PYSPARK_", "SPARK_", "_PYSPARK"))
    }
    environment |= {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(folder), "COLUMNS": "110", **changes}
    command = [sys.executable, "-m", "slackwater.demo", "pictures"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)


@pytest.mark.proof
def test_the_demo_runs_and_accounts_for_every_bid(tmp_path: Path) -> None:
    ran = run(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    shown = ran.stdout
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
    ran = run(tmp_path, PATH="", JAVA_HOME=str(tmp_path))
    assert ran.returncode == 1
    assert "Spark needs Java 17 or newer, but no Java was found; run `make demo`" in " ".join(
        ran.stdout.split()
    )
    assert not (tmp_path / "pictures").exists()
