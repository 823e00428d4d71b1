"""The one SparkSession of these tests is that of the other Spark tests."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
