"""Targets: tables, folders, Delta tables and streams."""
