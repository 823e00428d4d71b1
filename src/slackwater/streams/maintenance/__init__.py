"""Background work on streams: controllers, retention, scaling and file collection."""
