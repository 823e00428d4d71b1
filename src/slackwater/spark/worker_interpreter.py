"""The command that starts Python processes of Spark on this machine.

Spark puts its archive ``pyspark.zip`` first on the path of every Python process that it starts. Python stores
no bytecode for modules in an archive, so each process compiles PySpark again, which takes 0.6 s of CPU. A
query starts six of them before its first batch. If the same PySpark is installed as a package, a script
removes the archives from the path, and starts the interpreter.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import sys
import sysconfig
from pathlib import Path
from typing import Final

from slackwater.spark.internals import path_archives, spark_home
from slackwater.spark.private_files import read_private, write_private

_SCRIPT: Final = """\
#!/bin/sh
# starts Python without the archives of Spark, whose modules are installed and compiled
archives={archives}
PYTHONPATH=${{PYTHONPATH#"$archives":}}
export PYTHONPATH
exec {python} "$@"
"""


def worker_interpreter(folder: Path | None) -> str:
    """The path of the command for Spark's Python processes: a script, or this interpreter.

    Args:
        folder: A private folder for the script; None if there is none.

    >>> worker_interpreter(None) == sys.executable
    True
    """
    if folder is None or not _is_installed():
        return sys.executable
    archives = os.pathsep.join(map(str, path_archives()))
    content = _SCRIPT.format(archives=shlex.quote(archives), python=shlex.quote(sys.executable))
    script = folder / f"python-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    try:
        if not _is_stored(script, content):
            write_private(script, content.encode(), 0o700)
    except OSError:
        return sys.executable  # the script only saves time: a full disk must not keep a session from starting
    # the folder may be on a file system without programs
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _is_stored(script: Path, content: str) -> bool:
    """Whether the file contains this script, and no other user could have written it."""
    try:
        return read_private(script) == content.encode()
    except OSError:
        return False


def _is_installed() -> bool:
    """Whether workers find the PySpark of Spark's archives among the packages of this interpreter."""
    packages = Path(sysconfig.get_path("purelib"))
    py4j = importlib.util.find_spec("py4j")
    return (
        packages / "pyspark" == spark_home()
        and py4j is not None
        and Path(str(py4j.origin)).parent == packages / "py4j"
    )
