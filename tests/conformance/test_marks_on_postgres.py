"""The cases of marks with a stream in a real PostgreSQL; `test_cases` runs them with SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.conftest import folder_of
from tests.conformance.framework import Difference
from tests.conformance.suites.marks import run_with_store
from tests.spark.postgres import Server


@pytest.mark.proof
@pytest.mark.postgres
def test_all_cases(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> None:
    """One test with one database, because a database for each case takes longer than the case."""
    problems = []
    cases = [
        test.case
        for test in folder_of(request.config).tests
        if test.case is not None and test.suite is not None
        if (test.suite.name, test.subject) == ("marks", "sqlite")
    ]
    url = server.create_database("marks")
    for case in cases:
        try:
            run_with_store(case, url, str(tmp_path))
        except Difference as difference:
            problems.append(f"{case['id']}: {difference}")
    assert problems == []
