"""Programs in sessions of their own: everything they started dies with them, and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).parents[2]
_PROCESSES: Final = Path("/proc")


@dataclass
class Program:
    """A running program whose standard output and error go into a file; killed at the end of its ``with``."""

    arguments: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """In addition to that of this process."""
    process: subprocess.Popen[bytes] = field(init=False)
    _file: IO[bytes] = field(init=False)

    def __post_init__(self) -> None:
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYSPARK_PYTHON": sys.executable,
            "POLARS_MAX_THREADS": "1",
            **self.environment,
        }
        self._file = self.log.open("wb")
        self.process = subprocess.Popen(
            list(self.arguments),
            env=environment, stdin=subprocess.DEVNULL, stdout=self._file, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait_until(self, condition: Callable[[], bool], timeout: float = 300, interval: float = 0.02) -> None:
        """Waits for something to happen while the program runs; its words are in the failure."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.is_running(), f"it ended with {self.process.returncode}:\n{self.said()[-8000:]}"
            assert time.monotonic() < deadline, f"nothing happened in {timeout} s:\n{self.said()[-8000:]}"
            time.sleep(interval)

    def members(self) -> dict[int, str]:
        """The processes of its session with their commands: whatever it started, in any group."""
        found: dict[int, str] = {}
        for folder in _PROCESSES.iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                    if int(session) == self.process.pid and state != "Z":
                        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                        found[int(folder.name)] = command.decode(errors="replace")
        return found

    def kill(self) -> int:
        """SIGKILL for the program and all it started; how many processes that were."""
        if self._file.closed:
            return 0
        killed = set[int]()
        while members := self.members():
            for process in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                    killed.add(process)
            time.sleep(0.01)
        self.process.wait()
        self._file.close()
        return len(killed)

    def finish(self, timeout: float = 600) -> None:
        """Waits until it ends by itself, and well, with all it started."""
        code = self.process.wait(timeout=timeout)
        assert code == 0, f"it ended with {code}:\n{self.said()[-8000:]}"
        deadline = time.monotonic() + timeout
        while members := self.members():
            assert time.monotonic() < deadline, f"these go on: {members}"
            time.sleep(0.02)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
