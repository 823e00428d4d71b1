"""A long run of random scenarios, operator against model: `python -m tests.property.soak --cases 100000`.

Each case has its own seed, made from the seed of the run and its number, so that `--first` takes up a run
where it was left, and runs any one case again. Stops at the first difference, made as small as possible.
"""

from __future__ import annotations

import argparse
import sys
import time
from random import Random

from tests.property.comparing import compare, reproduction
from tests.property.shrinking import shrink
from tests.strategies.windows import Limits, RandomSource, Scenario, scenario

PROGRESS_SECONDS = 10
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000, help="how many (default 100,000)")
    parser.add_argument("--seed", type=int, default=1, help="of the run (default 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default 0)")
    given = parser.parse_args(arguments)
    began = said = time.monotonic()
    for number in range(given.first, given.first + given.cases):
        made = case(given.seed, number)
        if difference(made) is not None:
            small = shrink(made, lambda candidate: difference(candidate) is not None)
            _say(f"case {number} of seed {given.seed} differs, at its smallest:\n{reproduction(small)}\n")
            _say(str(difference(small)))
            return 1
        if time.monotonic() - said > PROGRESS_SECONDS:
            said = time.monotonic()
            done = number + 1 - given.first
            speed = done / (said - began)
            _say(f"{done:,} of {given.cases:,} cases without a difference, {speed:.0f} a second")
    _say(f"{given.cases:,} cases of seed {given.seed} without a difference")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
