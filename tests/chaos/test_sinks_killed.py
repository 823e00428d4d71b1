"""A driver that is killed again and again: each sink shows the truth, and never states more than it has.

A run of `make proof` kills a driver `KILLS` times per sink. ``SINK_KILLS=20 make test
ARGS="-m proof tests/chaos/test_sinks_killed.py"`` kills it more often.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import pytest

from slackwater.progress.completeness import Completeness
from slackwater.streams.spark.stream_sink import noted_time
from slackwater.time import END_OF_TIME, SECOND
from tests.chaos.sinks import SINKS, Observation, Sink
from tests.chaos.workload import Workload, workload
from tests.spark.oracle import Truth, truth_of
from tests.spark.postgres import running_server
from tests.spark.running import expected
from tests.support.programs import Program

KILLS: Final = 2
"""The kills per sink; a variable asks for more."""
AHEAD: Final = 5
"""The number of unread files whenever a driver starts."""
ATTEMPTS: Final = 3
"""How often a driver is started per kill, because it may reach the end of its files before the kill."""
SEED: Final = 20_240_606
AIMS: Final = ("batch", "sink", "startup")


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the classes of a driver's JVM are shared, which halves the time of a start."""
    return tmp_path_factory.mktemp("classes") / "classes.jsa"


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.proof
@pytest.mark.parametrize("kind", SINKS)
def test_a_sink_of_a_killed_driver_shows_the_truth(
    kind: str, tmp_path: Path, classes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = int(os.environ.get("SINK_KILLS", KILLS))
    source = random.Random(f"{SEED} {kind}")
    aims, repeated = Counter[str](), 0
    with running_server() if kind == "postgresql" else nullcontext() as server:
        sink = Sink(kind, tmp_path, "" if server is None else server.create_database("killed"))
        for name, value in sink.environment.items():
            monkeypatch.setenv(name, value)  # this process reads the sink as well
        sink.create()
        command = [sys.executable, "-m", "tests.chaos.sinks_observer", kind, str(tmp_path), sink.url]
        with Program(
            [*command, str(tmp_path / "observed")], tmp_path / "observer.log", sink.environment
        ) as observer:
            batches = AHEAD
            for attempt in range(kills * ATTEMPTS):
                if aims.total() >= kills:
                    break
                batches = sink.committed() + AHEAD
                aim = AIMS[attempt % (len(AIMS) if kills > KILLS else len(AIMS) - 1)]
                with driver(sink, batches, "goes-on", f"driver-{attempt:02}", classes) as program:
                    wait_for(aim, program, sink, source)
                    if program.is_running():
                        program.kill()
                        aims[aim] += 1
                        repeated += sink.planned() > sink.committed()
                    else:
                        program.finish()  # successfully, because it reached the end of its files too soon
            with driver(sink, batches, "ends", "last", classes) as last:
                last.finish()
            final = sink.observe()
            observer.wait_until(lambda: list(observations(tmp_path / "observed"))[-1:] == [final])
    assert aims.total() == kills, aims
    assert repeated >= kills // 2, "kills between the start and the commit of a batch, which is then repeated"
    load = workload(batches, seed=SEED)
    assert final.rows == load.expected_truth("sessions")
    assert final.complete_until in (END_OF_TIME, noted_time(Completeness(END_OF_TIME)))
    seen = list(observations(tmp_path / "observed"))
    stated = {one.complete_until for one in seen}
    # a driver that is killed while it starts states nothing new
    assert len(stated) >= min(kills + 1, batches // 2), "the observer missed what was stated"
    check_statements(seen, load)


def wait_for(aim: str, program: Program, sink: Sink, source: random.Random) -> None:
    """Wait for the moment of the kill, or for the end of the driver."""
    if aim == "startup":
        time.sleep(source.uniform(0.5, 6.0))
        return
    # every driver makes progress, so that the stream ends
    goal = sink.committed() + 1
    program.wait_until(lambda: not program.is_running() or sink.committed() >= goal)
    if aim == "batch":
        program.wait_until(
            lambda: not program.is_running() or sink.planned() > sink.committed(), interval=0.005
        )
        time.sleep(source.uniform(0.0, 0.4))
    else:  # between the commit of the sink and that of the batch
        program.wait_until(
            lambda: not program.is_running() or sink.committed() < sink.applied(), interval=0.002
        )


def check_statements(seen: list[Observation], load: Workload) -> None:
    """Assert that each observation is the truth after some batch, and states no more than its watermark."""
    steps = expected(load.scenario("sessions"), [[batch] for batch in load.batches])
    truths = [truth_of(steps[:count]) for count in range(len(steps) + 1)]
    watermarks = [None, *(batch.watermark for batch in load.batches)]
    limits = [-(2**63) if at is None else at * SECOND for at in watermarks] + [END_OF_TIME]
    for one in seen:
        matching = [limit for limit, rows in zip(limits, truths, strict=True) if rows == one.rows]
        assert matching, f"rows that are the truth after no batch: {one}"
        if one.complete_until is not None:
            assert one.complete_until <= max(matching), f"stated too much: {one}"
        if one.final_until is not None:
            assert until(one.rows, one.final_until) == until(truths[-1], one.final_until), one


def until(rows: Truth, time: int) -> Truth:
    """The rows of windows that end at or before a time."""
    return {group: values for group, values in rows.items() if group[-1] <= time}


def observations(path: Path) -> Iterator[Observation]:
    """What the observer has recorded so far."""
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)  # noqa: S301 - written by the observer of this test
            except (EOFError, pickle.UnpicklingError):  # the last one is being written
                return


def driver(sink: Sink, batches: int, end: str, name: str, classes: Path) -> Program:
    """A driver; the first one that ends by itself stores the classes that the others share."""
    workload(batches, seed=SEED).write(sink.folder / "in")
    arguments = [sink.kind, str(sink.folder), sink.url, str(batches), str(SEED), end]
    sharing = (
        f"-XX:SharedArchiveFile={classes}" if classes.exists() else f"-XX:ArchiveClassesAtExit={classes}"
    )
    return Program(
        [sys.executable, "-m", "tests.chaos.sinks_driver", *arguments],
        sink.folder / f"{name}.log",
        {**sink.environment, "SPARK_SUBMIT_OPTS": sharing},
    )


def test_statements_that_are_not_covered_are_found() -> None:
    load = workload(8, seed=SEED)
    truth = truth_of(expected(load.scenario("sessions"), [[batch] for batch in load.batches])[:4])
    stated = load.batches[3].watermark
    assert stated is not None
    check_statements([Observation(stated * SECOND, None, truth)], load)
    with pytest.raises(AssertionError, match="stated too much"):
        check_statements([Observation(stated * SECOND + 1, None, truth)], load)
    with pytest.raises(AssertionError, match="the truth after no batch"):
        check_statements([Observation(None, None, dict(list(truth.items())[1:]))], load)
