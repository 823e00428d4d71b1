"""What holds for all tests, and the databases that several folders of them use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings

from tests.spark.postgres import Server, running_server
from tests.stores import new_store

# How long one example may take depends on who else uses the machine; the suite has its own limits.
settings.register_profile("slackwater", deadline=None, print_blob=True, max_examples=100)
# A shorter search, for what is run all the time; `make test` searches as long as the other says.
settings.register_profile("quick", settings.get_profile("slackwater"), max_examples=30)
settings.load_profile("slackwater")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One PostgreSQL for the whole run; each test makes a database of its own in it."""
    with running_server() as running:
        yield running


@pytest.fixture(scope="session")
def stores(server: Server) -> str:
    """One database for all metadata stores of the run; each has a schema of its own in it."""
    return server.create_database("stores")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database of each kind in which a metadata store can be made."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    url: str = request.getfixturevalue("stores")
    name = f"store_{time.monotonic_ns()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{url}?options=-csearch_path%3D{name}"


@pytest.fixture
def store_url(empty_url: str, tmp_path: Path) -> str:
    """The address of an empty metadata store, of each kind."""
    return new_store(tmp_path) if empty_url.startswith("sqlite:") else empty_url
