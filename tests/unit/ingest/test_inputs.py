"""Secondary inputs: files in every format, filters, and inputs that cannot be used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.errors import InvalidArgument
from slackwater.ingest import InvalidJob, Job, parse_job
from slackwater.ingest.units import unit_of

RECORDS = [
    {"id": 1, "state": "done", "note": "x"},
    {"id": 2, "state": "undone", "note": None},
    {"id": 3, "state": None, "note": "y,\"z\""},
]  # fmt: skip


def as_json_lines(path: Path) -> None:
    path.write_text("".join(json.dumps(record) + "\n\n" for record in RECORDS), encoding="utf-8")


def as_csv(path: Path) -> None:
    path.write_text('id,state,note\n1,done,x\n2,undone,\n3,,"y,""z"""\n', encoding="utf-8")


def as_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(RECORDS), path)


def as_avro(path: Path) -> None:
    fields = [{"name": "id", "type": "long"}] + [
        {"name": name, "type": ["null", "string"]} for name in ("state", "note")
    ]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, RECORDS)


def as_json_list(path: Path) -> None:
    path.write_text("\ufeff" + json.dumps(RECORDS, indent=2), encoding="utf-8")


def as_pretty_json(path: Path) -> None:
    path.write_text("\n".join(json.dumps(record, indent=2) for record in RECORDS), encoding="utf-8")


FORMATS: dict[str, Callable[[Path], None]] = {
    "ids.json": as_json_list,
    "pretty.json": as_pretty_json,
    "ids.jsonl": as_json_lines,
    "ids": as_json_lines,
    "ids.csv": as_csv,
    "ids.parquet": as_parquet,
    "part-0000": as_parquet,
    "ids.avro": as_avro,
}


def job(folder: Path, *inputs: dict[str, Any], **keys: Any) -> Job:
    return parse_job({"ms.secondary.input": list(inputs), **keys}, folder=folder, environment={})


def ids(read: Job) -> list[str | None]:
    return [unit.as_dict()["id"] for unit in read.units]


@pytest.mark.parametrize("name", FORMATS)
def test_units_are_the_same_in_every_format(tmp_path: Path, name: str) -> None:
    FORMATS[name](tmp_path / name)
    assert [unit.key for unit in job(tmp_path, {"path": name, "fields": ["id"]}).units] == [
        '{"id":"1"}',
        '{"id":"2"}',
        '{"id":"3"}',
    ]
    assert ids(job(tmp_path, {"path": name, "fields": ["id"], "filters": {"state": ".*done"}})) == ["1", "2"]


def test_a_folder_is_read_as_all_its_files_in_name_order(tmp_path: Path) -> None:
    folder = tmp_path / "ids" / "day=1"
    folder.mkdir(parents=True)
    (folder / "b.jsonl").write_text('{"id": "2"}\n{"id": "3"}', encoding="utf-8")
    (folder / "a.jsonl").write_text('{"id": "1"}\n{"id": "2"}', encoding="utf-8")
    (folder / "_SUCCESS").write_text("", encoding="utf-8")
    (folder / ".a.jsonl.crc").write_bytes(b"\xff\xfe")
    assert ids(job(tmp_path, {"path": "ids"})) == ["1", "2", "3"]
    assert ids(job(tmp_path, {"path": f"file://{tmp_path}/ids"})) == ["1", "2", "3"]


def test_hidden_folders_are_not_read(tmp_path: Path) -> None:
    """As in the folder of a target, in which a link shows the current one of several versions."""
    for version, numbers in (("old", [1, 2, 3]), ("new", [1, 3])):
        folder = tmp_path / "ids" / "_versions" / version
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": numbers}), folder / "a.parquet")
    (tmp_path / "ids" / "rows").symlink_to("_versions/new", target_is_directory=True)
    (tmp_path / "ids" / ".trash").mkdir()
    (tmp_path / "ids" / ".trash" / "a.jsonl").write_text('{"id": 9}', encoding="utf-8")
    assert ids(job(tmp_path, {"path": "ids"})) == ["1", "3"]


def test_a_token_file_may_be_printed_on_several_lines(tmp_path: Path) -> None:
    (tmp_path / "token.json").write_text(json.dumps({"token": "abcd"}, indent=2), encoding="utf-8")
    read = job(tmp_path, {"path": "token.json", "category": "authentication"})
    assert read.inputs.authentication == {"token": "abcd"}


def test_without_fields_a_unit_is_the_whole_record(tmp_path: Path) -> None:
    as_json_lines(tmp_path / "ids")
    assert job(tmp_path, {"path": "ids"}).units[1].as_dict() == {"id": "2", "state": "undone", "note": None}


def test_without_records_there_are_no_units(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("", encoding="utf-8")
    (tmp_path / "ids.csv").write_text("id\n", encoding="utf-8")
    for name in ("ids", "ids.csv"):
        assert job(tmp_path, {"path": name, "fields": ["id"], "filters": {"id": "1"}}).units == ()


def test_all_filters_match_the_whole_text(tmp_path: Path) -> None:
    as_json_lines(tmp_path / "ids")
    filters = {"id": r"\d", "state": "done|undone", "note": "x|z"}
    assert ids(job(tmp_path, {"path": "ids", "fields": ["id"], "filters": filters})) == ["1"]
    assert ids(job(tmp_path, {"path": "ids", "fields": ["id"], "filters": {"state": "don"}})) == []


def test_the_authentication_record_is_not_part_of_a_unit(tmp_path: Path) -> None:
    as_json_lines(tmp_path / "ids")
    (tmp_path / "token").write_text(
        '{"token": "hunter2", "for": "a"}\n{"token": "x", "for": "b"}', encoding="utf-8"
    )
    token = {"path": "token", "fields": ["token"], "filters": {"for": "a"}, "category": "Authentication"}
    read = job(tmp_path, {"path": "ids", "fields": ["id"]}, token)
    assert read.inputs.authentication == {"token": "hunter2"}
    assert ids(read) == ["1", "2", "3"]
    assert "hunter2" not in repr(read) + repr(read.inputs)
    assert [unit.key for unit in job(tmp_path, token).units] == ["{}"]


@pytest.mark.parametrize(
    ("text", "item", "said"),
    [
        ("", {}, "no record of category authentication"),
        ('{"t": 1}\n{"t": 1}', {}, "2 records of category authentication"),
        ('{"t": 1}', {"filters": {"t": "2"}}, "no record of category authentication"),
    ],
)
def test_exactly_one_record_authenticates(tmp_path: Path, text: str, item: dict[str, Any], said: str) -> None:
    (tmp_path / "t").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidJob, match=said):
        job(tmp_path, {"path": "t", "category": "authentication", **item})


@pytest.mark.parametrize(
    ("name", "content", "item", "said"),
    [
        ("a", b"not json", {}, "unknown format"),
        ("a", b'{"id": 1}\n[1]', {}, "not an object"),
        ("a", b'{"id": 1}\n{"id"', {}, "cannot be read"),
        ("a", b'{"id": [1]}', {}, "is a list"),
        ("a", b'{"id": ' + b"[" * 200_000, {}, "cannot be read"),
        ("a", b'{"id": 1}', {"fields": ["idd"]}, "no field 'idd'; use one of id"),
        ("a", b'{"id": 1}', {"filters": {"idd": "1"}}, "no field 'idd'"),
        ("a", b"PAR1 and no more", {}, "cannot be read"),
        ("a", b"Obj\x01 and no more", {}, "cannot be read"),
        ("a", b"\xff\xfe\x00", {}, "cannot be read"),
        ("a.csv", b"id,id\n1,2", {}, "two columns of the same name"),
        ("a.csv", b"id,x\n1", {}, "a row of 1 value for 2 columns"),
        ("a.csv", b'id\n"1', {}, "cannot be read"),
        ("a", b'{"id": 1} {"id": 2}', {}, "cannot be read: Extra data"),
        ("a", b'{"id": "a\\u0000"}', {}, r"has a value that contains the character U\+0000"),
        ("a", b'[{"id": 1}', {}, "cannot be read"),
        ("a", b'[{"id": 1}, 2]', {}, "a record that is not an object: '2'"),
        ("other", b"", {"path": "missing"}, "does not exist"),
        ("other", b"", {"path": "nowhere://x"}, "cannot be read"),
    ],
)
def test_unusable_inputs_are_reported_with_the_reason(
    tmp_path: Path, name: str, content: bytes, item: dict[str, Any], said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidJob, match=said) as caught:
        job(tmp_path, {"path": name, **item})
    assert [problem.key for problem in caught.value.problems] == ["ms.secondary.input[0].path"]


def test_fields_that_are_not_selected_may_have_any_value(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"id": 1, "tags": ["x"]}', encoding="utf-8")
    assert ids(job(tmp_path, {"path": "a", "fields": ["id"]})) == ["1"]


def test_a_line_ends_where_json_lines_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"id": "a\u2028b"}\r\n{"id": "c\x85d"}\n', encoding="utf-8", newline="")
    assert ids(job(tmp_path, {"path": "a"})) == ["a\u2028b", "c\x85d"]


@pytest.mark.parametrize("pattern", ["[[a]", "[a&&b]"])
def test_a_regular_expression_with_a_python_warning_is_accepted(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "a").write_text('{"id": "a"}', encoding="utf-8")
    assert ids(job(tmp_path, {"path": "a", "filters": {"id": pattern}})) == ["a"]


def test_one_mistake_does_not_hide_others(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("", encoding="utf-8")
    token = {"path": "t", "category": "authentication"}
    listed = {"name": "id", "type": "unit", "units": "a"}
    broken = {"name": "s", "type": "datetime", "range": {"from": "2020-02-30", "to": "-"}}
    with pytest.raises(InvalidJob) as caught:
        job(tmp_path, {"path": "nowhere"}, token, **{"ms.watermark": [listed]})
    assert [problem.key for problem in caught.value.problems] == [
        "ms.secondary.input", "ms.secondary.input[0].path", "ms.secondary.input",
    ]  # fmt: skip
    with pytest.raises(InvalidJob) as caught:
        job(tmp_path, {"path": "nowhere"}, **{"ms.watermark": [broken, listed, broken, listed]})
    assert [problem.key for problem in caught.value.problems] == [
        "ms.watermark[0].range.from", "ms.watermark[2].range.from", "ms.watermark[2]", "ms.watermark[3]",
        "ms.secondary.input[0].path",
    ]  # fmt: skip
    with pytest.raises(InvalidJob, match=r"'lovely' is not .*; 'quarterly' is not"):
        parse_job({"ms.work.unit.partition": {"lovely": ["2020-01-01", "-"], "quarterly": []}})


def test_units_come_from_either_the_job_file_or_an_input(tmp_path: Path) -> None:
    as_json_lines(tmp_path / "ids")
    listed = [{"name": "id", "type": "unit", "units": "a"}]
    with pytest.raises(InvalidJob, match="list them in one of the two"):
        job(tmp_path, {"path": "ids"}, **{"ms.watermark": listed})


@pytest.mark.parametrize(
    "item",
    [
        {"path": ""},
        {},
        {"path": "a", "fields": "id"},
        {"path": "a", "fields": [1]},
        {"path": "a", "filters": ["x"]},
        {"path": "a", "filters": {"x": "("}},
        {"path": "a", "filters": {"x": 1}},
        {"path": "a", "filters": {"x": "a{99999999999999999999}"}},
        {"path": "a", "category": "other"},
        {"path": "a", "paht": "b"},
        "a",
    ],
)
def test_invalid_inputs_are_rejected(tmp_path: Path, item: Any) -> None:
    (tmp_path / "a").write_text('{"id": 1}', encoding="utf-8")
    with pytest.raises(InvalidJob, match=r"ms\.secondary\.input"):
        job(tmp_path, item)


@pytest.mark.parametrize(("text", "code"), [("a\0b", "U+0000"), ("\ud800", "U+D800"), ("x\udfff", "U+DFFF")])
def test_a_unit_that_no_database_can_store_is_rejected(text: str, code: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"contains the character {re.escape(code)}"):
        unit_of({"site": text})


def test_a_unit_may_have_any_other_character() -> None:
    assert unit_of({"site": "\U0001f30a ü\x01"}).as_dict() == {"site": "\U0001f30a ü\x01"}
