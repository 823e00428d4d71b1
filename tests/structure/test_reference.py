"""The reference lists every public name and nothing else, and begins with `stream`."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slackwater as sw
from tests.structure.public_names import DOCUMENTED_PACKAGES, public_names

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


def shown(directive: str, names: set[str] | None) -> Iterator[tuple[str, Any]]:
    """The classes and functions that a directive shows, by name."""
    try:
        named = importlib.import_module(directive)
    except ModuleNotFoundError:
        home, _, name = directive.rpartition(".")
        yield name, getattr(importlib.import_module(home), name)
        return
    for name, value in vars(named).items():
        if not inspect.isclass(value) and not inspect.isfunction(value):
            continue
        here = value.__module__ == named.__name__ and not name.startswith("_") and value.__doc__
        if name in names if names is not None else here:
            yield name, value


def reference() -> dict[str, Any]:
    """The objects of the reference, by module and name."""
    pages = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "reference").glob("*.md"))]
    modules = {one["module"] for page in pages for one in DIRECTIVE.finditer(page)}
    return {
        f"{value.__module__}.{name}": value
        for module in sorted(modules)
        for name, value in shown(module, DOCUMENTED[module])
    }


REFERENCE = reference()
PUBLIC = [getattr(package, name) for package in DOCUMENTED_PACKAGES for name in public_names(package)]


PUBLIC_IMPORTS = (
    r"import slackwater as sw|from slackwater\.(ingest|plot|testing|windows|streams.spark.data_source) import"
)
"""How examples import the package; docs/streams.md names the module of the data source."""


def members(value: Any) -> list[Any]:
    """An object, and the public methods and properties of a class."""
    own = vars(value).items() if inspect.isclass(value) else []
    found = [getattr(each, "__func__", getattr(each, "fget", each)) for name, each in own if name[0] != "_"]
    return [value, *(each for each in found if inspect.isfunction(each))]


def test_the_reference_shows_the_public_api_only() -> None:
    """A class that is not exported is one of a result, an error, or a base of these."""
    everything = [member for value in REFERENCE.values() for member in members(value)]
    notes = [note for each in everything for note in inspect.get_annotations(each).values()]
    named = set(re.findall(r"\w+", " ".join(map(str, notes))))
    bases = {base for value in REFERENCE.values() if inspect.isclass(value) for base in value.__mro__[1:]}
    assert len(REFERENCE) > 200
    for path, value in REFERENCE.items():
        if any(value is each for each in PUBLIC) or path == f"{CALLABLE_MODULES['ui']}.ui":
            continue
        assert inspect.isclass(value), f"{path} is not exported; remove it from its page"
        used = value.__name__ in named or value in bases or issubclass(value, sw.SlackwaterError)
        assert used, f"{path} is shown in the reference, and no public function returns it"


def test_the_examples_of_the_reference_import_the_package_as_sw() -> None:
    private = re.compile(rf">>> (?!{PUBLIC_IMPORTS})(from|import) slackwater.*")
    found = [
        f"{path}: {line[0]}"
        for path, value in REFERENCE.items()
        for member in members(value)
        for line in private.finditer(member.__doc__ or "")
    ]
    assert found == []
