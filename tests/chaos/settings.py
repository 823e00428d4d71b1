"""Spark settings for a session that is killed soon: nothing that pays off only later."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

from slackwater.spark.internals import compile_java, define_classes
from slackwater.spark.local_files import CLASS
from slackwater.spark.session import session

SLOW_COMMITS: Final = """
package org.apache.hadoop.fs;

public class SlowCommits extends DirectLocalFileSystem {
    public boolean rename(Path from, Path to) throws java.io.IOException {
        if (to.getParent().getName().equals("commits")) {
            try {
                Thread.sleep(50L);
            } catch (InterruptedException error) {
                throw new java.io.InterruptedIOException(error.getMessage());
            }
        }
        return super.rename(from, to);
    }
}
"""
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def short_lived(preloaded: str) -> dict[str, str]:
    """Settings for a driver whose workers are forked from the module ``preloaded``."""
    return {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.python.daemon.module": preloaded,
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }


def slow_commits(spark: SparkSession) -> None:
    """Let 50 ms pass between the commit of a sink and that of its batch: a kill must hit this moment.

    Only for a local master, whose tasks run in the JVM that gets the class.
    """
    hidden: Any = spark.sparkContext
    assert hidden.master.startswith("local[")
    compiled = compile_java(SLOW_COMMITS)
    define_classes(CLASS, compiled)
    (name,) = compiled
    hidden._jsc.hadoopConfiguration().set("fs.file.impl", name)
    hidden._jvm.org.apache.hadoop.fs.FileSystem.closeAll()


def local_session(name: str) -> SparkSession:
    """A session in this process with two tasks at a time."""
    spark = session(
        name,
        master="local[2]",
        partitions=2,
        config={**short_lived("tests.chaos.preloaded"), "spark.sql.session.timeZone": "UTC"},
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
