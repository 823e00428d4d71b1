"""The code that runs in Spark's Python workers: map tasks, and the buckets of an operator."""
