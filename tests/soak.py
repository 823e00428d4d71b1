"""Search for counterexamples with new seeds until the time is up: `make soak MINUTES=30`.

Each round runs every property test with a fresh Hypothesis seed, then random window scenarios against the
model, random pipelines against the batch result, and seeds of the simulation. The first failure ends the
search with exit code 1; its output contains the seed and, except for the simulation, a minimal example, which
belongs into the test suite as a fixed case.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Sequence

SCENARIOS_PER_ROUND = 3_000
PIPELINES_PER_ROUND = 2_000
SIMULATIONS_PER_ROUND = 300


def commands(seed: int) -> list[list[str]]:
    """The commands of one round."""
    searches = ["tests/property", "--hypothesis-profile", "soak", f"--hypothesis-seed={seed}"]
    scenarios = ["--cases", str(SCENARIOS_PER_ROUND), "--seed", str(seed)]
    pipelines = ["--cases", str(PIPELINES_PER_ROUND), "--seed", str(seed)]
    simulations = ["--seeds", str(SIMULATIONS_PER_ROUND)]
    return [
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", *searches],
        [sys.executable, "-m", "tests.property.soak", *scenarios],
        [sys.executable, "-m", "tests.property.pipeline_soak", *pipelines],
        [sys.executable, "-m", "slackwater.cli", "simulate", str(seed), *simulations],
    ]


def run_until(deadline: float, command: Sequence[str]) -> bool:
    """Run a command, at most until the deadline; whether it found nothing."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        return True
    try:
        return subprocess.run(command, timeout=remaining, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return True


def main(arguments: list[str] | None = None) -> int:
    """Run rounds until the time is up; 1 at the first failure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long to search (default 10)")
    parser.add_argument("--seed", type=int, help="of the first round; by default a new one")
    given = parser.parse_args(arguments)
    seeds = random.Random(given.seed)
    deadline = time.monotonic() + 60 * given.minutes
    rounds = 0
    while time.monotonic() < deadline:
        rounds += 1
        seed = given.seed if rounds == 1 and given.seed is not None else seeds.randrange(2**31)
        sys.stdout.write(f"round {rounds}, seed {seed}\n")
        sys.stdout.flush()
        for command in commands(seed):
            if not run_until(deadline, command):
                sys.stdout.write(f"failed with seed {seed}: repeat with make soak ARGS='--seed {seed}'\n")
                return 1
    sys.stdout.write(f"{rounds} rounds in {given.minutes:g} minutes without a failure\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
