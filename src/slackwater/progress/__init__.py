"""How far are we, and who is holding it back? Pure Python, no Spark.

The rules are C1-C10 (coalescing), G1-G9 (generators), S1-S11 (sequences and origins) and A1-A4
(async stages); each module names those it implements. Public names are re-exported by
`slackwater` itself.
"""
