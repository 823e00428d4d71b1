"""Completeness of tables of every format: reading it, waiting for it, and using it as a watermark."""
