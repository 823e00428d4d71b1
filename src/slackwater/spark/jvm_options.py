"""The options with which `session` starts a JVM, unless the user has chosen others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from slackwater.spark.class_archive import class_archive_options

OPTION_VARIABLES: Final = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_SUBMIT_OPTS",
)
"""The environment variables that may contain options of a JVM."""
_DEFAULTS: Final = "spark-defaults.conf"
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
_DRIVER_MEMORY: Final = "spark.driver.memory"
_COLLECTOR: Final = re.compile(r"-XX:[+-]Use\w*GC\b")
_INLINING: Final = re.compile(r"-XX:\w*Inlin\w*=|-Xint\b|-XX:TieredStopAtLevel=")
"""Options with which the user has decided what is inlined, or that nothing is."""
_SMALL_HEAP: Final = 4 << 30
"""In bytes: up to here a collection of the whole heap is short."""
_UNITS: Final = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def jvm_options(settings: Mapping[str, str], jars: Path, *, local: bool) -> list[str]:
    """The options for the JVM of a new session.

    Args:
        settings: The Spark settings of the session.
        jars: The folder with Spark's jar files.
        local: Whether the tasks run in this JVM as well.

    Returns:
        Options for the command ``java``, in addition to those in the settings and in the environment.

    >>> chosen = "-Xshare:off -XX:+UseZGC -XX:FreqInlineSize=325"
    >>> jvm_options({"spark.driver.extraJavaOptions": chosen}, Path("jars"), local=True)
    []
    """
    given = [
        settings.get(_DRIVER_OPTIONS, ""),
        *(os.environ.get(name, "") for name in OPTION_VARIABLES),
        _defaults(jars.parent / "conf"),
    ]
    options = class_archive_options(jars, given)
    if local and not any(_INLINING.search(text) for text in given):
        # Half of the CPU of the first minute compiles code of the driver, most of which runs once in a
        # batch. Smaller methods are compiled sooner and run as fast.
        options.append("-XX:FreqInlineSize=100")
    if local and _is_small(settings.get(_DRIVER_MEMORY, "")) and not any(map(_COLLECTOR.search, given)):
        # A micro-batch leaves little behind. The default collector works next to the tasks, and so takes
        # a tenth of two cores; this one takes a fifth of that.
        options.append("-XX:+UseParallelGC")
    return options


def _defaults(usual: Path) -> str:
    """The file with the user's own settings for all sessions; empty if there is none."""
    file = Path(os.environ.get("SPARK_CONF_DIR") or usual) / _DEFAULTS
    return file.read_text("utf-8", errors="replace") if file.is_file() else ""


def _is_small(memory: str) -> bool:
    """Whether a heap of this size, in Spark's notation, is small; Spark's default is 1 GiB.

    >>> [_is_small(text) for text in ("", "4g", "512m", "5G", "8192", "lots")]
    [True, True, True, False, False, False]
    """
    parsed = re.fullmatch(r"(\d+)([bkmgt]?)b?", memory.strip().lower())
    if not memory.strip():
        return True
    return parsed is not None and int(parsed[1]) * _UNITS[parsed[2] or "m"] <= _SMALL_HEAP
