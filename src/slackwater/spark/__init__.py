"""Event time on Spark: streams and panes as DataFrames.

Workers import the modules below one by one, many times in the life of a query, so nothing is imported here.
"""
