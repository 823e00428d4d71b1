"""OpenLineage events of ingestion runs and of queries, with the slice as nominal time."""
