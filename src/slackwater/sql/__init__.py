"""Staging and merging rows in PostgreSQL and SQLite."""
