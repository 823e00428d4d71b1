"""Which tests need a JVM: those of Spark's layer, the examples in its docstrings among them."""

from __future__ import annotations

from pathlib import Path

import pytest

SPARK = Path(__file__).parent / "src" / "slackwater" / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the examples of Spark's layer, as its tests mark themselves."""
    for item in items:
        if SPARK in item.path.parents:
            item.add_marker(pytest.mark.spark)
