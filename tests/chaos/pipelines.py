"""Composed pipelines to run while their driver is killed: unions, chains, joins and async functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow.parquet as pq

from tests.chaos.queries import entries
from tests.chaos.workload import committed_files
from tests.model.pipelines import comparable, folded
from tests.spark.test_random_pipelines import expected, is_keyed, operators, pane
from tests.strategies.pipelines import Case, Limits, case
from tests.strategies.windows import RandomSource
from tests.support.pipeline_nodes import (
    Called,
    Cogrouped,
    Feed,
    Filtered,
    Joined,
    Mapped,
    Node,
    Rekeyed,
    Windowed,
)

BATCHES: Final = 20
LIMITS: Final = Limits(operators=3, batches=BATCHES, least_batches=BATCHES)
KINDS: Final = ("union", "chain", "join", "async")


@dataclass(frozen=True)
class Composed:
    """A query of a random pipeline into Parquet files."""

    folder: Path
    number: int

    @property
    def made(self) -> Case:
        return numbered(self.number)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def planned(self) -> int:
        """The number of batches that were started."""
        return entries(self.checkpoint / "offsets")

    def committed(self) -> int:
        """The number of batches that were committed."""
        return entries(self.checkpoint / "commits")

    def remaining(self) -> int:
        """The number of batches that are not committed."""
        return len(self.made.batches) + 1 - self.committed()

    def check(self) -> None:
        """Assert that the files fold to the batch result."""
        made = self.made
        rows = [row for file in committed_files(self.output) for row in pq.read_table(file).to_pylist()]
        panes: list[dict[str, Any]] = [pane(_in_utc(row), made.last) for row in rows]
        found, truth = comparable(folded(panes, made.last), made.last), comparable(expected(made), made.last)
        assert truth, self.number
        assert found == truth, (self.number, found - truth, truth - found)


def _in_utc(row: dict[str, Any]) -> dict[str, Any]:
    """Spark files return UTC without a time zone."""
    window = {
        bound: None if moment is None else moment.to_pydatetime().replace(tzinfo=UTC)
        for bound, moment in row["window"].items()
    }
    return {**row, "window": window}


def numbered(number: int) -> Case:
    """The case of that number."""
    return case(RandomSource(Random(f"killed/{number}")), LIMITS)


def kinds(node: Node) -> set[str]:
    """What a pipeline is composed of."""
    match node:
        case Feed():
            return set()
        case Filtered() | Mapped() | Rekeyed():
            return kinds(node.input)
        case Called():
            return {"async"} | kinds(node.input)
    own = {"join"} if isinstance(node, Joined) else set[str]()
    if isinstance(node, Windowed):
        own = {"union"} if len(node.inputs) > 1 else set()
        own |= {"chain"} if any(operators(each) for each in node.inputs) else set()
    return own.union(*map(kinds, node.inputs))


def chosen() -> dict[str, int]:
    """For each kind the first pipeline that has it, in many batches, and panes of a key at the end."""
    found: dict[str, int] = {}
    number = 0
    while len(found) < len(KINDS):
        made = numbered(number)
        new = [kind for kind in KINDS if kind in kinds(made.last) and kind not in found]
        ends_in_panes = isinstance(made.last, Windowed | Cogrouped) and is_keyed(made.last)
        if new and ends_in_panes and len(expected(made)) >= BATCHES // 2:
            found[new[0]] = number
        number += 1
    return found
