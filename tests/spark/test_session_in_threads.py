"""Threads that create a session at the same time get the same session, in one JVM."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.proof]

PROGRAM = """
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import slackwater as sw

together = Barrier(4)

def create(_):
    together.wait()
    return sw.session(master="local[1]", partitions=1, config={"spark.ui.enabled": "false"})

with ThreadPoolExecutor(4) as pool:
    sessions = list(pool.map(create, range(4)))
print(len(set(map(id, sessions))), sessions[0].range(3).count())
print(os.environ["PYSPARK_PYTHON"] == sys.executable, "SPARK_SUBMIT_OPTS" in os.environ)
"""


def recorded_java(folder: Path, calls: Path) -> Path:
    """A home of Java whose program records its calls."""
    real = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else None
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho "$*" >> {calls}\nexec {real or shutil.which("java")} "$@"\n')
    java.chmod(0o755)
    return folder


def test_threads_share_one_jvm_and_one_session(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    environment = {**os.environ, "JAVA_HOME": str(recorded_java(tmp_path / "java", calls))}
    for name in ("PYSPARK_PYTHON", "SPARK_SUBMIT_OPTS"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    started = [call for call in calls.read_text().splitlines() if "org.apache.spark.launcher.Main" in call]
    assert len(started) == 1
    assert done.stdout.splitlines() == ["1 3", "True False"], "and leave the environment as one thread does"
