"""Spark settings for a session that is killed soon: nothing that pays off only later."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from slackwater.spark.session import session

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
