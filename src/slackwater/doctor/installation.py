"""Checks of Python, its packages, Java, Spark's configuration files and the disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from slackwater.doctor.findings import Finding, Level
from slackwater.spark.session import CHANGELOG, STATE_STORE, settings

OLDEST_PYTHON: Final = (3, 11)
OLDEST_JAVA: Final = 17
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_REQUIREMENT: Final = re.compile(r"^([A-Za-z0-9._-]+)\s*([<>=,.0-9 ]*)")
_LEAST_BYTES: Final = 2_000_000_000
_LEAST_SHARE: Final = 0.05
_JAVA_FIX: Final = f"install Java {OLDEST_JAVA} or newer, and set JAVA_HOME to its folder"


def check_python(found: tuple[int, int, int] = sys.version_info[:3]) -> Finding:
    """Whether the interpreter is new enough.

    >>> check_python((3, 9, 1)).level
    'error'
    """
    text = f"Python {'.'.join(map(str, found))}"
    if found[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Finding("error", "python", f"{text} is too old", f"use Python {oldest} or newer")
    return Finding("ok", "python", text)


def check_packages() -> Iterator[Finding]:
    """Whether the packages that Slackwater depends on have versions that it supports.

    >>> [finding.level for finding in check_packages()]
    ['ok']
    """
    problems = 0
    for text in requires("slackwater") or []:
        if ";" in text:
            continue  # of an extra
        name, wanted = _REQUIREMENT.findall(text)[0]
        try:
            found = version(name)
        except PackageNotFoundError:
            problems += 1
            yield Finding("error", name, "is not installed", f'run: pip install "{text}"')
            continue
        if not satisfies(found, wanted):
            problems += 1
            needs = f"has version {found}, but Slackwater needs {wanted}"
            yield Finding("error", name, needs, f'run: pip install "{text}"')
    if not problems:
        yield Finding("ok", "packages", f"Spark {version('pyspark')} and all others are supported")


def satisfies(found: str, wanted: str) -> bool:
    """Whether a version is within bounds that are written with ``>=`` and ``<``.

    >>> satisfies("4.3.1", ">=4.3,<4.4"), satisfies("3.0", "<3,>=2.2"), satisfies("1.9", "")
    (True, False, True)
    """
    have = _numbers(found)
    bounds = [
        (bound[:2] if bound[1] == "=" else bound[0], bound.lstrip("<>="))
        for bound in wanted.split(",")
        if bound
    ]
    return all(have >= _numbers(at) if sign == ">=" else have < _numbers(at) for sign, at in bounds)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def check_java() -> Finding:
    """Whether a Java that Spark supports is found, in ``JAVA_HOME`` or on the ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        return Finding("error", "java", "is neither in JAVA_HOME nor on the PATH", _JAVA_FIX)
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("error", "java", f"{program} cannot be started ({error})", _JAVA_FIX)
    return java_finding(answer.stderr + answer.stdout, program)


def java_finding(text: str, program: str) -> Finding:
    """Whether the text that ``java -version`` prints is of a supported version.

    >>> java_finding('openjdk version "1.8.0_392"', "java").text
    'java is Java 8, which Spark does not support'
    """
    found = _JAVA_VERSION.search(text)
    if found is None:
        return Finding("warning", "java", f"{program} does not report its version", _JAVA_FIX)
    number = int(found[1])
    if number < OLDEST_JAVA:
        return Finding(
            "error", "java", f"{program} is Java {number}, which Spark does not support", _JAVA_FIX
        )
    return Finding("ok", "java", f"Java {number}")


def check_spark_defaults() -> Finding:
    """Whether ``spark-defaults.conf`` has settings with which queries fail or are slow."""
    folder = os.environ.get("SPARK_CONF_DIR") or (
        f"{home}/conf" if (home := os.environ.get("SPARK_HOME")) else None
    )
    file = None if folder is None else Path(folder) / "spark-defaults.conf"
    if file is None or not file.is_file():
        return Finding("ok", "session", "no spark-defaults.conf; sw.session() makes all settings")
    return defaults_finding(file.read_text(encoding="utf-8", errors="replace"), str(file))


def defaults_finding(text: str, file: str) -> Finding:
    """Whether the text of a ``spark-defaults.conf`` contradicts what Slackwater needs.

    >>> defaults_finding("spark.sql.streaming.stateStore.providerClass  org.example.Store", "f").level
    'error'
    """
    lines = (line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#"))
    found = {parts[0].rstrip("=:"): parts[1].strip() for parts in lines if len(parts) == 2}
    wanted = settings()
    effects: tuple[tuple[str, Level, str], ...] = (
        (STATE_STORE, "error", "does not support stateful operators in Python"),
        (CHANGELOG, "warning", "makes Spark write full snapshots of the state"),
    )
    for name, level, effect in effects:
        if name in found and found[name] != wanted[name]:
            problem = f"{name} = {found[name]!r} in {file} {effect}"
            return Finding(level, "session", problem, f"set it to {wanted[name]}")
    return Finding("ok", "session", f"{file} does not contradict what Slackwater needs")


def check_disk(folder: Path, what: str) -> Finding:
    """Whether there is space left on the disk of a folder.

    Args:
        folder: The folder, or a file in it.
        what: What is stored there.

    >>> check_disk(Path("no-such-folder") / "store.db", "the metadata store").check
    'disk'
    """
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    usage = shutil.disk_usage(existing)
    text = f"{usage.free / 1e9:.1f} GB free for {what} in {existing}"
    if usage.free < _LEAST_BYTES or usage.free < _LEAST_SHARE * usage.total:
        fix = "free space, or move it: a full disk stops queries"
        return Finding("warning", "disk", f"only {text}", fix)
    return Finding("ok", "disk", text)


def spark_scratch() -> Path:
    """The folder in which Spark keeps state and shuffle files of this machine.

    >>> spark_scratch().is_absolute()
    True
    """
    given = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0].strip()
    return Path(given or tempfile.gettempdir()).absolute()
