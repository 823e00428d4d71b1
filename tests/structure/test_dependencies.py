"""Packages depend only on those above them in the design's table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure.architecture import FACE, INNER_MAY_IMPORT, MAY_IMPORT, violations

SOURCE = Path(__file__).parents[2] / "src" / "slackwater"


def test_the_package_has_no_violation() -> None:
    assert violations(SOURCE) == []


def test_the_package_was_found() -> None:
    # an empty folder has no violations
    assert {"errors.py", "time.py", "progress"} <= {path.name for path in SOURCE.iterdir()}


@pytest.mark.parametrize("package", ["slackwater", *INNER_MAY_IMPORT])
def test_the_map_has_no_cycle(package: str) -> None:
    may_import = INNER_MAY_IMPORT.get(package, MAY_IMPORT)
    placed: set[str] = set()
    while left := may_import.keys() - placed:
        free = {name for name in left if may_import[name] <= placed | {name}}
        assert free, f"import cycle: {sorted(left)}"
        placed |= free


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in {"errors.py": "", "time.py": "", "windows/__init__.py": "", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("progress/a.py", "import slackwater.windows", "progress imports slackwater.windows"),
        (
            "progress/a.py",
            "from slackwater.windows.engine.window_state import State",
            "slackwater.windows.engine.window_state",
        ),
        ("progress/a.py", "from slackwater import windows", "slackwater.windows"),
        ("progress/a.py", "from slackwater import Watermark", "slackwater.Watermark"),
        ("progress/a.py", "import slackwater as sw", "progress imports slackwater"),
        ("progress/a.py", "from ..windows import Fixed", "slackwater.windows"),
        ("progress/deep/a.py", "from ... import windows", "slackwater.windows"),
        ("progress/a.py", "def f():\n    import pyspark.sql", "a.py:2: progress imports pyspark.sql"),
        ("progress/a.py", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame", "pyspark.sql"),
        ("progress/a.py", "importlib.import_module('pyspark')", "pyspark"),
        ("progress/a.py", "__import__('py4j')", "py4j"),
        ("progress/a.py", "import polars as pl", "polars"),
        ("windows/a.py", "from pyspark import SparkContext", "windows imports pyspark"),
        ("windows/a.py", "from slackwater.testing import ManualClock", "slackwater.testing"),
        ("time.py", "from slackwater.progress.values import IDLE", "time imports slackwater.progress.values"),
        ("_time_text.py", "import slackwater.time", "it may import only: no other package"),
        ("errors.py", "import slackwater.time", "it may import only: _time_text"),
        ("metadata/a.py", "from slackwater.progress import Coalescer", "metadata imports"),
        ("streams/log/a.py", "import slackwater.ingest", "streams imports slackwater.ingest"),
        (
            "streams/log/a.py",
            "from slackwater.streams.maintenance import controller",
            "streams.log may import only: arguments, segments, settings, time",
        ),
        (
            "streams/segments/a.py",
            "import slackwater.streams.log.catalog",
            "may import only: no other folder",
        ),
        ("streams/odd/a.py", "import slackwater.time", "'odd' is missing in INNER_MAY_IMPORT['streams']"),
        ("ui/a.py", "import slackwater.cli", "ui imports slackwater.cli"),
        ("__init__.py", "from slackwater.cli import main", f"{FACE} imports slackwater.cli"),
        ("helpers/a.py", "", "package 'helpers' is missing in MAY_IMPORT"),
        ("helpers.py", "", "package 'helpers' is missing in MAY_IMPORT"),
    ],
)
def test_violations_are_reported(tmp_path: Path, file: str, text: str, problem: str) -> None:
    (only,) = violations(tree(tmp_path, {file: text}))
    assert problem in only


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "progress/a.py",
            "import slackwater.progress.values\nfrom slackwater.errors import AfterDone",
        ),
        ("progress/a.py", "from . import values\nfrom ..time import now\nimport asyncio, msgspec"),
        ("progress/a.py", "from slackwater import time"),
        ("windows/engine/a.py", "import polars as pl\nfrom slackwater.progress import Coalescer"),
        ("spark/api/a.py", "import pyspark\nfrom slackwater.windows import Fixed"),
        ("cli/a.py", "import slackwater as sw\nfrom slackwater import ingest"),
    ],
)
def test_allowed_imports_are_not_reported(tmp_path: Path, file: str, text: str) -> None:
    assert violations(tree(tmp_path, {file: text})) == []
