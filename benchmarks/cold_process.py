"""Measurements in a new process, which nothing has warmed up."""

from __future__ import annotations

import subprocess
import sys
from typing import TypeVar

import msgspec

Result = TypeVar("Result")


def in_new_process(module: str, kind: type[Result], *arguments: object) -> Result:
    """Run a module of this package with arguments, and return the result that it prints as its last line.

    >>> in_new_process("benchmarks.cold_process", list[str], "a", 1)
    ['a', '1']
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command[2:])}: {done.stderr[-2000:]}"
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=kind)


def print_result(result: object) -> None:
    """Print the result of this process for the one that has started it."""
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    print_result(sys.argv[1:])
