"""Telemetry that outlives the process: the states of Spark queries, in the metadata store.

`query_state` defines the values, `recorder` writes them in a background thread, `monitor` reads them, and
`sentence` explains a query in one line. None of them needs Spark, so that a console or a command line that
reads the store starts at once.
"""
