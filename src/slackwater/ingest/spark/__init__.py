"""Extraction on Spark: sources that read a range, targets that replace it."""
