"""Variables of OpenLineage are those of one test only."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.spark.conftest import spark

__all__ = ["spark"]


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Variables of this test only: the client of OpenLineage sets some as well."""
    before = dict(os.environ)
    for name in before:
        if name.startswith("OPENLINEAGE"):
            del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)
