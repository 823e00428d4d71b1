"""A long run of random pipelines: `python -m tests.property.pipeline_soak --cases 100000`.

Cases come in families, whose pipelines differ in their last operator: the operators before it run once for
all of them. Nearly all of the time goes into the calls of Polars that each step of an operator makes,
whatever the number of its rows, so a family takes a fraction of the time of its cases one by one. The result
of every operator is compared with the batch result, also of those before the last one.

Each family has its own seed, made from the seed of the run and its number, so that `--first` takes up a run
where it was left, and runs any family again. Stops at the first difference, made as small as possible.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from tests.model.pipelines import comparable, folded, truth
from tests.property.numbered_search import search
from tests.strategies.pipelines import Case, Limits, adds_up, case, family
from tests.strategies.windows import RandomSource
from tests.support.pipeline_nodes import (
    Called,
    Cogrouped,
    Deduplicated,
    Filtered,
    Joined,
    Mapped,
    Node,
    Operator,
    Rekeyed,
    Windowed,
    base,
)
from tests.support.pipelines import Pipeline, Stage

SHORT, LONG = Limits(operators=3, batches=2, rows=8), Limits(operators=5, batches=5)
FAMILY: Final = 12
"""The number of cases of a family."""
Family = tuple[Case, ...]


def numbered_case(seed: int, number: int) -> Case:
    """The case of that number: four short ones, then a long one."""
    return case(RandomSource(Random(f"{seed}/{number}")), LONG if number % 5 == 4 else SHORT)


def numbered_family(seed: int, number: int) -> Family:
    """The family that the case of that number is in: four with short cases, then one with long ones."""
    index = number // FAMILY
    source = RandomSource(Random(f"{seed}/family {index}"))
    return tuple(family(source, LONG if index % 5 == 4 else SHORT, FAMILY))


def difference(*made: Case) -> str | None:
    """The rows that an operator of a family has too many or too few of, or lost; None if there are none."""
    batches = made[0].batches
    pipeline = Pipeline(*(each.last for each in made), folds=made[0].folds)
    panes: dict[Operator, list[dict[str, Any]]] = {node: [] for node in pipeline.stages}
    for number, batch in enumerate((*batches, {})):
        for node, rows in pipeline.step(batch, 2 * number, end=number == len(batches)).items():
            panes[node] += rows.rows(named=True)
    return "\n".join(_problems(pipeline, panes)) or None


def _problems(pipeline: Pipeline, panes: Mapping[Operator, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    late: set[Operator] = set()
    for node, stage in pipeline.stages.items():
        if _may_be_late(node, stage, late):
            late.add(node)
            continue
        found = comparable(folded(panes[node], node), node)
        expected = comparable(Counter(truth(pipeline, node)), node)
        problems = [f"missing {one}" for one in (expected - found).elements()]
        problems += [f"unexpected {one}" for one in (found - expected).elements()]
        problems += [f"retracted but never emitted: {one}" for one, count in found.items() if count < 0]
        if stage.reported != stage.dropped:
            problems.append(f"{stage.reported} rows were dropped instead of {stage.dropped}")
        yield from (f"{problem}, by {node}" for problem in problems)


def _may_be_late(node: Operator, stage: Stage, late: Collection[Operator]) -> bool:
    """Whether an operator has counted rows as late that come from an operator before it.

    That is right only for rows of an input that was idle while the others went on (C5), and for operators
    after that one: without them, its results are not known.
    """
    overtaken = stage.overtaken and stage.reported > stage.dropped
    return overtaken or any(base(each) in late for each in node.inputs)


def failure(made: Family) -> str | None:
    """The difference, or the error that a pipeline raises."""
    try:
        return difference(*made)
    except Exception as error:  # any error is a finding
        return f"{type(error).__name__}: {error}"


def smallest(made: Family, fails: Callable[[Family], bool]) -> Family:
    """The first case of the family that fails alone, as small as possible; or the family if none does."""
    alone = next((each for each in made if fails((each,))), None)
    return made if alone is None else (shrink(alone, lambda candidate: fails((candidate,))),)


def shrink(made: Case, fails: Callable[[Case], bool], rounds: int = 300) -> Case:
    """The smallest case found by trying one simplification after the other."""
    for _ in range(rounds):
        smaller = next((candidate for candidate in _simpler(made) if fails(candidate)), None)
        if smaller is None:
            break
        made = smaller
    return made


def _simpler(made: Case) -> Iterator[Case]:
    for last in _simpler_nodes(made.last):
        if isinstance(last, Operator) and adds_up(last):
            yield replace(made, last=last)
    for index, batch in enumerate(made.batches):
        yield replace(made, batches=made.batches[:index] + made.batches[index + 1 :])
        for name, rows in batch.items():
            for row in range(len(rows)):
                smaller = {**batch, name: rows[:row] + rows[row + 1 :]}
                yield replace(made, batches=(*made.batches[:index], smaller, *made.batches[index + 1 :]))
    if made.folds:
        yield replace(made, folds=False)


def _simpler_nodes(node: Node) -> Iterator[Node]:
    """The node without one of its steps, or one of its inputs alone."""
    match node:
        case Filtered() | Mapped() | Rekeyed() | Called() | Deduplicated():
            yield node.input
            yield from (replace(node, input=inner) for inner in _simpler_nodes(node.input))
        case Windowed(inputs=inputs):
            yield from inputs
            if len(inputs) > 1:
                yield from (replace(node, inputs=(each,)) for each in inputs)
            for index, each in enumerate(inputs):
                for inner in _simpler_nodes(each):
                    yield replace(node, inputs=(*inputs[:index], inner, *inputs[index + 1 :]))
        case Cogrouped() | Joined():
            yield from node.inputs
            yield from (replace(node, left=inner) for inner in _simpler_nodes(node.left))
            yield from (replace(node, right=inner) for inner in _simpler_nodes(node.right))


def _described(made: Family) -> str:
    return "\n".join(map(str, (*(each.last for each in made), *made[0].batches)))


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; 1 at the first difference."""
    return search(
        arguments,
        description="A long run of random pipelines.",
        case=numbered_family,
        at_once=FAMILY,
        difference=failure,
        shrink=smallest,
        describe=_described,
    )


if __name__ == "__main__":
    sys.exit(main())
