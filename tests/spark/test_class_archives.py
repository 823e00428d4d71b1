"""The first JVM of an installation writes an archive of its classes, and the next one starts with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slackwater.spark.class_archive import VARIABLE

pytestmark = [pytest.mark.spark, pytest.mark.proof]

PROGRAM = """
import sys

import slackwater as sw

spark = sw.session(master="local[1]", partitions=1, config={"spark.ui.enabled": "false"})
jvm = spark.sparkContext._jvm
options = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
archives = (one for one in options if "Classes" in one or "Archive" in one)
print(spark.range(3).count(), "slackwater.spark.api.stream" in sys.modules, *archives)
"""


def run(archives: Path) -> subprocess.CompletedProcess[str]:
    """A program with a session; returns after its JVM has ended as well, which holds the same pipes."""
    environment = {**os.environ, VARIABLE: str(archives)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )


def test_the_second_jvm_uses_the_archive_of_the_first(tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    first, second = run(archives), run(archives)
    (archive,) = archives.glob("*.jsa")
    assert archive.stat().st_size > 10_000_000
    assert first.stdout.split()[:2] == second.stdout.split()[:2] == ["3", "True"]
    assert "-XX:ArchiveClassesAtExit=" in first.stdout
    assert f"-XX:SharedArchiveFile={archive}" in second.stdout
    assert "cds" not in first.stdout + first.stderr + second.stdout + second.stderr
    assert list(archives.glob("*.new")) == []
