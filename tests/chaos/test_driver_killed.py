"""A driver that is killed with SIGKILL at random points again and again loses and duplicates no row."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.queries import Query
from tests.chaos.workload import PIPELINES, workload
from tests.spark.postgres import running_server
from tests.support.programs import Program

KILLS: Final = 20
ATTEMPTS: Final = 40
AHEAD: Final = 8
"""The number of unread files whenever a driver starts."""
SEED: Final = 20_240_101
QUERIES: Final = ("files-fixed", "table-sessions")
AIMS: Final = ("startup", "startup", "batch", "files", "table")


@dataclass
class Strikes:
    """The kills so far, and the state of the queries at each of them."""

    queries: Sequence[Query]
    aims: Counter[str] = field(default_factory=Counter)
    replayed: set[tuple[str, int]] = field(default_factory=set)
    """Batches that were started and not committed, by query: the next driver has to repeat them."""
    repeated: set[tuple[str, int]] = field(default_factory=set)
    """The batches among these that were in the sink already: it will get them a second time."""
    processes: int = 0

    def strike(self, driver: Program, aim: str) -> None:
        self.processes += driver.kill()
        self.aims[aim] += 1
        for query in self.queries:
            batch = query.committed()
            if query.planned() > batch:
                self.replayed.add((query.name, batch))
                if query.applied() > batch:
                    self.repeated.add((query.name, batch))

    @property
    def enough(self) -> bool:
        """Assert that the kills hit every kind of moment."""
        return (
            self.aims.total() >= KILLS
            and self.aims["startup"] > 0
            and len(self.replayed) >= KILLS // 2
            and {name for name, _ in self.repeated} == set(QUERIES)
        )


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.proof
def test_a_driver_killed_twenty_times_gives_the_result_of_the_model(tmp_path: Path) -> None:
    source = random.Random(SEED)
    with running_server() as server, tempfile.TemporaryDirectory() as place:
        url = server.create_database("killed")
        running = [Query(tmp_path, url, name) for name in QUERIES]
        strikes = Strikes(running)
        classes = Path(place) / "classes.jsa"
        with driver(
            running, 2, "goes-on", tmp_path / "first.log", f"ArchiveClassesAtExit={classes}"
        ) as first:
            first.finish()
        batches, startup, aims = 2, 4.0, list[str]()
        for attempt in range(ATTEMPTS):
            if strikes.enough:
                break
            batches = max(query.committed() for query in running) + AHEAD
            aims = aims or source.sample(AIMS, len(AIMS))
            aim = aims.pop()
            log = tmp_path / f"driver-{attempt:02}.log"
            with driver(running, batches, "goes-on", log, f"SharedArchiveFile={classes}") as program:
                if aim == "startup":
                    time.sleep(source.uniform(0.3, 1.5 * startup))
                else:
                    began = time.monotonic()
                    program.wait_until(lambda program=program: "started" in program.said())  # type: ignore[misc]
                    startup = time.monotonic() - began
                    wait_for(aim, program, running, source)
                if program.is_running():
                    strikes.strike(program, aim)
                else:
                    program.finish()  # successfully, because it reached the end of its files too soon
        assert strikes.enough, strikes
        with driver(running, batches, "ends", tmp_path / "last.log", f"SharedArchiveFile={classes}") as last:
            last.finish()
        for query in running:
            query.check(workload(batches, seed=SEED))


def driver(running: Sequence[Query], batches: int, end: str, log: Path, option: str) -> Program:
    """A driver; class data sharing in its JVM halves the time of a start."""
    folder, url = running[0].folder, running[0].url
    workload(batches, seed=SEED).write(folder / "in")
    arguments = [str(folder), url, "local[2]", str(batches), str(SEED), end, *QUERIES]
    return Program(
        [sys.executable, "-m", "tests.chaos.driver", *arguments], log, {"SPARK_SUBMIT_OPTS": f"-XX:{option}"}
    )


def wait_for(aim: str, program: Program, running: Sequence[Query], source: random.Random) -> None:
    """Wait for the moment of the kill, or for the end of the driver."""
    targets = [query for query in running if query.sink == aim]
    # every driver makes progress, so that the stream ends
    slowest = min(targets or running, key=Query.committed)
    goal = slowest.committed() + 1
    program.wait_until(lambda: not program.is_running() or slowest.committed() >= goal)
    if targets:
        # between the commit of the sink and that of the batch
        program.wait_until(
            lambda: not program.is_running() or slowest.planned() > slowest.committed() < slowest.applied(),
            interval=0.002,
        )
    else:
        time.sleep(source.uniform(0.0, 1.0))


def test_the_workload_has_every_kind_of_pane() -> None:
    load = workload(64, seed=SEED)
    for pipeline in PIPELINES:
        panes = load.expected_panes(pipeline)
        for part in ("'EARLY'", "'ON_TIME'", "'LATE'"):
            assert sum(part in pane for pane in panes) > 20, (pipeline, part)
        assert sum(pane.endswith("True)") for pane in panes) > 20, pipeline
        assert len(load.expected_truth(pipeline)) > 50
