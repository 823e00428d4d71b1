"""One test per conformance case; see README.md."""

from __future__ import annotations

import pytest

from tests.conformance.framework import Difference
from tests.conformance.loading import Loaded


def test_case(conformance_case: Loaded) -> None:
    try:
        conformance_case.run()
    except Difference as difference:
        pytest.fail(str(difference), pytrace=False)
