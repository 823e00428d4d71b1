"""New metadata stores on SQLite."""

from __future__ import annotations

from slackwater.metadata.empty_store import copy_empty_store as new_store

__all__ = ["new_store"]
