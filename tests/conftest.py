"""What holds for all tests, and the databases that several folders of them use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from slackwater.metadata.store import open_store
from tests.spark.postgres import Server, running_server
from tests.stores import new_store

# Searches are derandomized: every run of one commit tries the same examples and gives the same verdict.
# `make soak` searches with new seeds instead. An example has no deadline, because its duration depends on
# what else the machine is doing.
settings.register_profile(
    "test", deadline=None, derandomize=True, database=None, print_blob=True, max_examples=24
)
settings.register_profile("quick", settings.get_profile("test"), max_examples=8)
settings.register_profile("deep", settings.get_profile("test"), max_examples=400)
settings.register_profile("soak", settings.get_profile("test"), derandomize=False, max_examples=600)
settings.load_profile("test")


def pytest_configure() -> None:
    """Keep the constants of loaded modules out of derandomized searches.

    Hypothesis tries the constants that it finds in the modules loaded so far. Which those are depends on the
    tests that ran before in the same process, and parsing them takes more than a second in every process.
    """
    if settings().derandomize:
        pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: providers._local_constants)


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
    if empty_url.startswith("sqlite:"):
        return new_store(tmp_path)
    open_store(empty_url, create=True).close()
    return empty_url
