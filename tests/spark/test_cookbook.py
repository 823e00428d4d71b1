"""Every recipe of the cookbook runs as it is and prints what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import python_blocks, run_page
from tests.support.sampling import sampled

FOLDER = Path(__file__).parents[2] / "docs" / "cookbook"
RECIPES = sorted(path.stem for path in FOLDER.glob("*.md") if path.name != "index.md")
QUICK = ["kafka-json"]
"""The recipes that run in `make test`; features of the others have tests of their own there."""


@pytest.mark.parametrize("recipe", sampled(RECIPES, keep=QUICK))
def test_a_recipe_prints_the_rows_shown(recipe: str, page_names: dict[str, Any]) -> None:
    run_page(FOLDER / "index.md", page_names)
    run_page(FOLDER / f"{recipe}.md", page_names)


def test_the_cookbook_lists_every_recipe() -> None:
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert [recipe for recipe in RECIPES if f"({recipe}.md)" not in index] == []
    assert len(RECIPES) >= 12


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_shows_its_output(recipe: str) -> None:
    blocks = python_blocks((FOLDER / f"{recipe}.md").read_text(encoding="utf-8"), recipe)
    assert any(block.output for block in blocks)
