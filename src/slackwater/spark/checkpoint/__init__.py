"""Checkpoints of stopped queries: reading the state of their operators, and changing its partitions."""
