"""`apply` in every way to run: a retraction repeats what the function returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own
import polars as pl
import pytest
from pyspark.sql import DataFrame, SparkSession

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import stream
from slackwater.spark.api.windowed import Windowed
from slackwater.time import Range
from tests.spark.running import Scenario, as_batch, as_stream, expected
from tests.spark.scenarios import SCENARIOS, check
from tests.support.sampling import sampled
from tests.support.windowed import Observed

pytestmark = pytest.mark.spark


def summary(key: dict[str, Any], window: Range, rows: pl.DataFrame) -> list[dict[str, Any]]:
    """The values of the accumulations in other tests, so that the model can be compared."""
    assert window.start < window.end
    assert list(key) == ["key"]
    values = rows["value"].drop_nulls().to_list()
    return [{"count": rows.height, "sum": sum(values), "collect": values}]


@dataclass(frozen=True)
class Applying(Scenario):
    def build(self, df: DataFrame, times: Sequence[int]) -> Panes:
        schema = "count bigint, sum bigint, collect array<bigint>"
        return self.windowed(df, times).apply(summary, schema, columns=["value"])


@pytest.fixture(
    params=sampled(
        ["early, on time, late, retracting", "sessions that merge and take back", "sliding"],
        keep=["sessions that merge and take back"],
    )
)
def scenario(request: pytest.FixtureRequest) -> Applying:
    known = SCENARIOS[request.param]
    return Applying(known.options, known.batches, known.policy)


def panes_alone(model: list[Observed]) -> list[Observed]:
    """Dropped rows are only counted."""
    return [Observed(panes=said.panes) for said in model]


def test_a_function_over_a_batch(spark: SparkSession, scenario: Applying, tmp_path: Path) -> None:
    rows = as_batch(spark, scenario, tmp_path)
    check(rows, panes_alone(expected(scenario, [scenario.batches], bounded=True)), scenario)


@pytest.mark.proof
def test_a_function_over_micro_batches_and_a_restart(
    spark: SparkSession, scenario: Applying, tmp_path: Path
) -> None:
    portions = [[batch] for batch in scenario.batches]
    rows = as_stream(spark, scenario, tmp_path, portions, 2)
    check(rows, panes_alone(expected(scenario, portions)), scenario)


@pytest.fixture(scope="module")
def windowed(spark: SparkSession) -> Windowed:
    df = spark.sql(
        "select timestamp_seconds(second) as at, key, value from values "
        "(3, 'a', 30), (1, 'a', 10), (2, 'b', 20), (7, 'c', 5) as t(second, key, value)"
    )
    made = stream(df, event_time="at", watermark=lag("0 seconds")).key_by("key")
    return made.window(windows.fixed("10 seconds"))


def test_a_function_may_return_several_rows_or_none_and_use_pandas(windowed: Windowed) -> None:
    def differences(key: dict[str, Any], window: Range, rows: pd.DataFrame) -> pd.DataFrame:
        """In the order of event time, so the answer does not depend on the order of arrival."""
        assert list(rows.columns) == ["value"]
        made = pd.DataFrame({"step": rows["value"].diff().fillna(rows["value"])})
        return made if key["key"] != "c" else made.head(0)

    panes = windowed.apply(differences, "step double", columns=["value"], frame="pandas")
    rows = panes.to_df().collect()
    assert [(row["key"], row["step"]) for row in sorted(rows)] == [("a", 10.0), ("a", 20.0), ("b", 20.0)]
    assert {row["pane"]["timing"] for row in rows} == {"ON_TIME"}
    assert panes.schema.names == ["key", "window", "step", "pane"]


def test_returned_rows_are_elements_of_the_next_operator(windowed: Windowed) -> None:
    def halves(key: dict[str, Any], window: Range, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(half=pl.col("value") // 2)

    made = windowed.apply(halves, "half bigint")
    (row,) = made.agg(n=windows.count(), total=windows.sum("half")).to_df().collect()
    assert (row["n"], row["total"]) == (4, 32)


def test_invalid_functions_raise(windowed: Windowed) -> None:
    def nothing(key: Any, window: Any, rows: Any) -> list[Any]:
        return []

    refused: list[tuple[Any, str]] = [
        (lambda: windowed.apply("sum", "n int"), "function = 'sum': is not a function"),  # type: ignore[arg-type]
        (lambda: windowed.apply(nothing, 5), "schema = 5: is neither a StructType nor a DDL string"),  # type: ignore[arg-type]
        (lambda: windowed.apply(nothing, "n wrong"), "schema = 'n wrong': cannot be parsed: .*WRONG"),
        (lambda: windowed.apply(nothing, "kind int"), "is reserved for the panes"),
        (lambda: windowed.apply(nothing, "key int"), "schema = 'key': is used twice in the panes"),
        (lambda: windowed.apply(nothing, "pane int"), "is reserved for the panes"),
        (lambda: windowed.apply(nothing, "timing int"), "schema = 'timing': is used twice in the panes"),
        (lambda: windowed.apply(nothing, "n int", columns=["cost"]), "columns = 'cost': column not found"),
        (lambda: windowed.apply(nothing, "n int", columns=[]), "columns = .*is empty"),
        (lambda: windowed.apply(nothing, "n int", frame="arrow"), "use one of polars, pandas"),  # type: ignore[arg-type]
    ]
    for build, message in refused:
        with pytest.raises(InvalidArgument, match=message):
            build()
