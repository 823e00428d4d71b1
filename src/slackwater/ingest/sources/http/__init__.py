"""HTTP APIs as a source: requests, pages, retries and records. Nothing here imports Spark."""
