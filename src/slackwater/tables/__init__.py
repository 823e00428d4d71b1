"""Lakehouse tables that show the current results of a query: Delta Lake and Apache Iceberg. No Spark."""
