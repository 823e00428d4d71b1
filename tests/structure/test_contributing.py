"""The maps in CONTRIBUTING.md: packages, test folders and commands are those of the tree and the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.structure.architecture import FACE, MAY_IMPORT

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "slackwater"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FOUNDATION = {"errors", "time"}
"""Packages that the table does not repeat for every row; nor does it repeat private modules."""
UNLISTED_TARGETS = {"help", "environment"}


def table(heading: str) -> list[list[str]]:
    """The body rows of the first table whose header row starts with ``heading``, as cells."""
    lines = iter(TEXT.splitlines())
    for line in lines:
        if line.startswith(f"| {heading} |"):
            break
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def packages_of(folder: Path) -> set[str]:
    return {path.parent.relative_to(folder).as_posix() for path in folder.rglob("__init__.py")} - {"."}


def shown(names: set[str]) -> set[str]:
    """The packages among ``names`` that exist and that the table shows as imports."""
    return {name for name in names if (SOURCE / name).is_dir()} - FOUNDATION


def test_the_package_map_lists_every_package_once() -> None:
    listed = [name for row in table("package") for name in quoted(row[0])]
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert sorted(listed) == sorted(packages_of(SOURCE) | modules)


@pytest.mark.parametrize("row", table("package"), ids=lambda row: str(row[0]))
def test_the_package_map_shows_the_allowed_imports(row: list[str]) -> None:
    names = quoted(row[0])
    if "/" in names[0]:
        assert row[2] == "", "a folder inside a package has the imports of its package"
        return
    for name in names:
        allowed = shown(MAY_IMPORT[name])
        if row[2].startswith("all but "):
            assert set(quoted(row[2])) == shown(MAY_IMPORT.keys() - {FACE, name}) - allowed
        else:
            assert set(quoted(row[2])) == allowed


def test_the_table_of_test_folders_lists_every_folder() -> None:
    folders = {
        f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if (path / "__init__.py").is_file()
    }
    assert {name for row in table("folder") for name in quoted(row[0])} == folders


def test_the_table_of_commands_lists_every_make_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    listed = {name.split()[1] for row in table("command") for name in quoted(row[0])}
    assert listed == targets - UNLISTED_TARGETS
