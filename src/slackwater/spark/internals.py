"""Private and undocumented names of Spark, all of them in this module.

Slackwater goes through Spark's public API wherever there is one. What is left is here, so that a new Spark
release has to be checked in one place: `tests/spark/test_internals.py` has a test for each function.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from pkgutil import iter_modules
from threading import Lock
from typing import Any, Final, cast

from py4j.clientserver import ClientServer  # type: ignore[import-untyped]
from py4j.java_gateway import get_method  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError as JavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkValueError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

__all__ = [
    "QUERY_LOGGERS",
    "ROCKSDB",
    "UNSUPPORTED",
    "JavaError",
    "compile_java",
    "declare_columns",
    "default_file_system",
    "define_classes",
    "forget_setting_sources",
    "hadoop_build",
    "hadoop_setting",
    "is_remote",
    "is_streaming_query",
    "java_causes",
    "listen_to_metrics",
    "listen_to_offsets",
    "load_classes",
    "path_archives",
    "pins_threads",
    "register_source",
    "repartition_checkpoint",
    "run_in_background",
    "silence_standard_error",
    "skip_source_lookup",
    "spark_home",
    "spark_jars",
    "start_gateway",
    "stop_surplus_monitors",
    "streaming_source_options",
    "without_query_log",
    "worker_python",
]

UNSUPPORTED: Final = (JavaError, Py4JError, AttributeError, TypeError)
"""What a private name of Spark or Hadoop raises in a version that does not have it."""
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_ACCUMULATORS: Final = "__python_accumulator__"
_PLANNING_SESSION: Final = "_slackwater_planning_session"
_PIPELINE_SESSION: Final = "_slackwater_pipeline_session"
_JVM_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""The environment variable with further options for the JVM that Spark's scripts start."""
_DRIVER_PYTHON: Final = "PYSPARK_DRIVER_PYTHON"
_WORKER_PYTHON: Final = "PYSPARK_PYTHON"
"""The environment variables with other interpreters, in which Spark would look for data sources."""
_FACTORY_OF_MONITOR: Final = "org$apache$spark$api$python$PythonWorkerFactory$MonitorThread$$$outer"


def is_remote(spark: SparkSession) -> bool:
    """Whether the session belongs to Spark Connect, so that there is no JVM in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def pins_threads(spark: SparkSession) -> bool:
    """Whether each thread of Python has a thread of its own in the JVM, with the properties of its jobs.

    It has by default; the environment variable ``PYSPARK_PIN_THREAD=false`` turns it off.
    """
    return not is_remote(spark) and isinstance(cast(Any, spark.sparkContext)._gateway, ClientServer)  # noqa: SLF001


def is_streaming_query(value: object) -> bool:
    """Whether a value is a streaming query, also one of Spark Connect, which has a class of its own."""
    remote = type(value).__module__ == "pyspark.sql.connect.streaming.query"
    return isinstance(value, StreamingQuery) or remote


def default_file_system(spark: SparkSession) -> str:
    """The URL of the Hadoop default file system, such as ``file:///``; not available on Spark Connect."""
    return str(cast(Any, spark.sparkContext)._jsc.hadoopConfiguration().get("fs.defaultFS"))  # noqa: SLF001


def hadoop_setting(name: str) -> str | None:
    """The value of a Hadoop setting that a new session of this JVM would have; None if it is not set."""
    value = SparkConf().get(f"spark.hadoop.{name}", None)
    if value is None:
        value = cast(Any, SparkContext)._jvm.org.apache.hadoop.conf.Configuration().get(name)  # noqa: SLF001
    return None if value is None else str(value)


def forget_setting_sources(spark: SparkSession) -> None:
    """Delete Hadoop's record of the file that each setting comes from; not available on Spark Connect.

    Spark serializes the Hadoop configuration three times in a micro-batch. Hadoop compresses the recorded
    source of each of about a thousand settings separately, which takes longer than serializing their values.
    Nothing in Spark reads the sources. The values stay as they are.
    """
    settings = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()  # noqa: SLF001
    with suppress(*UNSUPPORTED):  # another version of Hadoop
        sources = settings.getClass().getDeclaredField("updatingResource")
        sources.setAccessible(True)
        if (found := sources.get(settings)) is not None:
            # In one call: found.clear() of Py4J removes the settings one by one, with five calls for each.
            get_method(found, "clear")()


def worker_python(spark: SparkSession) -> str:
    """The interpreter that Spark starts for its Python workers; not available on Spark Connect."""
    return str(spark.sparkContext.pythonExec)


def streaming_source_options(df: DataFrame) -> Iterator[Mapping[str, str]]:
    """The options of each streaming source in the plan of a DataFrame."""
    if is_remote(df.sparkSession):
        remote = cast(Any, df)
        return _options_in_proto(remote._plan.to_proto(remote.sparkSession.client))  # noqa: SLF001
    return _options_in_plan(df)


def _options_in_plan(df: DataFrame) -> Iterator[Mapping[str, str]]:
    leaves = cast(Any, df)._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        match leaf.getClass().getSimpleName():
            case "StreamingRelationV2":
                yield dict(leaf.extraOptions().asCaseSensitiveMap())
            case "StreamingRelation":
                pairs = leaf.dataSource().options().toList()
                yield {pairs.apply(each)._1(): pairs.apply(each)._2() for each in range(pairs.size())}  # noqa: SLF001


def _options_in_proto(message: Any) -> Iterator[Mapping[str, str]]:
    """The same for a Spark Connect plan, which has not been sent to the server yet."""
    if message.DESCRIPTOR.name == "Read":
        if message.is_streaming:
            yield dict(message.data_source.options) | dict(message.named_table.options)
        return
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else (value,):
                yield from _options_in_proto(each)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source with a session, also if Slackwater was shipped with ``--py-files``.

    Spark gives such an archive to tasks, but not to the process that plans the batches of a source.
    """
    archive = getattr(__spec__.loader, "archive", None)
    if archive is not None and not is_remote(spark):
        environment = spark.sparkContext.environment
        paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        if archive not in paths:
            environment["PYTHONPATH"] = os.pathsep.join([*paths, archive])
    if not is_remote(spark):
        skip_source_lookup()
    spark.dataSource.register(source)
    if not is_remote(spark):
        # Spark looks for the source of a writer in the active session of the thread, and nowhere else
        classic = cast(Any, spark)
        sessions = classic._get_j_spark_session_class(classic._jvm)  # noqa: SLF001
        sessions.setActiveSession(classic._jsparkSession)  # noqa: SLF001
    pipeline = getattr(spark, _PIPELINE_SESSION, None)
    if pipeline is not None:
        # in a thread of its own, which has none of the context by which Spark recognizes a query function
        with ThreadPoolExecutor(1) as thread:
            thread.submit(pipeline.dataSource.register, source).result()


def skip_source_lookup() -> bool:
    """Let Spark know that no installed package has a Python data source; return whether it is known now.

    Spark would start a Python process to look for modules whose name begins with ``pyspark_``, before the
    first data source of a JVM is registered. Does nothing if there are any, or if Spark has looked already.
    """
    other = _DRIVER_PYTHON in os.environ or os.environ.get(_WORKER_PYTHON, sys.executable) != sys.executable
    if other or any(one.name.startswith("pyspark_") for one in iter_modules()):
        return False
    jvm = cast(Any, SparkContext)._jvm  # noqa: SLF001
    try:
        manager = getattr(
            getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$"), "MODULE$"
        )
        if manager.dataSourceBuilders().isEmpty():
            nothing = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(jvm.java.util.HashMap())
            getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Some(nothing))
    except UNSUPPORTED:  # another version of Spark: it looks itself
        return False
    return True


def declare_columns(df: DataFrame, schema: StructType | str) -> DataFrame:
    """A Spark Connect DataFrame that is analyzed as if it had these columns, without asking the server.

    Analysis requests go to a clone of the session, with an empty source in place of the plan of ``df``. The
    plan that any other session sends contains the plan of ``df``.
    """
    from pyspark.sql.connect.dataframe import DataFrame as RemoteFrame
    from pyspark.sql.connect.plan import LogicalPlan

    pipeline, given = df.sparkSession, cast(Any, df)._plan  # noqa: SLF001
    planning: Any = _planning_session(pipeline)
    if isinstance(schema, str):  # parsed by the server
        schema = cast(StructType, planning.createDataFrame([], schema).schema)
    streaming = any(True for _ in _options_in_proto(given.to_proto(cast(Any, pipeline).client)))
    empty = planning.readStream.format("rate").load() if streaming else planning.range(0)
    columns = (sql.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields)
    stand_in = empty.select(*columns)._plan  # noqa: SLF001

    class DeclaredColumns(LogicalPlan):
        """The plan of ``df``, or its stand-in for requests of the planning session."""

        def __init__(self) -> None:
            super().__init__(None)

        def plan(self, session: Any) -> Any:
            relation = (stand_in if session is planning.client else given).plan(session)
            relation.common.plan_id = self._plan_id
            return relation

    return cast(DataFrame, RemoteFrame(DeclaredColumns(), planning))


def _planning_session(spark: SparkSession) -> SparkSession:
    """A clone of a Spark Connect session, one for each; data sources are registered with both."""
    client = cast(Any, spark).client
    found: SparkSession | None = getattr(client, _PLANNING_SESSION, None)
    if found is None:
        found = cast(SparkSession, cast(Any, spark).cloneSession())
        setattr(found, _PIPELINE_SESSION, spark)
        setattr(client, _PLANNING_SESSION, found)
        _close_together(client, cast(Any, found).client)
        _accept_accumulators(client)
    return found


def _accept_accumulators(client: Any) -> None:
    """Let the events of a pipeline end with the accumulators of Python workers.

    The server sends them after any function in Python has run. The client then ends with UNKNOWN_RESPONSE,
    and the pipeline with exit code 1 although it has succeeded (seen in Spark 4.3).
    """
    execute = client.execute_command_as_iterator

    def accepting(*arguments: Any, **options: Any) -> Iterator[Any]:
        try:
            yield from execute(*arguments, **options)
        except PySparkValueError as error:
            if error.getCondition() != "UNKNOWN_RESPONSE" or _ACCUMULATORS not in str(error):
                raise

    client.execute_command_as_iterator = accepting


def _close_together(client: Any, other: Any) -> None:
    """Close another client with a client; otherwise the process waits for the server at its end."""
    close = client.close

    def close_both() -> None:
        other.release_session()
        other.close()
        close()

    client.close = close_both


def repartition_checkpoint(spark: SparkSession, checkpoint: str, partitions: int) -> bool:
    """Distribute the state of a stopped query over another number of shuffle partitions.

    Spark writes a new micro-batch without input rows. Since Spark 4.2, but not on Spark Connect; returns
    False where it is not available.
    """
    manager = getattr(spark, "_streamingCheckpointManager", None)
    if manager is None or is_remote(spark):
        return False
    manager.repartition(checkpoint, partitions)
    return True


def run_in_background(df: DataFrame, description: str) -> Any:
    """Start a job that computes all rows of a batch DataFrame and discards them; not for Spark Connect.

    Returns:
        The job as a Java future: ``get()`` waits for it.
    """
    context = df.sparkSession.sparkContext
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(description)
    try:
        return cast(Any, df)._jdf.toJavaRDD().countAsync()  # noqa: SLF001
    finally:
        context.setLocalProperty("spark.job.description", cast(str, before))


class _ProgressCallback:
    """Implements the Java interface of a listener, and passes on the progress of a batch as a Java object."""

    class Java:
        """What Py4J reads from a class that implements an interface."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def __init__(self, on_progress: Callable[[Any], None]) -> None:
        self._on_progress = on_progress

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self._on_progress(event.progress())

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    onQueryIdle = onQueryTerminated = onQueryStarted  # noqa: N815 - Spark's names


def listen_to_metrics(
    spark: SparkSession, on_metrics: Callable[[str, str | None, Mapping[str, str]], None]
) -> None:
    """Call a function with the observed metrics of every batch of a session; not for Spark Connect.

    Args:
        spark: The session.
        on_metrics: Gets the id and the name of the query, and each metric by its name as a JSON object.
    """

    def read_metrics(progress: Any) -> None:
        observed = progress.observedMetrics()
        if names := list(observed.keySet().toArray()):
            metrics = {str(name): str(observed.get(name).json()) for name in names}
            on_metrics(str(progress.id().toString()), progress.name(), metrics)

    _listen(spark, read_metrics)


def listen_to_offsets(
    spark: SparkSession, on_offsets: Callable[[Sequence[tuple[str | None, str | None]]], None]
) -> None:
    """Call a function with the offsets of every batch of a session; not for Spark Connect.

    Args:
        spark: The session.
        on_offsets: Gets the start and the end offset of every source.
    """

    def read_offsets(progress: Any) -> None:
        on_offsets([(source.startOffset(), source.endOffset()) for source in progress.sources()])

    _listen(spark, read_offsets)


def _listen(spark: SparkSession, on_progress: Callable[[Any], None]) -> None:
    """Call a function with the progress of every batch, as a Java object.

    A `StreamingQueryListener` in Python gets the whole progress as a Python object, for which Spark makes
    some hundred calls from Python to the JVM.
    """
    gateway = cast(Any, SparkContext)._gateway  # noqa: SLF001
    cast(Any, ensure_callback_server_started)(gateway)
    wrapper = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
    cast(Any, spark.streams)._jsqm.addListener(wrapper(_ProgressCallback(on_progress)))  # noqa: SLF001


QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""The loggers to which PySpark writes every error that refers to a part of a query, as JSON with all frames.

They print to standard error, also if the error is caught, and the messages may contain values of rows.
"""


@dataclass
class _QueryLog:
    """Whether the query loggers are disabled, by how many blocks of all threads."""

    lock: Lock
    blocks: int
    before: list[bool]


_query_log: Final = _QueryLog(Lock(), 0, [])


@contextmanager
def without_query_log() -> Iterator[None]:
    """Do not print errors of queries until the last of these blocks has ended, in any thread."""
    loggers = [PySparkLogger.getLogger(name) for name in QUERY_LOGGERS]
    with _query_log.lock:
        if _query_log.blocks == 0:
            _query_log.before = [logger.disabled for logger in loggers]
        _query_log.blocks += 1
        for logger in loggers:
            logger.disabled = True
    try:
        yield
    finally:
        with _query_log.lock:
            _query_log.blocks -= 1
            if _query_log.blocks == 0:
                for logger, disabled in zip(loggers, _query_log.before, strict=True):
                    logger.disabled = disabled


def load_classes(names: Iterable[str]) -> int:
    """Load classes in the JVM of this process, and return how many could be loaded."""
    jvm = cast(Any, SparkContext)._jvm  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loaded = 0
    for name in names:
        with suppress(JavaError):  # some need packages that are not there
            jvm.java.lang.Class.forName(name, False, loader)  # noqa: FBT003 - without running its initializers
            loaded += 1
    return loaded


def compile_java(source: str) -> dict[str, bytes]:
    """Compile the source of a Java class with the compiler of Spark's generated code.

    Returns:
        The bytecode of the class and of those inside it, by their names.
    """
    compiler = cast(Any, SparkContext)._jvm.org.codehaus.janino.SimpleCompiler()  # noqa: SLF001
    compiler.cook(source)
    return {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}


def define_classes(neighbour: str, bytecode: Mapping[str, bytes]) -> None:
    """Add classes to the JVM of this process.

    Nested classes are defined before those that contain them. So if the outermost class exists, all do, even
    if an earlier call has failed.

    Args:
        neighbour: A class that the JVM has, in whose package the others are.
        bytecode: The bytecode of each class by its name.
    """
    jvm = cast(Any, SparkContext)._jvm  # noqa: SLF001
    handles = jvm.java.lang.invoke.MethodHandles
    package = handles.privateLookupIn(jvm.java.lang.Class.forName(neighbour), handles.lookup())
    for name in sorted(bytecode, key=lambda one: one.count("$"), reverse=True):
        package.defineClass(bytecode[name])


def hadoop_build() -> str:
    """The version, revision and build of the Hadoop in the JVM of this process."""
    jvm = cast(Any, SparkContext)._jvm  # noqa: SLF001
    return str(jvm.org.apache.hadoop.util.VersionInfo.getBuildVersion())


def spark_jars() -> Path:
    """The folder with the jar files of the installed Spark."""
    return spark_home() / "jars"


def spark_home() -> Path:
    """The folder of the installed Spark."""
    return Path(_find_spark_home())


def path_archives() -> list[Path]:
    """The archives that Spark puts first on the path of every Python process, in this order."""
    folder = spark_home() / "python" / "lib"
    return [folder / "pyspark.zip", *folder.glob("py4j-*-src.zip")]


def start_gateway(
    settings: Mapping[str, str], standard_error: Callable[[], int], options: Callable[[], Sequence[str]]
) -> None:
    """Start the JVM of this process with another standard error; does nothing if there is a JVM already.

    In a program of spark-submit, which has started the JVM, connect to it.

    Args:
        settings: The Spark settings of the session that is about to be created.
        standard_error: Returns a file descriptor for the JVM, which is closed here.
        options: Returns further options for the JVM.
    """
    if cast(Any, SparkContext)._gateway is not None:  # noqa: SLF001
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        cast(Any, SparkContext)._ensure_initialized()  # noqa: SLF001
        return
    conf = SparkConf().setAll(list(settings.items()))
    before = os.environ.get(_JVM_OPTIONS)
    further = [*([] if before is None else [before]), *options()]
    descriptor = standard_error()
    try:
        os.environ[_JVM_OPTIONS] = " ".join(further)
        gateway = cast(Any, launch_gateway)(conf, popen_kwargs={"stderr": descriptor})
    finally:
        os.close(descriptor)
        del os.environ[_JVM_OPTIONS]
        if before is not None:
            os.environ[_JVM_OPTIONS] = before
    cast(Any, SparkContext)._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001


def silence_standard_error(spark: SparkSession) -> None:
    """Discard what the JVM prints to standard error from now on; does nothing on Spark Connect.

    A session that stops while cancelled tasks end prints stack traces of threads that find it closed.
    """
    if not is_remote(spark):
        jvm = cast(Any, spark.sparkContext)._jvm  # noqa: SLF001
        jvm.System.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))


def stop_surplus_monitors(spark: SparkSession, *, kept: int = 16) -> int:
    """Stop threads that Spark leaves behind each time a streaming query starts.

    Spark starts a Python process on the driver for every Python source and every stateful operator of a
    query, each with a thread that looks for idle workers every ten seconds. These processes have no idle
    workers, and nothing stops the thread when the query stops.

    Returns:
        The number of threads that were stopped: none while there are at most ``kept`` threads of this kind.
        Always 0 on Spark Connect.
    """
    if is_remote(spark):
        return 0
    jvm = cast(Any, spark.sparkContext)._jvm  # noqa: SLF001
    named = f"Idle Worker Monitor for {worker_python(spark)}"
    threads = jvm.org.apache.commons.lang3.ThreadUtils.findThreadsByName(named)
    if threads.size() <= kept:
        return 0
    # Stopping a thread is an uncaught InterruptedException, which Java would print.
    kind = jvm.java.lang.invoke.MethodType.fromMethodDescriptorString(
        "(Ljava/lang/Thread;Ljava/lang/Throwable;)V", None
    )
    ignore = jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
        jvm.java.lang.Class.forName("java.lang.Thread$UncaughtExceptionHandler"),
        jvm.java.lang.invoke.MethodHandles.empty(kind),
    )
    stopped = 0
    for thread in threads.toArray():
        # The daemon has a pool of workers, whose monitor is needed.
        if not getattr(thread, _FACTORY_OF_MONITOR)().useDaemonEnabled():
            thread.setUncaughtExceptionHandler(ignore)
            thread.interrupt()
            stopped += 1
    return stopped


def java_causes(error: Exception) -> Iterator[str]:
    """The JVM exception behind an error and its chain of causes, as text; empty on Spark Connect."""
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while thrown is not None:
        yield str(thrown.toString())
        thrown = thrown.getCause()
