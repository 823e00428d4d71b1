"""What a user sees on the console: no chatter of workers, no tracebacks of broken pipes, but real errors."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.proof]

PROGRAM = """
import sys, time
import slackwater as sw

folder, ending = sys.argv[1:]
spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
bids = spark.sql("select timestamp_seconds(id) as at, id % 3 as auction, id as price from range(5000)")

def counts(rows, fail=False):
    stream = sw.stream(rows, event_time="at", watermark=sw.lag("5 seconds")).key_by("auction")
    if fail:
        stream = stream.map_async(broken, "auction bigint")
    return stream.window(sw.tumbling("10 seconds")).agg(bids=sw.count("*"))

async def broken(row):
    raise ValueError("the service is down")

def started(rows, name, **how):
    writer = rows.writeStream.format("memory").queryName(name)
    return writer.option("checkpointLocation", f"{folder}/{name}").trigger(**how).start()

counts(bids).to_df(flat=True).show(1)
counts(bids).to_df().take(1)
bids.write.parquet(f"{folder}/in")
files = spark.readStream.schema(bids.schema).parquet(f"{folder}/in")
started(counts(files).to_df(flush=True), "available", availableNow=True).awaitTermination()
running = started(counts(files).to_df(), "running", processingTime="0 seconds")
running.processAllAvailable()
running.stop()
try:
    started(counts(files, fail=True).to_df(), "failed", availableNow=True).awaitTermination()
except Exception as error:
    print("failed:", "the service is down" in str(error), "auction=" in str(error))
print("ready", flush=True)
if ending == "interrupt":
    started(counts(files).to_df(), "waiting", processingTime="0 seconds").awaitTermination()
"""


@pytest.mark.parametrize("ending", ["end", "interrupt"])
def test_the_console_shows_no_lines_that_only_look_like_errors(tmp_path: Path, ending: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), ending]
    with (
        (tmp_path / "stderr").open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            lines = []
            while (line := process.stdout.readline()) and not line.startswith("ready"):
                lines.append(line)
            assert "failed: True True\n" in lines
            if ending == "interrupt":
                time.sleep(5)  # it is in awaitTermination by then, or about to be
                process.send_signal(signal.SIGINT)
            process.wait(timeout=120)
        finally:
            process.kill()
    shown = (tmp_path / "stderr").read_text()
    assert "TransformWithStateInPandas Python worker" not in shown
    assert "BrokenPipeError" not in shown
    assert "the service is down" in shown  # the errors of a failed query are in Spark's log
