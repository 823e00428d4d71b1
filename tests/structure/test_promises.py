"""The page of promises: its kills are those that the tests are configured for, and its tests exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations" / "promises.md").read_text(encoding="utf-8")
WANTED = 200
"""The kills that one run of `make proof` must have in total."""


def constant(path: str, name: str) -> Any:
    """The value of a constant of a module, which is not imported."""
    for statement in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        targets = (
            statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            assert isinstance(statement, (ast.Assign, ast.AnnAssign))
            assert statement.value is not None
            return ast.literal_eval(statement.value)
    raise AssertionError(f"{path} has no constant {name}")


def configured() -> dict[str, int]:
    """The least number of kills of each test."""
    pairs = len(constant("tests/chaos/pipelines.py", "KINDS")) // 2
    rounds = "tests/streams/test_chaos.py"
    return {
        "tests/chaos/test_driver_killed.py": constant("tests/chaos/test_driver_killed.py", "KILLS"),
        "tests/chaos/test_pipelines_killed.py": pairs
        * constant("tests/chaos/test_pipelines_killed.py", "KILLS"),
        "tests/chaos/test_three_streams.py": len(constant("tests/chaos/test_three_streams.py", "SEEDS"))
        * len(constant("tests/chaos/test_three_streams.py", "KILLED_IN")),
        "tests/chaos/test_sinks_killed.py": len(constant("tests/chaos/sinks.py", "SINKS"))
        * constant("tests/chaos/test_sinks_killed.py", "KILLS"),
        "tests/chaos/test_thirty_days.py": len(constant("tests/chaos/test_thirty_days.py", "KILLED_IN")),
        "tests/cluster/test_executor_killed.py": len(
            constant("tests/cluster/test_executor_killed.py", "KILLED_AFTER")
        ),
        rounds: 2 * constant(rounds, "ROUNDS") * constant(rounds, "KILLS_A_ROUND"),  # on two kinds of store
        "tests/ingest/test_sixty_days.py": constant("tests/ingest/test_sixty_days.py", "KILLS"),
        "tests/ingest/test_object_store_targets.py": len(
            constant("tests/ingest/test_object_store_targets.py", "TABLES")
        )
        * constant("tests/ingest/test_object_store_targets.py", "KILLS"),
        "tests/ingest/test_killed.py": len(constant("tests/ingest/killed.py", "POINTS")),
    }


def test_the_page_has_the_kills_that_the_tests_are_configured_for() -> None:
    rows = re.findall(r"^\| [^|]+ \| (\d+) \| [^|]+ \| `([^`]+)` \|$", PAGE, re.MULTILINE)
    assert {path: int(count) for count, path in rows} == configured()


def test_the_total_is_the_sum_and_at_least_what_is_promised() -> None:
    total = sum(configured().values())
    assert f"| **total** | **{total}** |" in PAGE
    assert total >= WANTED


def test_every_test_on_the_page_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/.]+)`", PAGE))
    assert named
    assert all((ROOT / path).exists() for path in named)
