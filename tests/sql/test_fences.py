"""Fencing tokens in a target database: only the newest writer of an owner passes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from slackwater.sql.database import create_engine, database_url
from slackwater.sql.fences import pass_fence


def test_a_lower_token_does_not_pass(url: str) -> None:
    engine = create_engine(database_url(url))

    def passed(owner: str, table: str, token: int) -> bool:
        with engine.begin() as connection:
            return pass_fence(connection, owner, table, token)

    assert [passed("orders", "copied", token) for token in (5, 7, 7, 6)] == [True, True, True, False]
    assert passed("returns", "copied", 1)
    assert passed("orders", "other", 1)
    engine.dispose()


def test_writers_that_begin_together_create_the_table_once(url: str) -> None:
    engine = create_engine(database_url(url))

    def passed(token: int) -> bool:
        with engine.begin() as connection:
            return pass_fence(connection, f"job {token}", "copied", token)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(passed, range(8)))
    engine.dispose()
