"""The reference lists every public name, and begins with `stream`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import slackwater as sw
from tests.structure.public_names import public_names

ROOT = Path(__file__).parents[2]
DIRECTIVE = re.compile(r"^::: (?P<module>[\w.]+)(?P<options>(?:\n {4}.*)*)", re.MULTILINE)
CONSTANTS = {"BEGINNING_OF_TIME", "END_OF_TIME", "DEFAULT_KEY", "DONE", "IDLE"}
"""Values, whose pages describe their module."""

CALLABLE_MODULES = {"ui": "slackwater.ui.running_console"}
"""Functions with the name of a package, which may be imported in their place."""


def documented() -> dict[str, set[str] | None]:
    """The documented modules, with the names that are shown; None for all."""
    found: dict[str, set[str] | None] = {}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for directive in DIRECTIVE.finditer(page.read_text(encoding="utf-8")):
            chosen = re.search(r"members: \[([^\]]*)\]", directive["options"])
            names = None if chosen is None else set(re.split(r",\s*", chosen[1]))
            known = found.get(directive["module"], set())
            found[directive["module"]] = None if known is None or names is None else known | names
    return found


DOCUMENTED = documented()


@pytest.mark.parametrize("name", sorted(set(public_names(sw)) - CONSTANTS))
def test_a_public_name_is_in_the_reference(name: str) -> None:
    module = CALLABLE_MODULES.get(name) or getattr(sw, name).__module__
    if f"{module}.{name}" in DOCUMENTED:
        return
    assert module in DOCUMENTED, f"no page has ::: {module}"
    names = DOCUMENTED[module]
    assert names is None or name in names, f"add {name} to the members of ::: {module}"


def test_the_reference_begins_with_stream() -> None:
    index = (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
    first_page = re.search(r"^\| \[[^\]]+\]\(([^)]+)\)", index, re.MULTILINE)
    assert first_page is not None
    page = (ROOT / "docs" / "reference" / first_page[1]).read_text(encoding="utf-8")
    first = DIRECTIVE.search(page)
    assert first is not None
    assert first["module"] == "slackwater.spark.api.stream.stream"
