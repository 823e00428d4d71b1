"""Background work on streams: controllers, mark cycles, retention, scaling and file collection."""
