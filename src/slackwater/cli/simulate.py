"""`slackwater simulate`: run seeds of the deterministic simulation, and report what happened in one."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.console import FAILURE, AsJson, counted, print_json, print_line, print_note
from slackwater.time import DAY

if TYPE_CHECKING:
    from slackwater.simulation.runs import Simulated

_PROGRESS_SECONDS = 10


def simulate(
    seed: Annotated[int, typer.Argument(metavar="SEED", help="The seed; the first one if --seeds is given.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run, counting up from SEED.")] = 1,
    scenario: Annotated[
        str | None, typer.Option(help="Only this scenario: log, pipeline or ingest. Default: by seed.")
    ] = None,
    minutes: Annotated[
        int, typer.Option(min=1, help="How long faults are injected, in simulated minutes.")
    ] = 5,
    story: Annotated[bool, typer.Option("--story", help="Print what happened as a timeline.")] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate streams, pipelines and ingestion runs under faults, and check every promise at each step.

    The same seed gives the same steps on the same version. The exit code is 1 if a promise was broken.
    """
    from slackwater.simulation.runs import simulation  # imports Spark and Polars, which takes a second

    broken = False
    total: Counter[str] = Counter()
    simulated, began, reported = 0, time.process_time(), time.monotonic()
    with simulation() as prepared:
        for number in range(seed, seed + seeds):
            result = prepared.run(number, scenario=scenario, minutes=minutes)
            total.update(result.faults)
            simulated += result.simulated
            broken |= result.violation is not None
            if as_json:
                print_json(_as_json(result, with_story=story))
            elif story or result.violation is not None:
                _print_result(result, with_story=story)
            if seeds > 1 and time.monotonic() - reported > _PROGRESS_SECONDS:
                reported = time.monotonic()
                print_note(f"{number - seed + 1:,} of {seeds:,} seeds")
    if not as_json:
        seconds = time.process_time() - began
        faults = ", ".join(f"{kind} {count:,}" for kind, count in sorted(total.items())) or "none"
        print_line(
            f"{counted(seeds, 'seed')}, {simulated / DAY:.2f} simulated days in {seconds:.1f} s of CPU; "
            f"faults: {faults}"
        )
    if broken:
        raise typer.Exit(FAILURE)


def _print_result(result: Simulated, *, with_story: bool) -> None:
    from slackwater.simulation.event_story import format_story

    if with_story:
        print_line(format_story(result.story))
    outcome = "all promises kept" if result.violation is None else f"BROKEN: {result.violation}"
    print_line(f"seed {result.seed} ({result.scenario}), trace {result.trace}: {outcome}")


def _as_json(result: Simulated, *, with_story: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "seed": result.seed,
        "scenario": result.scenario,
        "violation": result.violation,
        "trace": result.trace,
        "steps": result.steps,
        "simulated_seconds": result.simulated / 1_000_000,
        "faults": result.faults,
    }
    if with_story:
        found["story"] = [[line.at / 1_000_000, line.process, line.text] for line in result.story]
    return found
