"""Jobs that cannot be run are rejected before anything runs, with all problems at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slackwater.errors import InvalidArgument
from slackwater.ingest import InvalidJob, parse_job, unit_of
from slackwater.ingest.job_checks import check_runnable
from slackwater.ingest.targets.folder_target import FolderTarget
from slackwater.ingest.targets.replacement import Slice

SOURCE = {"ms.source.type": "files", "ms.source.format": "json", "ms.source.path": "in"}


def refused(**target: Any) -> str:
    keys = {f"ms.{name.replace('_', '.')}": value for name, value in target.items()}
    with pytest.raises(InvalidJob) as error:
        check_runnable(parse_job({**SOURCE, **keys}))
    return str(error.value)


def test_a_stream_takes_one_key_and_no_watermark_of_the_data() -> None:
    error = refused(
        target_type="stream", target_url="sqlite:///s.db", target_key=["a", "b"], watermark_column="at"
    )
    assert "ms.target.stream: is missing; a stream target requires it" in error
    assert "ms.target.key = ['a', 'b']: has several columns" in error
    assert "ms.watermark.column = 'at': does not work with a stream: every run would append" in error


def test_the_name_of_a_stream_is_one_of_all_problems() -> None:
    error = refused(target_type="stream", target_stream="shop orders", watermark_column="at")
    assert "job has 3 problems" in error
    assert "ms.target.url: is missing" in error
    assert "ms.target.stream = 'shop orders': is not a valid stream name; write scope and name, as" in error


def test_null_and_the_text_that_stands_for_it_do_not_share_a_folder() -> None:
    units: list[dict[str, str | None]] = [{"site": None}, {"site": "__HIVE_DEFAULT_PARTITION__"}]
    item = {"name": "site", "type": "unit", "units": units}
    error = refused(target_type="parquet", target_path="out", watermark=[item])
    assert "ms.target.path = {'site': '__HIVE_DEFAULT_PARTITION__'}: has the value __HIVE_DEFAULT" in error
    target = FolderTarget(Path("out"), "parquet", time_column=None, watermark_column=None, zone="UTC")
    with pytest.raises(InvalidArgument, match="which Spark would read back from a folder name as null"):
        target._link(Slice(unit_of(units[1]), 0, 0, 1))


@pytest.mark.parametrize("unit", ["../secret", "..", "a/../../secret"])
def test_no_unit_leads_out_of_the_folder_of_a_source(unit: str) -> None:
    item = {"name": "shop", "type": "unit", "units": [unit, "a..b", "x/y"]}
    error = refused(
        source_path="/data/{{shop}}/*.json", target_type="delta", target_path="out", watermark=[item]
    )
    assert "job has 1 problem:" in error
    assert f"ms.source.path = '/data/{unit}/*.json': is outside the folder of the job" in error
    two = {"name": "shop", "type": "unit", "units": [{"a": ".", "b": "."}]}
    error = refused(source_path="../in/{{a}}{{b}}", target_type="delta", target_path="out", watermark=[two])
    assert "ms.source.path = '../in/..': is outside the folder" in error


@pytest.mark.parametrize("units", [[{"site": None}, {"site": ""}], [{"site": ""}, {"site": "a"}]])
def test_a_folder_cannot_be_named_after_an_empty_text(units: list[dict[str, str | None]]) -> None:
    item = {"name": "site", "type": "unit", "units": units}
    error = refused(target_type="parquet", target_path="out", watermark=[item])
    assert "ms.target.path = {'site': ''}: has an empty value, which Spark would read back" in error
    table = {"ms.target.type": "delta", "ms.target.path": "out", "ms.watermark": [item]}
    check_runnable(parse_job({**SOURCE, **table}))


def test_only_parquet_and_delta_targets_are_on_an_object_store() -> None:
    error = refused(target_type="csv", target_path="s3://bucket/out")
    assert "ms.target.path = 's3://bucket/out': is not a local path, as csv requires; use a parquet" in error
    for target in ("delta", "parquet"):
        check_runnable(parse_job({**SOURCE, "ms.target.type": target, "ms.target.path": "s3://bucket/out"}))
        error = refused(target_type=target, target_path="hdfs://host/out")
        assert "ms.target.path = 'hdfs://host/out': is not the URL of an object store; use one of" in error


def test_the_url_of_a_target_has_no_credentials() -> None:
    for url in ("s3://app:hunter-22@bucket/out", "s3://bucket/out?secret=hunter-22"):
        error = refused(target_type="parquet", target_path=url)
        assert "contains credentials or options; remove them, and set them in the environment" in error
        assert "hunter-22" not in error


def test_a_layout_is_one_that_the_target_has() -> None:
    error = refused(target_type="delta", target_path="out", target_layout="manifest")
    assert "ms.target.layout = 'manifest': does not work with delta; remove it" in error
    error = refused(target_type="parquet", target_path="s3://bucket/out", target_layout="links")
    assert "ms.target.layout = 'links': does not work on an object store" in error


def test_only_tables_are_merged() -> None:
    error = refused(target_type="delta", target_path="out", target_mode="merge")
    assert "ms.target.mode = 'merge': needs a sql target and a key" in error


def test_a_field_of_the_units_has_a_name_of_its_own() -> None:
    item = {"name": "site", "type": "unit", "units": [{"low": "a", "AT": "b"}, {"site": "c"}]}
    error = refused(target_type="parquet", target_path="out", watermark=[item], time_column="at")
    assert "ms.watermark = 'low': is a field of the units, but reserved for the bounds of the range" in error
    assert "ms.time.column = 'at': is a field of the units as well" in error


def test_files_that_are_chosen_by_when_they_were_modified_have_no_time_column() -> None:
    error = refused(target_type="parquet", target_path="out", source_files_by="modified", time_column="at")
    assert "ms.time.column = 'at': files are selected by modification time" in error


def test_a_name_in_a_path_stands_for_something_in_every_unit() -> None:
    item = {"name": "site", "type": "unit", "units": [{"site": "a"}, {"other": "b"}]}
    error = refused(target_type="parquet", target_path="out", watermark=[item], source_path="in/{{site}}")
    assert "ms.source.path = 'site': unknown parameter; use one of low, high" in error
