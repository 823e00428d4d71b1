"""Packages depend only on those above them in the design's table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure.architecture import FACE, MAY_IMPORT, violations

SOURCE = Path(__file__).parents[2] / "src" / "slackwater"


def test_the_package_has_no_violation() -> None:
    assert violations(SOURCE) == []


def test_the_package_was_found() -> None:
    # an empty folder has no violations
    assert {"errors.py", "time.py", "progress"} <= {path.name for path in SOURCE.iterdir()}


def test_the_map_has_no_cycle() -> None:
    placed: set[str] = set()
    while left := MAY_IMPORT.keys() - placed:
        free = {name for name in left if MAY_IMPORT[name] <= placed | {name}}
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
        ("streams/a.py", "import slackwater.ingest", "streams imports slackwater.ingest"),
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
        ("windows/a.py", "import polars as pl\nfrom slackwater.progress import Coalescer"),
        ("spark/a.py", "import pyspark\nfrom slackwater.windows import Fixed"),
        ("cli/a.py", "import slackwater as sw\nfrom slackwater import ingest"),
    ],
)
def test_allowed_imports_are_not_reported(tmp_path: Path, file: str, text: str) -> None:
    assert violations(tree(tmp_path, {file: text})) == []
