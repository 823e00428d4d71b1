"""The operators give the same results with several Polars threads as with one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.sampling import sampled

PROGRAM = """
import polars as pl
from slackwater.windows import WindowedOperator, count, every, sessions

operator = WindowedOperator(
    window=sessions("10 seconds"), key=("key",), event_time="ts", accumulations={"n": count()},
    trigger=every(count=1), mode="accumulating_and_retracting", allowed_lateness=None,
)
rows = pl.DataFrame({"key": pl.int_range(20_000, eager=True), "ts": pl.int_range(20_000, eager=True)})
state, output = operator.step(operator.initial_state(), rows, {"default": 0}, now=0)
print(output.panes.height, operator.step(state, None, {"default": 10**9})[1].panes.height)
"""


@pytest.mark.search
@pytest.mark.parametrize("threads", sampled(["1", "4"], keep=["4"]))
def test_sessions_that_are_never_purged(threads: str) -> None:
    environment = {**os.environ, "POLARS_MAX_THREADS": threads}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert (run.stdout.split(), run.stderr) == (["20000", "0"], "")
