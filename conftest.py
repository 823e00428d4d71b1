"""Which tests need a JVM: those of Spark's layer, the examples in its docstrings among them."""

from __future__ import annotations

from pathlib import Path

import pytest

SPARK = Path(__file__).parent / "src" / "slackwater" / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the examples, and keep everything with a JVM in one process: two at once starve each other."""
    for item in items:
        if SPARK in item.path.parents:
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
