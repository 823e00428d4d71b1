"""The scenario without Spark: its remarks agree with what the tracker explains."""

from __future__ import annotations

import subprocess
import sys

from slackwater.demo.console_scenario import ORIGINS, STORY, ConsoleScene, play
from slackwater.progress.explanation import Reason
from slackwater.progress.tracker import ProgressTracker
from slackwater.time import to_datetime


def _explained(scene: ConsoleScene) -> tuple[str, str, str]:
    watermark = "-" if scene.why.watermark is None else to_datetime(scene.why.watermark).strftime("%H:%M")
    return watermark, (scene.why.held_by or "none").removeprefix("origin "), scene.why.reason.value


def test_the_tracker_explains_every_step_as_remarked() -> None:
    scenes = list(play(ProgressTracker(ORIGINS)))
    assert [_explained(scene) for scene in scenes] == [
        ("-", "'south'", "never spoke"),
        ("-", "'east'", "never spoke"),
        ("12:01", "'north'", "slowest"),
        ("12:02", "'south'", "slowest"),
        ("12:02", "'south'", "gap"),
        ("12:02", "'south'", "gap"),
        ("12:06", "'north'", "slowest"),
        ("12:06", "'north'", "slowest"),
        ("12:07", "'east'", "slowest"),
        ("12:09", "'south'", "slowest"),
        ("12:09", "'north'", "slowest"),
        ("12:09", "'south'", "slowest"),
        ("12:12", "'east'", "slowest"),
        ("12:15", "'north'", "slowest"),
        ("12:15", "none", "done"),
    ]
    assert [scene.duplicate for scene in scenes].index(True) == 7
    assert scenes[-1].why.reason is Reason.DONE


def test_the_command_prints_every_step() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "slackwater.demo.console_scenario"], capture_output=True, text=True, check=True
    )
    assert not ran.stderr
    assert ran.stdout.count("watermark") >= len(STORY)
    assert "gap at sequence 2" in ran.stdout
