"""Which package may know which, read from the imports themselves.

The map is the design's table of packages. Imports are read with `ast` instead of being run, so
that one inside a function, under ``TYPE_CHECKING`` or of a module that is not installed counts too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = "slackwater"
FACE: Final = "(the package itself)"
"""``slackwater/__init__.py``: re-exports everything, so whoever imports it knows everything."""

_BASE: Final = {"_time_text", "errors", "time"}
_CORE: Final = _BASE | {"progress", "windows"}
_HOSTED: Final = _CORE | {"spark", "sql", "metadata", "streams", "ingest"}

MAY_IMPORT: Final[dict[str, set[str]]] = {
    "_time_text": set(),
    "_durable_files": set(),
    "errors": {"_time_text"},
    "time": {"_time_text", "errors"},
    "progress": _BASE,
    "windows": _BASE | {"progress"},
    "sql": _BASE,
    "spark": _CORE | {"sql"},
    "metadata": _BASE | {"sql"},
    "streams": _CORE | {"_durable_files", "sql", "spark", "metadata"},
    "ingest": _CORE | {"_durable_files", "sql", "spark", "metadata", "streams"},
    "testing": _CORE,
    "plot": _CORE | {"testing"},
    "demo": _HOSTED | {FACE, "plot"},
    "ui": _HOSTED | {FACE},
    "cli": _HOSTED | {FACE, "demo", "ui", "plot"},
    FACE: _HOSTED | {"testing"},
}
"""Each package with the packages it may import; one that is not listed here is a failure."""

SPARK: Final = {"pyspark", "py4j"}
COLUMNS: Final = {"polars", "pyarrow", "numpy", "pandas"}

MAY_NOT_IMPORT: Final[dict[str, set[str]]] = {
    "_time_text": SPARK | COLUMNS,
    "errors": SPARK | COLUMNS,
    "time": SPARK | COLUMNS,
    "progress": SPARK | COLUMNS,  # pure Python: it runs in every map task, for every buffer
    "windows": SPARK,  # columns without a JVM: a notebook is enough
    "testing": SPARK,
    "plot": SPARK,
    "metadata": SPARK,
    "sql": SPARK,
}
"""Libraries that a package must not know."""


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, and where it stands."""

    file: Path
    line: int
    module: str


def imports_of(file: Path, package: str) -> Iterator[Import]:
    """Every module that ``file`` imports, by full name; ``package`` is what it lies in."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(file, node.lineno, alias.name)
            case ast.ImportFrom():
                anchor = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*anchor, *([node.module] if node.module else [])])
                if base == ROOT:
                    # "from slackwater import time" is an import of slackwater.time
                    for alias in node.names:
                        yield Import(file, node.lineno, f"{ROOT}.{alias.name}")
                else:
                    yield Import(file, node.lineno, base)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield Import(file, node.lineno, name)


def violations(source: Path) -> list[str]:
    """What in the tree ``source`` (the folder of the package) breaks the map, a line for each."""
    found: list[str] = []
    for file in sorted(source.rglob("*.py")):
        place = file.relative_to(source)
        owner = FACE if place == Path("__init__.py") else place.parts[0].removesuffix(".py")
        if owner not in MAY_IMPORT:
            found.append(f"{place}: package {owner!r} is not on the map of packages")
            continue
        package = ".".join([ROOT, *place.parent.parts])
        found += [
            f"{place}:{item.line}: {owner} imports {item.module}: {problem}"
            for item in imports_of(file, package)
            if (problem := _problem(owner, item.module, source))
        ]
    return found


def _problem(owner: str, module: str, source: Path) -> str | None:
    top, _, rest = module.partition(".")
    if top != ROOT:
        return "it must not know this library" if top in MAY_NOT_IMPORT.get(owner, set()) else None
    name = rest.partition(".")[0]
    is_module = (source / name).is_dir() or (source / f"{name}.py").is_file()
    target = name if name and (is_module or name in MAY_IMPORT) else FACE
    if target == owner or target in MAY_IMPORT[owner]:
        return None
    if target not in MAY_IMPORT:
        return "it is not on the map of packages"
    allowed = ", ".join(sorted(MAY_IMPORT[owner])) or "nothing of this project"
    return f"it may import only {allowed}"
