"""The replacement loop of targets: order of the steps, retry after a change of columns, and clean-up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from slackwater.ingest.sources.extracted_rows import Rows
from slackwater.ingest.sources.spark_columns import Columns
from slackwater.ingest.targets import replacement
from slackwater.ingest.targets.replacement import ReplacingTarget, Slice, StagedRows, StageTask, Written
from slackwater.ingest.targets.schema_drift import SchemaDrift
from slackwater.ingest.units import unit_of

SLICE = Slice(unit_of({"site": "7"}), 0, 0, 10)
STAGED = StagedRows("a", 3, 24, 9, None)
KEYS: dict[str, Any] = {"time_column": None, "watermark_column": None, "zone": "UTC"}


class FakeRows:
    """Rows with columns and no frame."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def fitted(self, wanted: Columns) -> FakeRows:
        return FakeRows(wanted)


@dataclass(frozen=True)
class FakeTarget(ReplacingTarget[int]):
    """Records its steps; the first ``failing`` swaps find other columns."""

    failing: int = 0
    known: dict[str, pa.DataType] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def pass_fence(self) -> None:
        self.steps.append(f"pass fence {self.token}")

    def remove_leftovers(self) -> None:
        self.steps.append("remove leftovers")

    def shape(self, rows: Rows, slice_: Slice) -> Rows:
        self.steps.append("shape")
        return rows

    @contextmanager
    def staging_area(self) -> Iterator[int]:
        self.steps.append("open")
        try:
            yield len(self.steps)
        finally:
            self.steps.append("close")

    def target_columns(self, found: Columns) -> Columns | None:
        self.steps.append("look up columns")
        return self.known or None

    def stage_task(self, area: int, slice_: Slice) -> StageTask:
        return lambda batches, name: (0, None)

    def swap(
        self, area: int, staged: Sequence[StagedRows], columns: Columns, slice_: Slice, letters: pa.Table
    ) -> int | None:
        self.steps.append(f"swap {len(staged)} {list(columns)}")
        return 0 if self.steps.count("open") > self.failing else None


@pytest.fixture(autouse=True)
def staged(monkeypatch: pytest.MonkeyPatch) -> list[StagedRows]:
    """What tasks stage, instead of what Spark would run."""
    found = [STAGED]
    monkeypatch.setattr(replacement, "stage_rows", lambda *_: found)
    return found


def replace(target: FakeTarget, columns: Columns | None = None) -> Written:
    def approve(amount: Written, number: int | None = None) -> None:
        target.steps.append(f"approve {amount.rows}")

    rows: Any = None if columns is None else FakeRows(columns)
    return target.replace(rows, SLICE, approve)


def test_steps_run_in_order_and_leftovers_are_removed_once() -> None:
    target = FakeTarget(**KEYS)
    target.fence(7)
    assert replace(target, {"id": pa.int64()}) == Written(3, 24, 9)
    first = ["pass fence 7", "remove leftovers"]
    once = ["shape", "open", "look up columns", "approve 3", "swap 1 ['id']", "close"]
    assert target.steps == [*first, *once]
    replace(target, {"id": pa.int64()})
    assert target.steps == [*first, *once, *once]


def test_rows_are_staged_again_when_the_columns_changed_before_the_swap() -> None:
    target = FakeTarget(failing=2, **KEYS)
    replace(target, {"id": pa.int64()})
    attempt = ["open", "look up columns", "approve 3", "swap 1 ['id']", "close"]
    assert target.steps == ["pass fence None", "remove leftovers", "shape", *attempt * 3]


@pytest.mark.parametrize("columns", [None, {"id": pa.int64()}])
def test_without_rows_the_slice_is_emptied(staged: list[StagedRows], columns: Columns | None) -> None:
    staged.clear()
    target = FakeTarget(known={"id": pa.int64(), "gone": pa.int64()}, drift="add", **KEYS)
    assert replace(target, columns) == Written(0, 0, None)
    assert target.steps[-3:] == ["approve 0", "swap 0 []", "close"]


def test_a_rejected_approval_leaves_the_target_unchanged_and_cleans_up() -> None:
    target = FakeTarget(**KEYS)

    def reject(amount: Written, number: int | None = None) -> None:
        raise ValueError("too few rows")

    rows: Any = FakeRows({"id": pa.int64()})
    with pytest.raises(ValueError, match="too few rows"):
        target.replace(rows, SLICE, reject)
    assert target.steps[-2:] == ["look up columns", "close"]


def test_columns_that_do_not_fit_fail_before_rows_are_staged(staged: list[StagedRows]) -> None:
    target = FakeTarget(known={"id": pa.int64()}, **KEYS)
    with pytest.raises(SchemaDrift, match="new: name"):
        replace(target, {"id": pa.int64(), "name": pa.string()})
    assert target.steps[-2:] == ["look up columns", "close"]


def test_accepted_drift_is_reported() -> None:
    target = FakeTarget(known={"id": pa.int64()}, drift="add", **KEYS)
    assert replace(target, {"id": pa.int64(), "name": pa.string()}).drift == "new: name"
