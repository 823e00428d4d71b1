"""The program that is killed: runs two jobs side by side, day after day, in one session of Spark.

``python -m tests.ingest.days FOLDER JOB=STORE …``. The file ``day`` says at what time the jobs are run
next, and is the last word before the end if it says ``stop``. Every step of every job is line, a line each,
and the file ``hold`` names a step of a job at which that stands still, so that it dies there and nowhere
else. The jobs are run as the command runs them, which would start a session for each.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from slackwater.ingest import Plan, WorkUnit, load_job
from slackwater.ingest.extraction import Extraction
from slackwater.ingest.ledger.run_ledger import Outcome
from slackwater.ingest.runner import Approve, Watcher, run_job
from slackwater.ingest.targets.replacement import Written
from slackwater.metadata.store import open_store
from slackwater.spark.session import session
from slackwater.time import instant
from tests.chaos.settings import short_lived


@dataclass(frozen=True)
class Steps(Watcher):
    """Reports the steps of one job, a line each."""

    folder: Path
    job: str

    def report(self, step: str) -> None:
        line = f"{step} {self.job}"
        say(line)
        hold = self.folder / "hold"
        if hold.exists() and hold.read_text(encoding="utf-8") == line:
            say(f"held {self.job}")
            time.sleep(600)

    def planned(self, made: Plan) -> None:
        self.report("planned")

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        self.report("recorded")
        if outcome.error is not None:
            say(f"failed {self.job}: {outcome.error}")


@dataclass(frozen=True)
class ReportedExtraction:
    """Runs a unit, and reports when it starts to read, when it starts to write, and when it is written."""

    extraction: Extraction
    steps: Steps

    def __call__(self, work: WorkUnit, approve: Approve, /) -> Written:
        def approved(amount: Written, number: int | None = None) -> None:
            approve(amount, number)
            self.steps.report("writing")

        self.steps.report("reading")
        written = self.extraction(work, approved)
        self.steps.report("written")
        return written


def run(spark: SparkSession, folder: Path, now: str, name: str, url: str) -> bool:
    steps = Steps(folder, name)
    job = load_job(folder / f"{name}.yaml")
    with open_store(url, create=True) as store:
        extraction = ReportedExtraction(Extraction(job, spark), steps)
        report = run_job(job, store, extraction, now=instant(now), watcher=steps)
    steps.report("over")
    return report.succeeded


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(folder: Path, stores: dict[str, str]) -> None:
    config = short_lived("tests.ingest.preloaded")
    spark = session("sixty days", master="local[2]", partitions=1, config=config)
    spark.sparkContext.setLogLevel("OFF")
    say("ready")
    done = ""
    with ThreadPoolExecutor(len(stores)) as pool:
        while (day := (folder / "day").read_text(encoding="utf-8")) != "stop":
            if day in ("", done):
                time.sleep(0.005)
                continue
            say(f"day {day}")
            now = day.split(" ")[0]
            ends = [pool.submit(run, spark, folder, now, *job) for job in stores.items()]
            succeeded = [end.result() for end in ends]
            say(f"done {day} {'well' if all(succeeded) else 'badly'}")
            done = day
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(argument.split("=", 1) for argument in sys.argv[2:]))
