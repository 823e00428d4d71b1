"""The planner: which ranges of which units to read. Pure Python."""
