"""The database engine that all seeds of one test process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slackwater.simulation.runs import Simulation, simulation


@pytest.fixture(scope="session")
def prepared() -> Iterator[Simulation]:
    with simulation() as made:
        yield made
