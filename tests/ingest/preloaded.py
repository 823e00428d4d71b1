"""Spark's process that forks Python workers, with what a job needs imported before the first fork."""

from __future__ import annotations

import runpy
import sys

import slackwater.ingest.extraction  # noqa: F401 - imported for those that are forked

if __name__ == "__main__":
    sys.argv[0] = "pyspark.daemon"
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
