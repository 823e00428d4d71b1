"""The log: segments, positions, cuts, writers, transactions and readers."""
