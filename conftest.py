"""Which tests are about Spark: those of its layers, the examples in their docstrings among them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
PACKAGE = ROOT / "src" / "slackwater"
SPARK = (
    PACKAGE / "spark",
    PACKAGE / "streams" / "spark",
    PACKAGE / "ingest" / "spark",
    ROOT / "tests" / "spark",
)

# A JVM of a test seldom lives long enough to gain from a compiler and a collector that take their time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, those that start no JVM too: with the others they are the part that takes its time."""
    for item in items:
        if any(folder in item.path.parents for folder in SPARK):
            item.add_marker(pytest.mark.spark)
