"""A driver that is killed again and again: every sink shows the truth, and never states more than it has."""

from __future__ import annotations

import pickle
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from slackwater.progress.completeness import Completeness
from slackwater.streams.spark.stream_sink import noted_time
from slackwater.time import END_OF_TIME, SECOND
from tests.chaos.queries import entries
from tests.chaos.sinks import SINKS, Observation, Sinks
from tests.chaos.workload import Workload, workload
from tests.spark.oracle import Truth, truth_of
from tests.spark.postgres import running_server
from tests.spark.running import expected
from tests.support.programs import Program

KILLS: Final = 4
"""Each takes half a minute, because six queries start again."""
AHEAD: Final = 4
"""The number of unread files whenever a driver starts."""
SEED: Final = 20_240_606


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.proof
def test_every_sink_of_a_killed_driver_shows_the_truth(tmp_path: Path) -> None:
    source = random.Random(SEED)
    with running_server() as server:
        sinks = Sinks(tmp_path, server.create_database("killed"))
        sinks.create_stream()
        classes = tmp_path / "classes.jsa"
        with driver(sinks, 1, "goes-on", "first", f"ArchiveClassesAtExit={classes}") as first:
            first.finish()
        sharing = f"SharedArchiveFile={classes}"
        repeated = Counter[str]()
        batches = 1
        arguments = [str(tmp_path), sinks.url, str(tmp_path / "observed"), *SINKS]
        command = [sys.executable, "-m", "tests.chaos.sinks_observer", *arguments]
        with Program(command, tmp_path / "observer.log", sinks.catalog) as observer:
            for attempt in range(KILLS):
                batches = max(committed(sinks, sink) for sink in SINKS) + AHEAD
                with driver(sinks, batches, "goes-on", f"driver-{attempt:02}", sharing) as program:
                    program.wait_until(lambda program=program: "started" in program.said())  # type: ignore[misc]
                    # By progress, not by time: a slow machine would kill drivers that have done nothing.
                    enough = all_committed(sinks) + source.randrange(1, 2 * len(SINKS))
                    program.wait_until(lambda enough=enough: all_committed(sinks) >= enough)  # type: ignore[misc]
                    time.sleep(source.uniform(0.0, 0.5))
                    program.kill()
                repeated.update(sink for sink in SINKS if planned(sinks, sink) > committed(sinks, sink))
            with driver(sinks, batches, "ends", "last", sharing) as last:
                last.finish()
            assert observer.is_running(), observer.said()
            time.sleep(3)  # it reads every sink once more
            assert observer.is_running(), observer.said()
    load = workload(batches, seed=SEED)
    truth = load.expected_truth("sessions")
    seen = list(observations(tmp_path / "observed"))
    for sink in SINKS:
        mine = [one for one in seen if one.sink == sink]
        assert mine[-1].rows == truth, sink
        assert mine[-1].complete_until in (END_OF_TIME, noted_time(Completeness(END_OF_TIME))), sink
        assert len({one.complete_until for one in mine}) > KILLS // 2, sink
    # kills between the start and the commit of a batch, which is then repeated
    assert repeated.total() >= KILLS, repeated
    check_statements(seen, load)


def check_statements(seen: list[Observation], load: Workload) -> None:
    """Assert that each observation is the truth after some batch, and states no more than its watermark."""
    steps = expected(load.scenario("sessions"), [[batch] for batch in load.batches])
    truths = [truth_of(steps[:count]) for count in range(len(steps) + 1)]
    watermarks = [None, *(batch.watermark for batch in load.batches)]
    limits = [-(2**63) if at is None else at * SECOND for at in watermarks] + [END_OF_TIME]
    for one in seen:
        matching = [limit for limit, rows in zip(limits, truths, strict=True) if rows == one.rows]
        assert matching, f"{one.sink} showed rows that are the truth after no batch"
        if one.complete_until is not None:
            assert one.complete_until <= max(matching), f"{one.sink} stated too much: {one}"
        if one.final_until is not None:
            assert until(one.rows, one.final_until) == until(truths[-1], one.final_until), one.sink


def until(rows: Truth, time: int) -> Truth:
    """The rows of windows that end at or before a time."""
    return {group: values for group, values in rows.items() if group[-1] <= time}


def planned(sinks: Sinks, sink: str) -> int:
    return entries(sinks.folder / "checkpoints" / sink / "offsets")


def committed(sinks: Sinks, sink: str) -> int:
    return entries(sinks.folder / "checkpoints" / sink / "commits")


def all_committed(sinks: Sinks) -> int:
    return sum(committed(sinks, sink) for sink in SINKS)


def observations(path: Path) -> Iterator[Observation]:
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)  # noqa: S301 - written by the observer of this test
            except EOFError:
                return


def driver(sinks: Sinks, batches: int, end: str, name: str, option: str) -> Program:
    """A driver; class data sharing in its JVM halves the time of a start."""
    workload(batches, seed=SEED).write(sinks.folder / "in")
    arguments = [str(sinks.folder), sinks.url, str(batches), str(SEED), end, *SINKS]
    return Program(
        [sys.executable, "-m", "tests.chaos.sinks_driver", *arguments],
        sinks.folder / f"{name}.log",
        {**sinks.catalog, "SPARK_SUBMIT_OPTS": f"-XX:{option}"},
    )
