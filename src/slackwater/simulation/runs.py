"""Runs seeds: one simulation each, from a seed to a result that repeats."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Final, Protocol

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.simulation.event_story import StoryLine
from slackwater.simulation.faults import FaultPlan
from slackwater.simulation.ingest_scenario import IngestScenario
from slackwater.simulation.log_scenario import LogScenario
from slackwater.simulation.pipeline_scenario import PipelineScenario
from slackwater.simulation.simulated_database import Databases
from slackwater.simulation.world import START, World


class Scenario(Protocol):
    """What happens in a simulation."""

    def run(self) -> None:
        """Run the processes with faults, then without, and check that everything arrived."""


SCENARIOS: Final[dict[str, Callable[[World, int], Scenario]]] = {
    "log": LogScenario,
    "pipeline": PipelineScenario,
    "ingest": IngestScenario,
}
"""The scenarios by name; a seed runs the one at its remainder."""
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a file system in memory; the folder in it is our own


@dataclass(frozen=True)
class Simulated:
    """The result of one seed."""

    seed: int
    scenario: str
    violation: str | None
    trace: str
    """Hash of all steps: equal for two runs of one seed on one commit."""
    steps: int
    simulated: int
    """Simulated time in microseconds."""
    faults: dict[str, int]
    story: tuple[StoryLine, ...]


class Simulation:
    """Runs seeds, which share a database engine; made by `simulation`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._databases = Databases(folder)

    def run(
        self, seed: int, *, scenario: str | None = None, faults: FaultPlan | None = None, minutes: int = 5
    ) -> Simulated:
        """Run one seed.

        Args:
            seed: The seed.
            scenario: Name of the scenario; by default the seed decides.
            faults: What fails; by default as the seed decides.
            minutes: How long faults are injected, in simulated minutes.

        Returns:
            What happened, and the broken promise if there is one.

        Raises:
            InvalidArgument: There is no scenario with this name.
        """
        names = list(SCENARIOS)
        chosen = names[seed % len(names)] if scenario is None else scenario
        if chosen not in SCENARIOS:
            raise InvalidArgument(
                "scenario", chosen, "unknown scenario", fix=available(chosen, names, lead="use one of ")
            )
        folder = Path(mkdtemp(dir=self._folder))
        world = World(f"{chosen} {seed}", folder, self._databases, faults=faults)
        try:
            with world.running():
                SCENARIOS[chosen](world, minutes).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return Simulated(
            seed=seed,
            scenario=chosen,
            violation=world.violation,
            trace=world.scheduler.trace_hash(),
            steps=world.scheduler.steps,
            simulated=world.now - START,
            faults=dict(sorted(world.faults.items())),
            story=tuple(world.story),
        )


@contextmanager
def simulation() -> Iterator[Simulation]:
    """Prepare simulations, in memory where the system has a file system in memory.

    >>> with simulation() as prepared:
    ...     first, second = prepared.run(7, minutes=1), prepared.run(7, minutes=1)
    >>> first.violation, first.trace == second.trace
    (None, True)
    """
    parent = str(_MEMORY) if _MEMORY.is_dir() else None
    with TemporaryDirectory(prefix="slackwater-simulation-", dir=parent) as folder:
        yield Simulation(Path(folder))
