"""The allowed dependencies between packages, checked against the import statements.

The map follows the design's table of packages. Imports are parsed with `ast` and not executed, so
that an import inside a function, under ``TYPE_CHECKING`` or of a missing module counts too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.structure.syntax import parsed, statements

ROOT: Final = "slackwater"
FACE: Final = "(the package itself)"
"""``slackwater/__init__.py`` re-exports every public name, so importing it depends on every package."""

_BASE: Final = {"_extras", "_notebook_html", "_suggestions", "_time_text", "errors", "time"}
_CORE: Final = _BASE | {"_strict_rows", "_utf8", "progress", "windows"}
_ALL_PACKAGES: Final = _CORE | {"spark", "sql", "tables", "metadata", "monitoring", "streams", "ingest"}

MAY_IMPORT: Final[dict[str, set[str]]] = {
    "_suggestions": set(),
    "_time_text": set(),
    "_notebook_html": {"_time_text"},
    "_durable_files": set(),
    "_extras": {"errors"},
    "_lazy_exports": {"_extras"},
    "_utf8": set(),
    "_arrow_types": set(),
    "_strict_rows": {"_suggestions", "_utf8", "errors"},
    "errors": {"_time_text"},
    "time": {"_time_text", "errors"},
    "progress": _BASE,
    "windows": _BASE | {"_lazy_exports", "_strict_rows", "progress"},
    "sql": _BASE | {"_utf8", "progress"},
    "tables": _BASE | {"_arrow_types", "_durable_files", "progress", "sql"},
    "metadata": _BASE | {"sql"},
    "monitoring": _BASE | {"progress", "sql", "metadata"},
    "spark": _CORE | {"_arrow_types", "sql", "tables", "monitoring"},
    "streams": _CORE | {"_durable_files", "sql", "spark", "metadata"},
    "ingest": _CORE | {"_durable_files", "_lazy_exports", "sql", "tables", "spark", "metadata", "streams"},
    "table_progress": _BASE | {"progress", "sql", "tables", "spark", "metadata", "streams"},
    "lineage": _BASE | {"sql", "spark", "ingest"},
    "testing": _CORE | {"spark"},
    "plot": _CORE | {"testing"},
    "ui": _ALL_PACKAGES,
    "demo": _ALL_PACKAGES | {FACE, "plot", "table_progress", "ui"},
    "doctor": _ALL_PACKAGES,
    "simulation": _ALL_PACKAGES | {"_durable_files"},
    "cli": _ALL_PACKAGES | {FACE, "demo", "doctor", "ui", "plot", "simulation", "table_progress", "lineage"},
    FACE: _ALL_PACKAGES | {"_lazy_exports", "lineage", "table_progress", "testing", "ui"},
}
"""The packages that each package may import. A package that is not listed is a violation."""

_INGEST_VALUES: Final = {"axis", "units", "job_errors"}

_STREAMS_VALUES: Final = {"arguments", "segments", "settings"}
_STREAMS_LOG: Final = _STREAMS_VALUES | {"time", "log"}

_SPARK_BASE: Final = {"internals", "session", "versions"}

INNER_MAY_IMPORT: Final[dict[str, dict[str, set[str]]]] = {
    "windows": {
        "operator_columns": set(),
        "computed_columns": set(),
        "assigners": {"computed_columns"},
        "triggers": set(),
        "accumulations": {"operator_columns", "computed_columns"},
        "spec": {"accumulations", "assigners", "triggers"},
        "engine": {"operator_columns", "assigners", "triggers", "accumulations", "spec"},
    },
    "spark": {
        "private_files": set(),
        "class_archive": {"private_files"},
        "internals": set(),
        "jvm_options": {"class_archive"},
        "local_files": {"internals", "private_files"},
        "quiet_console": set(),
        "versions": set(),
        "worker_interpreter": {"internals", "private_files"},
        "session": {
            "class_archive",
            "internals",
            "jvm_options",
            "local_files",
            "quiet_console",
            "versions",
            "worker_interpreter",
        },
        "wire": _SPARK_BASE,
        "monitor": _SPARK_BASE | {"wire"},
        "runtime": _SPARK_BASE | {"wire", "monitor"},
        "api": _SPARK_BASE | {"wire", "monitor", "runtime"},
        "checkpoint": _SPARK_BASE | {"wire", "monitor", "runtime"},
        "in_process": _SPARK_BASE | {"wire", "monitor", "runtime", "api"},
    },
    "ingest": {
        "units": set(),
        "job_errors": set(),
        "redaction": set(),
        "tracebacks": set(),
        "axis": set(),
        "jobfile": _INGEST_VALUES | {"redaction"},
        "plan": _INGEST_VALUES | {"jobfile"},
        "ledger": _INGEST_VALUES | {"jobfile", "plan"},
        "sources": _INGEST_VALUES | {"redaction", "tracebacks", "jobfile", "plan"},
        "targets": _INGEST_VALUES | {"plan", "sources"},
        "job_checks": _INGEST_VALUES | {"jobfile", "sources", "targets"},
        "extraction": _INGEST_VALUES | {"jobfile", "plan", "sources", "targets", "job_checks"},
        "runner": _INGEST_VALUES | {"tracebacks", "jobfile", "plan", "ledger"},
    },
    "streams": {
        "arguments": set(),
        "settings": {"arguments"},
        "segments": set(),
        "time": _STREAMS_VALUES,
        "log": _STREAMS_VALUES | {"time"},
        "description": _STREAMS_LOG,
        "timeline": _STREAMS_LOG | {"description"},
        "maintenance": _STREAMS_LOG,
        "spark": _STREAMS_LOG,
    },
}
"""The same within a package: the folders and modules of it that each of them may import."""

SPARK: Final = {"pyspark", "py4j"}
COLUMNS: Final = {"polars", "pyarrow", "numpy", "pandas"}

MAY_NOT_IMPORT: Final[dict[str, set[str]]] = {
    "_extras": SPARK | COLUMNS,
    "_lazy_exports": SPARK | COLUMNS,
    "_strict_rows": SPARK,
    "_suggestions": SPARK | COLUMNS,
    "_time_text": SPARK | COLUMNS,
    "_utf8": SPARK,
    "errors": SPARK | COLUMNS,
    "time": SPARK | COLUMNS,
    "progress": SPARK | COLUMNS,  # pure Python: it runs in every map task, for every buffer
    "windows": SPARK,  # columns without a JVM: a notebook is enough
    "testing": SPARK,
    "plot": SPARK,
    "metadata": SPARK,
    "monitoring": SPARK,
    "sql": SPARK,
}
"""Third-party libraries that a package must not import."""


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, with the file and line of the import statement."""

    file: Path
    line: int
    module: str


def imports_of(file: Path, package: str) -> Iterator[Import]:
    """Yield every module that ``file`` imports, by full name; ``package`` contains the file."""
    text, tree = parsed(file)
    calls = "import_module" in text or "__import__" in text
    for node in ast.walk(tree) if calls else statements(tree):
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
    """List the imports below ``source`` (the folder of the package) that the map does not allow."""
    found: list[str] = []
    for file in sorted(source.rglob("*.py")):
        path = file.relative_to(source)
        owner = FACE if path == Path("__init__.py") else path.parts[0].removesuffix(".py")
        if owner not in MAY_IMPORT:
            found.append(f"{path}: package {owner!r} is missing in MAY_IMPORT")
            continue
        package = ".".join([ROOT, *path.parent.parts])
        found += [
            f"{path}:{item.line}: {owner} imports {item.module}: {problem}"
            for item in imports_of(file, package)
            if (problem := _problem(owner, item.module, source) or _inner_problem(path, item.module))
        ]
    return found


def _problem(owner: str, module: str, source: Path) -> str | None:
    top, _, rest = module.partition(".")
    if top != ROOT:
        return "it must not import this library" if top in MAY_NOT_IMPORT.get(owner, set()) else None
    name = rest.partition(".")[0]
    is_module = (source / name).is_dir() or (source / f"{name}.py").is_file()
    target = name if name and (is_module or name in MAY_IMPORT) else FACE
    if target == owner or target in MAY_IMPORT[owner]:
        return None
    if target not in MAY_IMPORT:
        return "that package is missing in MAY_IMPORT"
    allowed = ", ".join(sorted(MAY_IMPORT[owner])) or "no other package"
    return f"it may import only: {allowed}"


def _inner_problem(path: Path, module: str) -> str | None:
    package, *inside = path.parts
    folders = INNER_MAY_IMPORT.get(package)
    if folders is None or inside == ["__init__.py"]:
        return None
    owner = inside[0].removesuffix(".py")
    if owner not in folders:
        return f"{owner!r} is missing in INNER_MAY_IMPORT[{package!r}]"
    prefix = f"{ROOT}.{package}."
    if not module.startswith(prefix):
        return None
    target = module.removeprefix(prefix).partition(".")[0]
    if target == owner or target in folders[owner]:
        return None
    return f"{package}.{owner} may import only: {', '.join(sorted(folders[owner])) or 'no other folder'}"
