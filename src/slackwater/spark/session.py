"""Creating and checking a SparkSession for stateful Python operators.

Three of Spark's defaults do not work: its default state store provider does not support these operators, its
workers start whatever ``python3`` comes first on the path, and 200 shuffle partitions start 200 Python tasks
in every micro-batch. `session` sets what is needed. `check_session` checks a session that was created
elsewhere, before a query starts and fails in a worker or runs slowly.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from pyspark import SparkConf
from pyspark.sql import SparkSession

from slackwater._extras import naming_extras, require_extra
from slackwater.errors import InvalidArgument, InvalidDuration
from slackwater.spark.class_archive import cache_folder, operator_classes, writes_archive
from slackwater.spark.internals import (
    ROCKSDB,
    default_file_system,
    forget_setting_sources,
    is_remote,
    load_classes,
    spark_jars,
    start_gateway,
    worker_python,
)
from slackwater.spark.jvm_options import jvm_options
from slackwater.spark.local_files import local_file_settings
from slackwater.spark.quiet_console import filtered_pipe
from slackwater.spark.versions import FILE_SYSTEM_CHECKPOINTS, SETTINGS, needs
from slackwater.spark.worker_interpreter import worker_interpreter
from slackwater.time import duration

STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PARTITIONS: Final = "spark.sql.shuffle.partitions"
WORKER_PYTHON: Final = "PYSPARK_PYTHON"
MONITOR_VARIABLE: Final = "SLACKWATER_STORE"
"""The environment variable with the URL of the store in which queries are recorded."""
_ARROW_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ARROW_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_CHECKPOINT_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_SIMPLIFIED_TRACEBACKS: Final = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
_UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
_UNIX_SOCKET_FOLDER: Final = "spark.python.unix.domain.socket.dir"
_LONGEST_SOCKET_PARENT: Final = 45
"""In bytes: the path of a socket has at most 103 on macOS, and ``/sw-xxxxxxxx/.<uuid>.sock`` takes 55."""
_CLUSTER_VARIABLES: Final = (
    "MASTER",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "SPARK_REMOTE",
)
"""Environment variables that may choose a master other than this machine."""
_QUERY_MODULES: Final = ("slackwater.spark.api.stream", "slackwater.windows.accumulations")
"""Modules that, with their imports, are most of what building a query needs, but not its session."""
_FEW_ROWS: Final = 10_000
"""Spark's default number of rows in an Arrow batch, which is too low."""
_TASKS_PER_CORE: Final = 4
"""With more stateful tasks per core than this, starting tasks costs more than parallelism saves."""
_creating: Final = Lock()
"""Held while a session is created, which sets environment variables for the JVM that it starts."""


def settings(partitions: int | None = None) -> dict[str, str]:
    """The Spark settings that `session` makes, for a session that is configured elsewhere.

    Args:
        partitions: The number of shuffle partitions; the number of CPU cores if omitted.

    Returns:
        Setting names and values, for ``SparkSession.builder.config`` or a cluster's configuration.

    Raises:
        InvalidArgument: ``partitions`` is less than 1.

    >>> import slackwater as sw
    >>> sw.settings(partitions=4)["spark.sql.shuffle.partitions"]
    '4'
    """
    if partitions is not None and partitions < 1:
        raise InvalidArgument(
            "partitions", partitions, "must be at least 1", fix="omit it for one partition per core"
        )
    return {
        STATE_STORE: ROCKSDB,
        CHANGELOG: "true",
        PARTITIONS: str(partitions or os.cpu_count() or 1),
        _ARROW_ROWS: "200000",
        # A limit in bytes is checked for every row, which costs more than processing the row.
        _ARROW_BYTES: str(2**31 - 1),
        # With simplified tracebacks, stateful operators get Python workers of their own, which start late
        # and import everything again.
        _SIMPLIFIED_TRACEBACKS: "false",
        # There is already one worker per core, so more threads in each would compete for the same cores.
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        **SETTINGS,
    }


def session(
    app_name: str = "slackwater",
    *,
    master: str | None = None,
    remote: str | None = None,
    partitions: int | None = None,
    config: Mapping[str, str] | None = None,
    monitor: str | None = None,
    sample_late: bool = False,
) -> SparkSession:
    """Create a SparkSession with all settings that Slackwater needs, or return the active one.

    Args:
        app_name: The name of the Spark application.
        master: The Spark master, such as ``"local[4]"`` or ``"spark://host:7077"``.
        remote: The URL of a Spark Connect server, or ``"local[2]"`` to start one. The workers of a running
            server need Slackwater installed.
        partitions: The number of shuffle partitions, and so of stateful tasks in a micro-batch; the number
            of CPU cores if omitted. It is fixed by the first start of a query.
        config: Further Spark settings. They override those of `settings`.
        monitor: The URL of a metadata store, such as ``"sqlite:///slackwater.db"``, in which the progress of
            all queries is recorded; the environment variable ``SLACKWATER_STORE`` if omitted.
        sample_late: Whether reports contain the keys of sampled rows that were dropped as late. They are
            left out by default, because reports are stored and shown to others.

    Returns:
        The session, checked by `check_session`.

    Raises:
        InvalidArgument: ``app_name`` is a duration, which was meant for `sessions`; both ``master`` and
            ``remote`` are given; ``partitions`` is less than 1; the active session has settings with which a
            query would fail; or ``monitor`` is not a database URL.
        MissingExtra: ``monitor`` is given without the extra ``sql``, or ``remote`` without ``connect``.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> spark.conf.get("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled")
    'true'
    """
    _check_app_name(app_name)
    if master is not None and remote is not None:
        raise InvalidArgument(
            "remote", remote, f"cannot be combined with master={master!r}", fix="give one of the two"
        )
    if monitor is not None:
        with naming_extras():  # not imported above, because workers do not need SQLAlchemy
            from slackwater.sql.database import database_url
        database_url(monitor)
    if remote is not None:
        require_extra("connect", "grpc", "grpc_status")
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    if remote is not None:
        builder = builder.remote(remote)
    chosen = {**settings(partitions), **(config or {})}
    local = remote is None and is_local_master(master or chosen.get("spark.master"))
    if local and (folder := socket_folder()) is not None:
        # Rows and calls to the state store are faster through Unix domain sockets than through TCP.
        chosen.setdefault(_UNIX_SOCKETS, "true")
        chosen.setdefault(_UNIX_SOCKET_FOLDER, folder)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with _creating, _worker_python(local=local):
        if remote is None and "SPARK_REMOTE" not in os.environ:
            named = {"spark.app.name": app_name} | ({} if master is None else {"spark.master": master})
            with _importing_query_modules():
                start_gateway(named | chosen, filtered_pipe, lambda: _jvm_options(chosen, local=local))
            if local and _is_one_jvm(master or chosen.get("spark.master")):
                for name, value in local_file_settings(chosen, cache_folder()).items():
                    builder = builder.config(name, value)
        with warnings.catch_warnings():
            # A running Spark Connect server keeps its static settings; check_session reports what is missing.
            warnings.filterwarnings("ignore", "Failed to set spark", UserWarning)
            spark = builder.getOrCreate()
    if not is_remote(spark) and _is_local(spark) and spark.conf.get(_CHECKPOINT_MANAGER, None) is None:
        # Spark's default manager runs `readlink` eight times for every file that it writes to a local disk.
        spark.conf.set(_CHECKPOINT_MANAGER, FILE_SYSTEM_CHECKPOINTS)
    if not is_remote(spark):
        forget_setting_sources(spark)
    check_session(spark)
    if monitor is not None:
        _monitors[spark] = monitor
    if sample_late:
        _sampling.add(spark)
    else:
        _sampling.discard(spark)
    return spark


@contextmanager
def _importing_query_modules() -> Iterator[None]:
    """Import the modules that queries need in a thread while the body runs, and wait for it at the end.

    The body starts a JVM, which takes longer than the imports.
    """
    importing = Thread(target=_try_import, args=(_QUERY_MODULES,), daemon=True)
    importing.start()
    try:
        yield
    finally:
        importing.join()


def _try_import(modules: Sequence[str]) -> None:
    """Import modules by name; skip those that cannot be imported, whose first use raises the error."""
    for module in modules:
        with suppress(Exception):
            import_module(module)


@contextmanager
def _worker_python(*, local: bool) -> Iterator[None]:
    """Set the environment variable with the workers' interpreter for the body, unless the user has set it.

    Spark reads the variable when the context starts; the equivalent setting only works in spark-submit.
    """
    chosen = os.environ.setdefault(WORKER_PYTHON, sys.executable)
    if not local or chosen != sys.executable:
        yield
        return
    os.environ[WORKER_PYTHON] = _worker_script()
    try:
        yield
    finally:
        os.environ[WORKER_PYTHON] = chosen


def _jvm_options(chosen: Mapping[str, str], *, local: bool) -> list[str]:
    """The options for a JVM that is about to start, which may write an archive of its classes at exit."""
    options = jvm_options(chosen, spark_jars(), local=local)
    if writes_archive(options):
        atexit.register(_complete_archive)
    return options


def _complete_archive() -> None:
    with suppress(Exception):  # the JVM may have ended already
        load_classes(operator_classes(spark_jars()))


def _check_app_name(name: object) -> None:
    """Raise if session windows were meant: Spark would start, under the name of a duration."""
    gap = name if isinstance(name, timedelta) or (isinstance(name, str) and _is_duration(name)) else None
    if gap is not None or not isinstance(name, str):
        raise InvalidArgument(
            "app_name",
            name,
            "is not the name of a Spark application",
            fix=f"for session windows write sw.sessions(gap={'…' if gap is None else repr(gap)})",
        )


def _is_duration(text: str) -> bool:
    try:
        duration(text)
    except InvalidDuration:
        return False
    return True


_monitors: Final[WeakKeyDictionary[SparkSession, str]] = WeakKeyDictionary()


_sampling: Final[WeakSet[SparkSession]] = WeakSet()


def samples_late(spark: SparkSession) -> bool:
    """Whether reports of a session's queries contain the keys of dropped rows.

    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> samples_late(spark)
    False
    """
    return spark in _sampling


def monitor_url(spark: SparkSession) -> str | None:
    """The store in which the queries of a session are recorded; None if there is none.

    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> monitor_url(spark) == os.environ.get(MONITOR_VARIABLE)
    True
    """
    return _monitors.get(spark) or os.environ.get(MONITOR_VARIABLE) or None


def is_local_master(master: str | None) -> bool:
    """Whether the workers of a new session are certain to run on this machine, with Unix domain sockets.

    On a cluster, the working directories may have paths that are too long for a Unix domain socket.

    >>> is_local_master("local[2]"), is_local_master("spark://host:7077")
    (True, False)
    """
    if os.name != "posix":
        return False
    if master is None:
        return not any(name in os.environ for name in _CLUSTER_VARIABLES)
    return master.startswith("local")


def _is_one_jvm(master: str | None) -> bool:
    """Whether tasks run in the JVM of the driver; ``local-cluster`` starts others. Needs a running JVM."""
    known = master or SparkConf().get("spark.master") or "local"
    return known == "local" or known.startswith("local[")


@cache
def socket_folder() -> str | None:
    """A folder for Unix domain sockets that only this user can enter; None if every path is too long.

    The umask decides who may connect to the sockets that Spark creates, so they need a private folder. There
    is one per process, which removes it at exit.

    >>> os.stat(socket_folder()).st_mode & 0o777 == 0o700
    True
    """
    for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - the folder in it is private
        if len(os.fsencode(parent)) <= _LONGEST_SOCKET_PARENT and os.access(parent, os.W_OK):
            folder = tempfile.mkdtemp(prefix="sw-", dir=parent)
            atexit.register(_remove_folder, folder, os.getpid())
            return folder
    return None


def _remove_folder(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that this one forked
        shutil.rmtree(folder, ignore_errors=True)


class SlowSession(UserWarning):
    """Warning: the settings of a Spark session make queries slower than necessary.

    Silence it with ``warnings.simplefilter("ignore", sw.SlowSession)``.
    """


def check_session(spark: SparkSession) -> None:
    """Raise if queries would fail in this session, and warn if they would be slow.

    Args:
        spark: The session to check.

    Raises:
        InvalidArgument: The state store provider does not support Python operators, or the workers'
            interpreter cannot run them. The message names the setting and the required value.
        NeedsNewerSpark: The session is one of Spark Connect, and PySpark is older than 4.1.

    Warns:
        SlowSession: The message names the settings and better values; `settings` returns all of them.

    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> check_session(spark)
    """
    provider = spark.conf.get(STATE_STORE, None)
    if provider != ROCKSDB:
        raise InvalidArgument(
            STATE_STORE,
            provider,
            "does not support stateful operators in Python",
            fix=f'set it to "{ROCKSDB}", or create the session with slackwater.session()',
        )
    if is_remote(spark):
        needs("A stateful operator over Spark Connect", "4.1", fix="use a session without Spark Connect")
    else:
        _check_workers(spark)
    slow = _slow_settings(spark)
    if slow:
        named = "; ".join(f"{name} = {value!r} {problem}" for name, value, problem in slow)
        warnings.warn(f"{named}; or create the session with slackwater.session()", SlowSession, stacklevel=3)


def _check_workers(spark: SparkSession) -> None:
    """Raise if the workers' interpreter is known to be unable to run the operators."""
    given = os.environ.get(WORKER_PYTHON)
    python = worker_python(spark)
    started = shutil.which(python)
    if started is not None and (_is_this_interpreter(Path(started)) or started == _worker_script()):
        return
    fix = f'set it to "{sys.executable}" before the session is created, or use slackwater.session()'
    if given is None:
        which = f"is not set, so workers start {started or 'nothing'}, which is not this interpreter"
        raise InvalidArgument(WORKER_PYTHON, None, which, fix=fix)
    # The interpreters of a cluster are on other machines; the one of a local session can be run here.
    if str(spark.sparkContext.master).startswith("local") and (problem := _problem(started)) is not None:
        raise InvalidArgument(WORKER_PYTHON, python, problem, fix=fix)


@cache
def _problem(interpreter: str | None) -> str | None:
    """Why an interpreter cannot run the operators; None if it can."""
    if interpreter is None:
        return "does not exist, so no worker would start"
    question = "import sys, slackwater; print(*sys.version_info[:2], sep='.')"
    try:
        answer = subprocess.run([interpreter, "-c", question], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"cannot be started ({error.strerror})"
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["it failed"])[-1]
        return f"starts workers that cannot import slackwater ({last})"
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = answer.stdout.strip()
    return None if found == here else f"is Python {found}, but this process runs Python {here}"


def _slow_settings(spark: SparkSession) -> list[tuple[str, str, str]]:
    """Settings that slow queries down: name, value, and the problem with a better value."""
    wanted = settings()
    slow: list[tuple[str, str, str]] = []
    changelog = str(spark.conf.get(CHANGELOG, "false"))
    if changelog.lower() != "true":
        slow.append((CHANGELOG, changelog, 'writes full snapshots of the state: set it to "true"'))
    rows = str(spark.conf.get(_ARROW_ROWS, "10000"))
    if 0 < int(rows) <= _FEW_ROWS:
        slow.append((_ARROW_ROWS, rows, f"transfers small batches of rows: set it to {wanted[_ARROW_ROWS]}"))
    if not is_remote(spark):
        cores = spark.sparkContext.defaultParallelism
        partitions = str(spark.conf.get(PARTITIONS, "200"))
        if int(partitions) > _TASKS_PER_CORE * cores:
            problem = f"starts that many Python tasks per micro-batch on {cores} cores: set it to {cores}"
            slow.append((PARTITIONS, partitions, problem))
    return slow


_tokens: Final[WeakKeyDictionary[SparkSession, str]] = WeakKeyDictionary()


def session_token(spark: SparkSession) -> str:
    """A random suffix, unique per session, for the names of data sources that are registered in it.

    Spark raises when a name is registered in one session while the active session already has it.

    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> session_token(spark) == session_token(spark) != session_token(spark.newSession())
    True
    """
    return _tokens.setdefault(spark, uuid.uuid4().hex[:12])


@cache
def _worker_script() -> str:
    """The command that starts workers: in the cache folder, or in a folder that is removed at exit."""
    folder = cache_folder()
    if folder is None and (temporary := socket_folder()) is not None:
        folder = Path(temporary)
    return worker_interpreter(folder)


def _is_this_interpreter(path: Path) -> bool:
    # Two virtual environments may share one interpreter file; the folder decides what they can import.
    here = Path(sys.executable)
    return path.parent.samefile(here.parent) and path.samefile(here)


def _is_local(spark: SparkSession) -> bool:
    """Whether everything runs on this machine and the default file system is its local disk."""
    is_local = str(spark.sparkContext.master).startswith("local")
    return is_local and default_file_system(spark).startswith("file:")
