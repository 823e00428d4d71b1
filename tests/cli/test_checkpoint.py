"""The commands for checkpoints; their results are tested in tests/spark/test_checkpoints.py."""

from __future__ import annotations

import subprocess
import sys


def test_commands_that_need_no_spark_do_not_import_it() -> None:
    program = "import sys, slackwater.cli.app; print(sorted({'pyspark', 'polars'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
