"""An engine in a process of its own: its runs, with their wall-clock and CPU seconds and peak memory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.announcements import announcement
from benchmarks.processes import cpu_of_tree, forget_peak_of_tree, peak_of_tree

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class EngineRun:
    """A run of an engine that has ended."""

    labels: Mapping[str, Any]
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    error: str | None


def engine_runs(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[EngineRun]:
    """Run a command that reports its runs with `announced_run`, and yield each run when it has ended.

    The CPU seconds are those of the process and of all that it has started. Other output goes to ``log``.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w", encoding="utf-8") as output,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        began = 0.0
        for line in process.stdout:
            fields = announcement(line)
            if fields is None:
                output.write(line)
            elif fields.pop("event") == "begin":
                began = cpu_of_tree(process.pid)
                forget_peak_of_tree(process.pid)
                process.stdin.write("\n")
                process.stdin.flush()
            else:
                seconds, error = fields.pop("seconds"), fields.pop("error")
                cpu = cpu_of_tree(process.pid) - began
                yield EngineRun(fields, seconds, cpu, peak_of_tree(process.pid), error)
    if process.returncode != 0:
        tail = "".join(log.read_text(encoding="utf-8").splitlines(keepends=True)[-30:])
        raise RuntimeError(f"{command[0]} ended with {process.returncode}; the end of {log}:\n{tail}")
