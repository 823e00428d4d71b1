"""Watermarks: generated, tracked, coalesced and explained. Pure Python, without Spark.

The rules are in docs/spec/progress.md: C1 to C10 (coalescing), G1 to G9 (generators), S1 to S11 (sequences
and origins) and A1 to A4 (async stages). Each module names the rules that it implements. `slackwater`
re-exports the public names.
"""
