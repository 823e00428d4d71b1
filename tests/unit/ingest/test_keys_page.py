"""The reference page of keys equals the table that the model generates."""

from __future__ import annotations

from pathlib import Path

from slackwater.ingest.jobfile.job_keys import KEYS, keys_table

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "job-keys.md"


def test_the_page_has_the_table_of_the_model() -> None:
    assert keys_table() in PAGE.read_text(encoding="utf-8"), "paste what keys_table() prints into the page"


def test_every_key_has_a_meaning() -> None:
    assert [key for key, field in KEYS.items() if not field.description or not key.startswith("ms.")] == []
