"""Streams on Spark: the data source ``slackwater`` for streaming and batch reads and writes."""
