"""Jobs that a target cannot take are refused before anything runs, with everything at once."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater.ingest import InvalidJob, parse_job
from slackwater.ingest.spark.extraction import check_runnable

SOURCE = {"ms.source.type": "files", "ms.source.format": "json", "ms.source.path": "in"}


def refused(**target: Any) -> str:
    keys = {f"ms.{name.replace('_', '.')}": value for name, value in target.items()}
    with pytest.raises(InvalidJob) as told:
        check_runnable(parse_job({**SOURCE, **keys}))
    return str(told.value)


def test_a_stream_takes_one_key_and_no_watermark_of_the_data() -> None:
    told = refused(
        target_type="stream", target_url="sqlite:///s.db", target_key=["a", "b"], watermark_column="at"
    )
    assert "ms.target.stream: is missing; a stream target needs it" in told
    assert "ms.target.key = ['a', 'b']: has several columns" in told
    assert "ms.watermark.column = 'at': its last row would be read and appended again" in told


def test_two_units_never_share_a_folder() -> None:
    units = {"name": "site", "type": "unit", "units": [{"site": None}, {"site": ""}, {"site": "a"}]}
    told = refused(target_type="parquet", target_path="out", watermark=[units])
    assert "ms.target.path = {'site': None}: is the folder of two units" in told


def test_a_folder_is_no_address() -> None:
    for target in ("delta", "csv"):
        told = refused(target_type=target, target_path="s3://bucket/out")
        assert "ms.target.path = 's3://bucket/out': is no folder" in told


def test_only_tables_are_merged() -> None:
    told = refused(target_type="delta", target_path="out", target_mode="merge")
    assert "ms.target.mode = 'merge': needs a table and a key" in told
