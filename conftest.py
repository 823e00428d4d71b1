"""Which tests are about Spark: those of its layers, the examples in their docstrings among them."""

from __future__ import annotations

import gc
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
    folders = {item.path.parent for item in items}
    about_spark = {folder for folder in folders if any(folder.is_relative_to(one) for one in SPARK)}
    for item in items:
        if item.path.parent in about_spark:
            item.add_marker(pytest.mark.spark)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: a tenth of the time went into looking for garbage in it."""
    gc.collect()
    gc.freeze()
