"""Windows of other engines, each in an environment of its own, compared with the truth and timed."""
