"""A SparkSession that can run stateful operators in Python, and the check of one that somebody else made.

Three defaults of Spark stand in the way: its state store provider refuses the operators we need, its
workers start whatever ``python3`` is first on the path, and 200 shuffle partitions run 200 Python tasks
in every micro-batch. `session` sets what is needed; `check_session` finds what is missing in a session
made elsewhere, before a query starts and fails somewhere in a worker, or takes longer than it needs to.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from slackwater.errors import InvalidArgument

STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PARTITIONS: Final = "spark.sql.shuffle.partitions"
WORKER_PYTHON: Final = "PYSPARK_PYTHON"
_ARROW_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ARROW_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_CHECKPOINTS: Final = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_FILE_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
_ELSEWHERE: Final = (
    "MASTER",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "SPARK_REMOTE",
)
"""Where somebody else may have said on which machines Spark runs."""
_FEW_ROWS: Final = 10_000
"""What Spark hands over at a time unless told otherwise, which is too few."""
_TASKS_A_CORE: Final = 4
"""More stateful tasks than this for each core cost more to start than they share work."""


def settings(partitions: int | None = None) -> dict[str, str]:
    """The settings that `session` makes, for a session that is configured elsewhere.

    >>> settings(partitions=4)["spark.sql.shuffle.partitions"]
    '4'
    """
    if partitions is not None and partitions < 1:
        raise InvalidArgument(
            "partitions", partitions, "must be at least 1", fix="leave it out for one a core"
        )
    return {
        STATE_STORE: ROCKSDB,
        CHANGELOG: "true",
        PARTITIONS: str(partitions or os.cpu_count() or 1),
        _ARROW_ROWS: "200000",
        # A limit in bytes would be checked for every row, which costs more than the rows are worth.
        _ARROW_BYTES: str(2**31 - 1),
        # A worker per core already: more threads in each would only get into each other's way.
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
    }


def session(
    app_name: str = "slackwater",
    *,
    master: str | None = None,
    remote: str | None = None,
    partitions: int | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """A SparkSession with everything set that Slackwater needs; the running one, if there is one.

    ``partitions`` is how many stateful tasks run in a micro-batch: one a core of this machine unless
    told otherwise. It is pinned by the first start of a query. ``config`` adds to our settings, or
    overrides them. ``remote`` is the address of a server of Spark Connect, or ``"local[2]"`` for one that
    is started along; the workers of a server that runs already need Slackwater installed.

    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> spark.conf.get("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled")
    'true'
    """
    if master is not None and remote is not None:
        raise InvalidArgument("remote", remote, f"and master, {master!r}, exclude each other", fix="give one")
    # Spark reads this when the context starts; the setting of the same meaning only counts in spark-submit.
    os.environ.setdefault(WORKER_PYTHON, sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    if remote is not None:
        builder = builder.remote(remote)
    chosen = {**settings(partitions), **(config or {})}
    if remote is None and runs_here(master or chosen.get("spark.master")) and not _moved(chosen.values()):
        # Rows and calls to the state store pass through them in less time than through the network's.
        chosen.setdefault(_FILE_SOCKETS, "true")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # A server of Spark Connect keeps what it was started with; whether that will do is checked below.
        warnings.filterwarnings("ignore", "Failed to set spark", UserWarning)
        spark = builder.getOrCreate()
    if not is_remote(spark) and _is_local(spark) and spark.conf.get(_CHECKPOINTS, None) is None:
        # Spark's usual way runs `readlink` eight times for every file that it writes to a local disk.
        spark.conf.set(_CHECKPOINTS, _BY_FILE_SYSTEM)
    check_session(spark)
    return spark


def runs_here(master: str | None) -> bool:
    """Whether it is certain that a session will have its workers on this machine, which has Unix' sockets.

    On a cluster, the folders of workers may have names that are too long for such a socket.

    >>> runs_here("local[2]"), runs_here("spark://there:7077")
    (True, False)
    """
    if os.name != "posix":
        return False
    if master is None:
        return not any(name in os.environ for name in _ELSEWHERE)
    return master.startswith("local")


def _moved(options: Iterable[str]) -> bool:
    """Whether the JVM may have its sockets in another folder than usual, whose name may be too long."""
    given = (os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))
    return any("java.io.tmpdir" in text for text in (*options, *given))


class SlowSession(UserWarning):
    """Warning: the settings of a Spark session make queries slower than necessary.

    Silence it with ``warnings.simplefilter("ignore", sw.SlowSession)``.
    """


def check_session(spark: SparkSession) -> None:
    """Refuse a session in which a query would fail later, and warn of one in which it would be slow.

    Either way the message names the settings, and the values that fit; `settings` has them all.

    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> check_session(spark)
    """
    provider = spark.conf.get(STATE_STORE, None)
    if provider != ROCKSDB:
        raise InvalidArgument(
            STATE_STORE,
            provider,
            "is not the state store that operators written in Python need",
            fix=f'set it to "{ROCKSDB}", or make the session with slackwater.session()',
        )
    if not is_remote(spark):
        _check_workers(spark)
    slow = _slow_settings(spark)
    if slow:
        named = "; ".join(f"{name} = {value!r}, {why}" for name, value, why in slow)
        warnings.warn(f"{named}; or make the session with slackwater.session()", SlowSession, stacklevel=3)


def _check_workers(spark: SparkSession) -> None:
    """Refuse an interpreter of which it is known here that it cannot run our operators."""
    given = os.environ.get(WORKER_PYTHON)
    started = shutil.which(spark.sparkContext.pythonExec)
    if started is not None and _is_this_interpreter(Path(started)):
        return
    fix = f'set it to "{sys.executable}" before the session is made, or use slackwater.session()'
    if given is None:
        which = f"is not set, so workers start {started or 'nothing'}, which is not this interpreter"
        raise InvalidArgument(WORKER_PYTHON, None, which, fix=fix)
    # The interpreters of a cluster are on other machines; those of a local session can be asked.
    if str(spark.sparkContext.master).startswith("local") and (problem := _problem(started)) is not None:
        raise InvalidArgument(WORKER_PYTHON, spark.sparkContext.pythonExec, problem, fix=fix)


@cache
def _problem(interpreter: str | None) -> str | None:
    """Why an interpreter cannot run our operators; None if it can."""
    if interpreter is None:
        return "does not exist, so no worker would start"
    question = "import sys, slackwater; print(*sys.version_info[:2], sep='.')"
    try:
        asked = subprocess.run([interpreter, "-c", question], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"cannot be started ({error.strerror})"
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["it failed"])[-1]
        return f"starts workers that cannot import slackwater ({last})"
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = asked.stdout.strip()
    return None if found == mine else f"is Python {found}, but this process runs {mine}"


def _slow_settings(spark: SparkSession) -> list[tuple[str, str, str]]:
    """Settings that cost time, with their values and what would be better."""
    wanted = settings()
    slow: list[tuple[str, str, str]] = []
    changelog = str(spark.conf.get(CHANGELOG, "false"))
    if changelog.lower() != "true":
        slow.append((CHANGELOG, changelog, 'which writes all state anew again and again: set it to "true"'))
    rows = str(spark.conf.get(_ARROW_ROWS, "10000"))
    if 0 < int(rows) <= _FEW_ROWS:
        better = f"which hands rows over in small pieces: set it to {wanted[_ARROW_ROWS]}"
        slow.append((_ARROW_ROWS, rows, better))
    if not is_remote(spark):
        cores = spark.sparkContext.defaultParallelism
        partitions = str(spark.conf.get(PARTITIONS, "200"))
        if int(partitions) > _TASKS_A_CORE * cores:
            better = f"each a Python task in every batch, for {cores} cores: set it to {cores}"
            slow.append((PARTITIONS, partitions, better))
    return slow


_marks: Final[WeakKeyDictionary[SparkSession, str]] = WeakKeyDictionary()


def session_mark(spark: SparkSession) -> str:
    """A few letters that no other session has, for the names of data sources that are registered in it.

    Spark refuses to register a name in one session if the session that is active at the time has it.

    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> session_mark(spark) == session_mark(spark) != session_mark(spark.newSession())
    True
    """
    return _marks.setdefault(spark, uuid.uuid4().hex[:12])


def _is_this_interpreter(path: Path) -> bool:
    # The interpreters of two virtual environments may be one file; the folder tells what they can import.
    mine = Path(sys.executable)
    return path.parent.samefile(mine.parent) and path.samefile(mine)


def _is_local(spark: SparkSession) -> bool:
    """Whether everything runs on this machine, and files are on its disk unless their names say otherwise."""
    files = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")  # noqa: SLF001 - no other way
    return str(spark.sparkContext.master).startswith("local") and str(files).startswith("file:")


def is_remote(spark: SparkSession) -> bool:
    """Whether the workers belong to a server of Spark Connect, whose interpreter is its own business.

    >>> is_remote(session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"}))
    False
    """
    return type(spark).__module__.startswith("pyspark.sql.connect")
