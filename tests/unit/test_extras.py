"""A package that is not installed is reported with the command that installs it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires

import pytest

from slackwater._extras import EXTRA_OF, naming_extras
from slackwater.errors import MissingExtra

DRIVERS = """
import sys
sys.modules["psycopg"] = sys.modules["adbc_driver_postgresql"] = None
from slackwater.errors import MissingExtra
from slackwater.sql.adbc import adbc_connection
from slackwater.sql.database import create_engine, database_url
try:
    create_engine(database_url("postgresql://db.example/shop"))
except MissingExtra as error:
    print(error)
try:
    adbc_connection("postgresql://db.example/shop", "postgresql").__enter__()
except MissingExtra as error:
    print(error)
"""


@pytest.mark.search
def test_missing_database_drivers_are_named_with_their_extra() -> None:
    done = subprocess.run([sys.executable, "-c", DRIVERS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f'{package} is not installed; run: pip install "slackwater[postgres]"'
        for package in ("psycopg", "adbc_driver_postgresql")
    ]


def test_a_package_that_is_in_no_extra_stays_an_import_error() -> None:
    with pytest.raises(ModuleNotFoundError) as raised, naming_extras():
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401
    assert not isinstance(raised.value, MissingExtra)


@pytest.mark.search
def test_the_extra_of_every_package_has_it() -> None:
    declared = requires("slackwater") or []
    distributions = packages_distributions()
    for package, extra in EXTRA_OF.items():
        if package == "starlette":
            continue  # comes with fastapi
        names = {name.lower().replace("_", "-") for name in distributions[package]}
        in_extra = [text for text in declared if re.search(rf"extra == '{extra}'", text)]
        found = {re.split(r"[\[<>=; ]", text)[0].lower() for text in in_extra}
        assert names & found, f"{package} is not in the extra {extra}"
