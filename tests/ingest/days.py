"""The program that is killed: runs two jobs side by side, day after day, in one session of Spark.

``python -m tests.ingest.days FOLDER JOB=STORE …``. The file ``day`` says at what time the jobs are run
next, and is the last word before the end if it says ``stop``. Every step of every job is told, a line each,
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
    """Tells the steps of one job."""

    folder: Path
    job: str

    def tell(self, step: str) -> None:
        told = f"{step} {self.job}"
        say(told)
        hold = self.folder / "hold"
        if hold.exists() and hold.read_text(encoding="utf-8") == told:
            say(f"held {self.job}")
            time.sleep(600)

    def planned(self, made: Plan) -> None:
        self.tell("planned")

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        self.tell("recorded")
        if outcome.error is not None:
            say(f"failed {self.job}: {outcome.error}")


@dataclass(frozen=True)
class Told:
    """Runs a unit, and tells when it begins to read, to write, and when the target shows it."""

    extraction: Extraction
    steps: Steps

    def __call__(self, work: WorkUnit, approve: Approve, /) -> Written:
        def approved(amount: Written, number: int | None = None) -> None:
            approve(amount, number)
            self.steps.tell("writing")

        self.steps.tell("reading")
        written = self.extraction(work, approved)
        self.steps.tell("written")
        return written


def run(spark: SparkSession, folder: Path, now: str, name: str, url: str) -> bool:
    steps = Steps(folder, name)
    job = load_job(folder / f"{name}.yaml")
    with open_store(url) as store:
        told = Told(Extraction(job, spark), steps)
        report = run_job(job, store, told, now=instant(now), watcher=steps)
    steps.tell("over")
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
