"""An empty database of each kind for the tests of this folder."""

from __future__ import annotations

import pytest


@pytest.fixture
def url(empty_url: str) -> str:
    """The address of an empty SQLite or PostgreSQL database."""
    return empty_url
