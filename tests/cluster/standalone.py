"""A standalone Spark cluster on loopback: a master and workers, each in its own process."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

from tests.support.programs import Program

_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_DEPLOY: Final = "org.apache.spark.deploy"


@dataclass(frozen=True)
class Cluster:
    """The address of a running cluster, and its workers."""

    url: str
    workers: tuple[Program, ...]

    def executors(self) -> list[list[int]]:
        """The processes of the running executors, by worker."""
        return [
            [process for process, command in worker.members().items() if _EXECUTOR in command]
            for worker in self.workers
        ]

    def kill_executor(self, process: int) -> None:
        """Kill an executor with SIGKILL; its worker starts another one."""
        os.kill(process, signal.SIGKILL)
        while any(process in executors for executors in self.executors()):
            time.sleep(0.02)


@contextmanager
def running_cluster(
    folder: Path, workers: int = 2, environment: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Run a master and workers with one core each; stop them and their processes at the end.

    ``environment`` has variables for the workers, and so for their executors.
    """
    launcher = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    address = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as stack:
        arguments = [launcher, f"{_DEPLOY}.master.Master", *address, "--port", str(port)]
        master = stack.enter_context(Program(arguments, folder / "master.log"))
        master.wait_until(lambda: "New state: ALIVE" in master.said())
        started: list[Program] = []
        for number in range(workers):
            room = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            arguments = [launcher, f"{_DEPLOY}.worker.Worker", *address, *room, url]
            log = folder / f"worker-{number}.log"
            started.append(stack.enter_context(Program(arguments, log, environment or {})))
        for worker in started:
            worker.wait_until(lambda worker=worker: "Successfully registered" in worker.said())  # type: ignore[misc]
        yield Cluster(url, tuple(started))
