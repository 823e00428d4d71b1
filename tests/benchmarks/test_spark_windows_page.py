"""The table and the picture of the comparison with Spark's own windows, from made-up figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import spark_windows
from benchmarks.processes import Memory
from benchmarks.report import Report
from benchmarks.spark_windows import (
    APPENDED,
    OURS,
    PLAIN,
    ROCKSDB,
    STAGES,
    WORKLOADS,
    WRITING,
    Comparison,
    Run,
    show_windows,
)


def test_every_side_has_a_row_and_every_goal_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_windows, "PICTURE", tmp_path / "windows.svg")
    spark = {ROCKSDB: 5.0, PLAIN: 6.0, "default": 2.0}
    seconds = {OURS: 1.0, APPENDED: 0.5, **spark, WRITING: 0.25, STAGES: 0.4}
    comparisons = [
        Comparison(
            workload,
            {
                side: [Run(1.0, [3.0] + [seconds[side]] * (workload.batches - 1), 0, Memory(1, 0))] * 3
                for side in workload.sides
            },
        )
        for workload in WORKLOADS
    ]
    report = Report()
    show_windows(report, comparisons)
    (section,) = report.sections
    assert len(section.rows) == sum(len(workload.sides) for workload in WORKLOADS)
    assert section.rows[1][2:5] == [APPENDED, "0.50 (0.50–0.50)", "10.00 (10.00–10.00)"]
    assert section.verdicts[4].endswith(
        "5.00 through Spark's sink (MISSED), 10.00 with append_to (met); upper bounds: 20.00 (panes alone), "
        "12.50 (stages alone)"
    )
    assert section.verdicts[5] == (
        "first batch, aim 1: 1.00 through Spark's sink (met), 1.00 with append_to (met); stages alone 1.00"
    )
    assert section.verdicts[6] == (
        "first panes, aim at most 1.5 times the seconds of RocksDB: 1.00 through Spark's sink (met), 1.00 "
        "with append_to (met)"
    )
    assert section.verdicts[7] == (
        "against Spark on RocksDB in a plain session: 6.00 through Spark's sink, first batch 1.00; "
        "12.00 with append_to, first batch 1.00"
    )
    assert (tmp_path / "windows.svg").stat().st_size > 0
