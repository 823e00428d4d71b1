"""Unions, chains, joins and async functions, with their driver killed in many different batches."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.pipelines import KINDS, Composed, chosen, kinds
from tests.spark.test_random_pipelines import write_feeds
from tests.support.programs import Program

pytestmark = pytest.mark.proof

KILLS: Final = 7
"""The number of kills of each driver."""
ATTEMPTS: Final = 2 * KILLS
TOO_SLOW: Final = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, which a busy machine may exceed."""
SEED: Final = 77


def test_the_pipelines_have_every_kind_of_composition() -> None:
    numbers = chosen()
    assert set(numbers) == set(KINDS)
    for kind, number in numbers.items():
        assert kind in kinds(Composed(Path(), number).made.last)


@pytest.mark.spark
@pytest.mark.parametrize("pair", [KINDS[:2], KINDS[2:]], ids="-".join)
def test_pipelines_whose_driver_is_killed_in_many_batches_give_the_batch_result(
    tmp_path: Path, pair: tuple[str, str]
) -> None:
    source = random.Random(SEED)
    numbers = chosen()
    queries = [Composed(tmp_path / kind, numbers[kind]) for kind in pair]
    for query in queries:
        write_feeds(query.folder / "in", query.made)
    interrupted = set[tuple[int, int]]()
    kills = 0
    for attempt in range(ATTEMPTS):
        if kills == KILLS:
            break
        with driver(queries, tmp_path / f"{attempt:02}.log") as program:
            # Every driver makes progress; then any query may be stopped in the middle of its next batch.
            target = source.choice([query for query in queries if query.remaining() > 1])
            wait_for_progress(program, target)
            if not program.is_running():
                assert TOO_SLOW in program.said(), program.said()[-8000:]
                continue
            program.kill()
        kills += 1
        interrupted |= {
            (query.number, query.committed()) for query in queries if query.planned() > query.committed()
        }
    assert kills == KILLS
    assert len(interrupted) >= KILLS
    assert len({batch for _, batch in interrupted}) >= KILLS // 2
    with driver(queries, tmp_path / "last.log") as last:
        last.finish()
    for query in queries:
        assert query.committed() == len(query.made.batches) + 1
        query.check()


def wait_for_progress(program: Program, query: Composed) -> None:
    """Wait until the query has committed a batch and is in the next one, or the driver has ended."""
    goal = query.committed() + 1
    program.wait_until(
        lambda: not program.is_running() or query.planned() > query.committed() >= goal, interval=0.005
    )


def driver(queries: Sequence[Composed], log: Path) -> Program:
    arguments = [text for query in queries for text in (str(query.folder), str(query.number))]
    return Program([sys.executable, "-m", "tests.chaos.pipelines_driver", *arguments], log)
