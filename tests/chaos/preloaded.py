"""Spark's worker daemon with the modules that workers need imported before the first fork.

A driver that is started twenty times starts hundreds of workers, and most of their short lives would go
into imports. Spark starts this module in the place of its own (``spark.python.daemon.module``).
"""

from __future__ import annotations

import runpy
import sys

import slackwater.spark.api.upsert
import slackwater.spark.api.windowed  # noqa: F401 - imported for the forked workers

if __name__ == "__main__":
    sys.argv[0] = "pyspark.daemon"
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
