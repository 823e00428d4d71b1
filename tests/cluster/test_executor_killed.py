"""A stream on two workers gives the same result if executors are killed in the middle of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.queries import Query
from tests.chaos.workload import workload
from tests.cluster.standalone import running_cluster
from tests.spark.postgres import running_server
from tests.support.programs import Program

BATCHES: Final = 16
KILLED_AFTER: Final = (2, 5, 8, 11)
"""The numbers of committed batches after which an executor is killed."""
SEED: Final = 5


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.proof
def test_a_stream_survives_killed_executors(tmp_path: Path) -> None:
    load = workload(BATCHES, seed=SEED)
    load.write(tmp_path / "in")
    with running_server() as server, running_cluster(tmp_path) as cluster:
        url = server.create_database("cluster")
        query = Query(tmp_path, url, "table-fixed")
        arguments = [str(tmp_path), url, cluster.url, str(BATCHES), str(SEED), "ends", query.name]
        command = [sys.executable, "-m", "tests.chaos.driver", *arguments]
        with Program(command, tmp_path / "driver.log") as driver:
            for number, batches in enumerate(KILLED_AFTER):
                driver.wait_until(lambda batches=batches: query.committed() >= batches)  # type: ignore[misc]
                driver.wait_until(lambda: all(cluster.executors()))  # both workers take part
                victim = cluster.executors()[number % 2][0]
                driver.wait_until(lambda: query.planned() > query.committed())
                cluster.kill_executor(victim)
                assert query.committed() < BATCHES, "the stream was over before an executor could be killed"
            driver.finish()
            assert driver.said().count("Lost executor") >= len(KILLED_AFTER), "Spark did not notice"
        query.check(load)
