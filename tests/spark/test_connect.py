"""The API over Spark Connect, in a separate process: a process can have sessions of one kind only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slackwater.errors import InvalidArgument
from slackwater.spark.session import session
from slackwater.spark.versions import PYSPARK

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


@pytest.mark.proof
def test_the_api_over_spark_connect(tmp_path: Path) -> None:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        name: value
        for name, value in os.environ.items()
        # Settings that a session in this process has made for Spark, and those of pytest.
        if not name.startswith(("PYTEST_", "PYSPARK_", "SPARK_", "_PYSPARK"))
    }
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    cases = ROOT / "tests" / "spark" / "connect_cases.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--basetemp", str(tmp_path / "of")]
    if PYSPARK < (4, 3):  # the thread of its listeners ends with an exception when the session is stopped
        command += ["-W", "default"]
    ran = subprocess.run(
        [*command, str(cases)], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout


def test_two_kinds_of_session_exclude_each_other() -> None:
    with pytest.raises(
        InvalidArgument, match=r"remote = 'sc://server': cannot be combined with master='local\[2\]'"
    ):
        session(master="local[2]", remote="sc://server")
