"""Shared fixtures: one SparkSession (two tasks, no UI, quiet), and a real database."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from slackwater.spark.internals import QUERY_LOGGERS
from slackwater.spark.session import PARTITIONS, session
from tests.spark.postgres import Server
from tests.support.sampling import sampled

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Workers import slackwater and tests from the same folders as this process.
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    spark = session(
        "slackwater tests",
        master="local[2]",
        partitions=2,
        config={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.streaming.metricsEnabled": "false",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture
def query_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The errors of queries that PySpark logs."""
    messages: list[str] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    recorder = Recorder()
    loggers = [PySparkLogger.getLogger(name) for name in QUERY_LOGGERS]
    for logger in loggers:
        monkeypatch.setattr(logger, "disabled", False)
        logger.addHandler(recorder)
    yield messages
    for logger in loggers:
        logger.removeHandler(recorder)


@pytest.fixture(params=sampled(["sqlite", "postgresql"], keep=["postgresql"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/truth.db"
    server: Server = request.getfixturevalue("server")
    return server.create_database(f"truth_{time.monotonic_ns()}")


@pytest.fixture
def page_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """The names of the blocks of a page, whose folders are in ``tmp_path``.

    `sw.session()` in a page returns ``spark``, with the settings of the page until the end of the test.
    """
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = {name: str(spark.conf.get(name)) for name in (PARTITIONS, "spark.sql.session.timeZone")}
    yield {"__name__": "__main__"}
    for name, value in before.items():
        spark.conf.set(name, value)
