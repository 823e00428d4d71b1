"""Which tests are about Spark: those of its layers, the examples in their docstrings among them.

It also keeps the cost of collecting and reporting thousands of small tests low.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parent
SOURCE = ROOT / "src"
SPARK_TESTS = ROOT / "tests" / "spark"

# A JVM of a test seldom lives long enough to gain from a compiler and a collector that take their time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# Tests write nothing into the cache folder of the user, and do not depend on what is there.
os.environ.setdefault("SLACKWATER_CLASS_ARCHIVE", "off")

# PySpark tries to import IPython for every Column. A failed import takes a lock each time, and a garbage
# collection in the middle of it that imports something raises a KeyError in Python 3.11.
if find_spec("IPython") is None:
    sys.modules.setdefault("IPython", None)  # type: ignore[arg-type]


@functools.cache
def uses_spark(path: Path) -> bool:
    """Whether the examples of a module, or the tests of a folder, are about Spark."""
    if path.is_relative_to(SPARK_TESTS):
        return True
    if not path.is_relative_to(SOURCE) or path.suffix != ".py":
        return False
    text = path.read_text(encoding="utf-8")
    return "pyspark" in text or ">>> spark = " in text


def pytest_configure() -> None:
    """Collect without looking for garbage: nearly all of a million objects stay."""
    gc.disable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing of the Spark part in `make check`, which would deselect all of it."""
    return True if "not spark" in config.option.markexpr and uses_spark(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples only in files that contain a prompt."""
    found = yield
    return [each for each in found if not isinstance(each, DoctestModule) or _has_prompt(file_path)]


def _has_prompt(file: Path) -> bool:
    return b">>>" in file.read_bytes()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that belong to the Spark part, so that `make check` can leave them out."""
    for item in items:
        if uses_spark(item.path):
            item.add_marker(pytest.mark.spark)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report the setup and teardown of a test only if they did not pass.

    A process of pytest-xdist sends each report to the first process, which takes as long as a small test.
    """
    if item.config.option.durations is not None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_collection_finish() -> None:
    """What was imported and collected stays: a tenth of the time went into looking for garbage in it.

    Tests are short and leave little behind, so new objects are searched less often than usual, too.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
