"""The command line of a long search: numbered random cases, until one differs.

Each case has its own seed, made from the seed of the run and its number, so that `--first` takes up a run
where it was left, and runs any one case again. Stops at the first difference, made as small as possible.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

PROGRESS_SECONDS: Final = 10

Case = TypeVar("Case")


def search(
    arguments: Sequence[str] | None,
    *,
    description: str,
    case: Callable[[int, int], Case],
    difference: Callable[[Case], str | None],
    shrink: Callable[[Case, Callable[[Case], bool]], Case],
    describe: Callable[[Case], str],
    at_once: int = 1,
) -> int:
    """Run the cases; 1 at the first difference.

    Args:
        arguments: those of the command line; by default those of the program.
        description: of the program.
        case: the case of a seed and a number.
        difference: what is different in a case, or None.
        shrink: the smallest case for which a function is true.
        describe: a case as text.
        at_once: how many numbered cases one of ``case`` stands for.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--cases", type=int, default=100_000, help="how many (default 100,000)")
    parser.add_argument("--seed", type=int, default=1, help="of the run (default 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default 0)")
    given = parser.parse_args(arguments)
    began = said = time.monotonic()
    first = given.first // at_once * at_once
    for number in range(first, given.first + given.cases, at_once):
        made = case(given.seed, number)
        if difference(made) is not None:
            small = shrink(made, lambda candidate: difference(candidate) is not None)
            _say(f"case {number} of seed {given.seed} differs, at its smallest:\n{describe(small)}\n")
            _say(str(difference(small)))
            return 1
        if time.monotonic() - said > PROGRESS_SECONDS:
            said = time.monotonic()
            done = number + at_once - first
            speed = done / (said - began)
            _say(f"{done:,} of {given.cases:,} cases without a difference, {speed:.0f} a second")
    _say(f"{given.cases:,} cases of seed {given.seed} without a difference")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
