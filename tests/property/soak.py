"""A long run of random scenarios, operator against model: `python -m tests.property.soak --cases 100000`.

Each case has its own seed, made from the seed of the run and its number, so that `--first` takes up a run
where it was left, and runs any one case again. Stops at the first difference, made as small as possible.
"""

from __future__ import annotations

import sys
from random import Random

from tests.property.comparing import compare, reproduction
from tests.property.numbered_search import search
from tests.property.shrinking import shrink
from tests.strategies.windows import Limits, RandomSource, Scenario, scenario

SHORT, LONG = Limits(steps=4, rows=16, keys=5), Limits(steps=8, rows=24, keys=8)


def case(seed: int, number: int) -> Scenario:
    """The scenario of that number: two short ones, then a long one.

    Many rows and keys, because each key is a story of its own and costs the operator next to nothing.
    """
    return scenario(RandomSource(Random(f"{seed}/{number}")), SHORT if number % 3 else LONG)


def difference(made: Scenario) -> str | None:
    """What is different, or None."""
    try:
        compare(made)
    except AssertionError as found:
        return str(found)
    return None


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; 1 at the first difference."""
    return search(
        arguments,
        description="A long run of random scenarios, operator against model.",
        case=case,
        difference=difference,
        shrink=shrink,
        describe=reproduction,
    )


if __name__ == "__main__":
    sys.exit(main())
