"""The first pipeline in README.md runs as it is and prints what the README shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
LINES_BEFORE_CODE = 80


def block(language: str) -> str:
    """The first code block in this language."""
    found = re.search(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert found is not None, f"README.md has no {language} block"
    return found[1]


def test_the_first_pipeline_prints_the_rows_shown(
    spark: SparkSession,  # sw.session() in the README returns this session
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    exec(compile(block("python"), "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102
    assert capsys.readouterr().out.strip() == block("text").strip()


def test_the_first_code_comes_early() -> None:
    assert README[: README.index("```")].count("\n") <= LINES_BEFORE_CODE
