"""The tutorial runs as it is, and its table equals pandas for the whole year of flights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.pages import python_blocks, run_page

PAGE: Final = Path(__file__).parents[2] / "docs" / "tutorial.md"
YEAR: Final = {
    'PERIOD = ("2013-02-07", "2013-02-12")': 'PERIOD = ("2013-01-01", "2014-01-02")',
    'FILE = "12h"': 'FILE = "14D"',
}
"""The changes that the page describes for the whole year."""
FLIGHTS: Final = 336_776

pytestmark = pytest.mark.proof


def test_the_tutorial_prints_what_it_shows(page_names: dict[str, Any]) -> None:
    run_page(PAGE, page_names)


def test_the_whole_year_equals_pandas(page_names: dict[str, Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for shown, year in YEAR.items():
        assert shown in text
        text = text.replace(shown, year)
    for block in python_blocks(text, PAGE.name):
        block.run(page_names)  # the last block compares the table with pandas
    assert page_names["table"]["flights"].sum() == FLIGHTS
