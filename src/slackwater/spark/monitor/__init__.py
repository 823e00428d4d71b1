"""Monitoring of running queries: progress reports, `why` and telemetry."""
