"""The first pipelines in README.md, and on the start page, run as they are and print what is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional alias

from tests.support.pages import python_blocks

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
LINES_BEFORE_CODE = 80


def test_the_first_pipelines_print_the_rows_shown(page_names: dict[str, Any], tmp_path: Path) -> None:
    blocks = python_blocks(README, "README.md")
    assert [block.run(page_names) for block in blocks] == [block.output for block in blocks]
    first, *_ = native(page_names["df"], tmp_path)
    assert first == (2, 12), "the README says that Spark's first window closes with two bids"


def test_the_start_page_has_the_same_pipelines() -> None:
    pipelines = [(block.code, block.output) for block in python_blocks(README, "README.md")]
    assert len(pipelines) == 2
    assert [(block.code, block.output) for block in python_blocks(INDEX, "index.md")] == pipelines


@pytest.mark.parametrize("text", [README, INDEX], ids=["README.md", "index.md"])
def test_the_first_block_installs_the_package(text: str) -> None:
    assert text[text.index("```") :].startswith("```sh\npip install slackwater\n```")


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
    assert README[: README.index("```python")].count("\n") <= LINES_BEFORE_CODE
