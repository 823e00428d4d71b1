"""Which tests need a JVM: those of Spark's layers, the examples in its docstrings among them."""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "src" / "slackwater"
SPARK = (PACKAGE / "spark", PACKAGE / "ingest" / "spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the examples of Spark's layers, as its tests mark themselves."""
    for item in items:
        if any(folder in item.path.parents for folder in SPARK):
            item.add_marker(pytest.mark.spark)
