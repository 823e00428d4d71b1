"""The tutorial runs as it is, and its table equals pandas for the whole year of flights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from tests.support.pages import python_blocks, run_page

PAGE: Final = Path(__file__).parents[2] / "docs" / "tutorial.md"
YEAR: Final = {
    'PERIOD = ("2013-02-07", "2013-02-12")': 'PERIOD = ("2013-01-01", "2014-01-02")',
    'FILE = "12h"': 'FILE = "14D"',
}
"""The changes that the page describes for the whole year."""
FLIGHTS: Final = 336_776

pytestmark = pytest.mark.proof


@pytest.fixture
def names(spark: SparkSession, page_names: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The names of the page, and the timezone of its session, which exists already."""
    timezone = "spark.sql.session.timeZone"
    before = str(spark.conf.get(timezone))
    spark.conf.set(timezone, "America/New_York")
    yield page_names
    spark.conf.set(timezone, before)


def test_the_tutorial_prints_what_it_shows(names: dict[str, Any]) -> None:
    run_page(PAGE, names)


def test_the_whole_year_equals_pandas(names: dict[str, Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for shown, year in YEAR.items():
        assert shown in text
        text = text.replace(shown, year)
    for block in python_blocks(text, PAGE.name):
        block.run(names)  # the last block compares the table with pandas
    assert names["table"]["flights"].sum() == FLIGHTS
