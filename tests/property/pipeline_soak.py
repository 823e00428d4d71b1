"""A long run of random pipelines: `python -m tests.property.pipeline_soak --cases 100000`.

Each case has its own seed, made from the seed of the run and its number, so that `--first` takes up a run
where it was left, and runs any one case again. Stops at the first difference, made as small as possible.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from tests.model.pipelines import comparable, folded, truth
from tests.property.numbered_search import search
from tests.strategies.pipelines import Case, Limits, adds_up, case
from tests.strategies.windows import RandomSource
from tests.support.pipelines import (
    Called,
    Cogrouped,
    Deduplicated,
    Filtered,
    Joined,
    Mapped,
    Node,
    Operator,
    Pipeline,
    Rekeyed,
    Windowed,
)

SHORT, LONG = Limits(operators=3, batches=2, rows=8), Limits(operators=5, batches=5)


def numbered_case(seed: int, number: int) -> Case:
    """The case of that number: four short ones, then a long one."""
    return case(RandomSource(Random(f"{seed}/{number}")), LONG if number % 5 == 4 else SHORT)


def difference(made: Case) -> str | None:
    """The rows that the pipeline has too many or too few of, or lost; None if there are none."""
    pipeline = Pipeline(made.last, folds=made.folds)
    panes: list[dict[str, Any]] = []
    for number, batch in enumerate(made.batches):
        panes += pipeline.step(batch, 2 * number).rows(named=True)
    panes += pipeline.step({}, 2 * len(made.batches), end=True).rows(named=True)
    found, expected = (
        comparable(each, made.last)
        for each in (folded(panes, made.last), Counter(truth(pipeline, made.last)))
    )
    problems = [f"missing {one}" for one in (expected - found).elements()]
    problems += [f"unexpected {one}" for one in (found - expected).elements()]
    problems += [f"retracted but never emitted: {one}" for one, count in found.items() if count < 0]
    problems += [
        f"{stage.reported} rows were dropped instead of {stage.dropped} by {node}"
        for node, stage in pipeline.stages.items()
        if stage.reported != stage.dropped
    ]
    return "\n".join(problems) or None


def failure(made: Case) -> str | None:
    """The difference, or the error that the pipeline raises."""
    try:
        return difference(made)
    except Exception as error:  # any error is a finding
        return f"{type(error).__name__}: {error}"


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


def _described(made: Case) -> str:
    return "\n".join(map(str, (made.last, *made.batches)))


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; 1 at the first difference."""
    return search(
        arguments,
        description="A long run of random pipelines.",
        case=numbered_case,
        difference=failure,
        shrink=shrink,
        describe=_described,
    )


if __name__ == "__main__":
    sys.exit(main())
