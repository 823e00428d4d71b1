"""The first pipeline in README.md runs as it is and prints what the README shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional alias

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
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(block("python"), "README.md", "exec"), names)  # noqa: S102
    assert capsys.readouterr().out.strip() == block("text").strip()
    first, *_ = native(names["df"], tmp_path)
    assert first == (2, 12), "the README says that Spark's first window closes with two bids"


def native(df: DataFrame, folder: Path) -> list[tuple[int, int]]:
    """Bids and best price of the windows that Spark's own watermark closes on the same input, in order."""
    windows = df.withWatermark("at", "5 seconds").groupBy(F.window("at", "10 seconds"))
    query = (
        windows.agg(F.count("*").alias("bids"), F.max("price").alias("best"))
        .writeStream.option("checkpointLocation", str(folder / "native-checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "native"), format="parquet")
    )
    query.awaitTermination()
    rows = df.sparkSession.read.parquet(str(folder / "native")).orderBy("window.start").collect()
    return [(row["bids"], row["best"]) for row in rows]


def test_the_first_code_comes_early() -> None:
    assert README[: README.index("```")].count("\n") <= LINES_BEFORE_CODE
