"""The time axis of a job: its bounds, its timezone, and its partitions."""
