"""Streams on Spark: the format ``slackwater`` for reading and writing, as streams and in batches."""
