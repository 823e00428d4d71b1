"""Secondary inputs: files whose records are the units of a job, or authenticate its requests.

The format (Parquet, Avro, CSV or JSON) is detected from the first bytes, because file names are often only
dates. JSON is a list of objects, or objects one after the other, each on one or several lines. All values
become text, so a unit keeps its identity when its file changes its format.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.ingest.job_errors import Problem
from slackwater.ingest.jobfile.job_keys import SecondaryInput
from slackwater.ingest.units import Unit, distinct, unit_of, value_text

_KEY: Final = "ms.secondary.input"
_PARQUET, _AVRO = b"PAR1", b"Obj\x01"
_SPACE: Final = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True)
class SecondaryInputs:
    """The contents of the secondary inputs; ``units`` is None if no input lists units."""

    units: tuple[Unit, ...] | None = None
    authentication: Mapping[str, str | None] = field(default_factory=dict, repr=False)


class _Unusable(Exception):
    """An input that cannot be used, with the reason and the fix."""

    def __init__(self, reason: str, fix: str) -> None:
        self.problem = (reason, fix)
        super().__init__(reason)


def read_inputs(inputs: Sequence[SecondaryInput], folder: Path) -> tuple[SecondaryInputs, list[Problem]]:
    """Read all inputs, with paths relative to ``folder``, and collect all problems.

    >>> read_inputs([], Path())
    (SecondaryInputs(units=None), [])
    """
    units: list[Unit] = []
    tokens: list[dict[str, str | None]] = []
    problems: list[Problem] = []
    unread = False
    for number, item in enumerate(inputs):
        try:
            records = _selected(item, _records(item.path, folder))
            if item.category == "activation":
                units += [unit_of(record) for record in records]
            else:
                tokens += records
        except _Unusable as error:
            unread = unread or item.category == "authentication"
            problems.append(Problem(f"{_KEY}[{number}].path", repr(item.path), *error.problem))
    wants_token = any(item.category == "authentication" for item in inputs)
    if wants_token and len(tokens) != 1 and not unread:
        found = f"{len(tokens)} records" if tokens else "no record"
        fix = "change paths or filters so that exactly one record remains"
        problems.append(Problem(_KEY, None, f"has {found} of category authentication", fix))
    activates = any(item.category == "activation" for item in inputs)
    token = tokens[0] if len(tokens) == 1 else {}
    return SecondaryInputs(distinct(units) if activates else None, token), problems


def _selected(item: SecondaryInput, records: list[Mapping[str, Any]]) -> list[dict[str, str | None]]:
    """The records that match all filters, with the requested fields."""
    known = dict.fromkeys(name for record in records for name in record)
    missing = [name for name in [*item.fields, *item.filters] if name not in known]
    if records and missing:
        raise _Unusable(f"has no field {missing[0]!r}", available(missing[0], known, lead="use one of "))
    wanted = item.fields or tuple(known)
    try:
        return [
            {name: value_text(record.get(name)) for name in wanted}
            for record in records
            if all(_matches(record.get(name), pattern) for name, pattern in item.filters.items())
        ]
    except InvalidArgument as error:
        raise _Unusable(f"has a value that {error.reason}", "select other fields") from None


def _matches(value: object, pattern: re.Pattern[str]) -> bool:
    text = value_text(value)
    return text is not None and pattern.fullmatch(text) is not None


def _records(path: str, folder: Path) -> list[Mapping[str, Any]]:
    """All records of a file, or of all files in a folder in name order."""
    try:
        if "://" in path:
            filesystem, location = fs.FileSystem.from_uri(path)
        else:
            filesystem, location = fs.LocalFileSystem(), str(folder / path)
        found = filesystem.get_file_info(location)
        if found.type == fs.FileType.Directory:
            inside = filesystem.get_file_info(fs.FileSelector(location, recursive=True))
            files = sorted(
                info.path for info in inside if info.is_file and not _is_hidden(info.path, found.path)
            )
        elif found.type == fs.FileType.File:
            files = [found.path]
        else:
            raise _Unusable("does not exist", "set it to the path of a file or a folder")
        records: list[Mapping[str, Any]] = []
        for file in files:
            with filesystem.open_input_stream(file) as stream:
                records += _parsed(stream.read(), file)
    except (OSError, ValueError, EOFError, RecursionError, csv.Error, pa.ArrowException) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _Unusable(f"cannot be read: {detail}", "use Parquet, Avro, CSV or JSON") from None
    return records


def _is_hidden(path: str, folder: str) -> bool:
    """Whether a file, or a folder on the way to it, has a name that begins with ``_`` or ``.``, as in Spark.

    >>> _is_hidden("a/_versions/1/x.parquet", "a"), _is_hidden("_a/x.parquet", "_a")
    (True, False)
    """
    return any(name[:1] in ("_", ".") for name in path.removeprefix(folder).split("/"))


def _parsed(data: bytes, file: str) -> Iterable[Mapping[str, Any]]:
    if data.startswith(_PARQUET):
        table: list[Mapping[str, Any]] = pq.read_table(pa.BufferReader(data)).to_pylist()
        return table
    if data.startswith(_AVRO):
        return [_object(record) for record in fastavro.reader(io.BytesIO(data))]
    text = data.decode("utf-8-sig")
    if file.lower().endswith(".csv"):
        return _from_csv(text)
    if text.strip() and text.lstrip()[0] not in "{[":
        raise _Unusable(
            f"{Path(file).name!r} has an unknown format", "use Parquet, Avro, JSON, or a .csv file"
        )
    return [_object(record) for record in _from_json(text)]


def _from_json(text: str) -> Iterator[Any]:
    r"""The records of a JSON file: a list of them, or one after the other on lines of their own.

    >>> list(_from_json('[{"id": 1}]')), list(_from_json('{"id": 1}\n{\n"id": 2\n}'))
    ([{'id': 1}], [{'id': 1}, {'id': 2}])
    """
    decoder = json.JSONDecoder()
    position = _after_space(text, 0)
    while position < len(text):
        value, end = decoder.raw_decode(text, position)
        yield from value if isinstance(value, list) else [value]
        position = _after_space(text, end)
        if position < len(text) and "\n" not in text[end:position]:
            raise json.JSONDecodeError("Extra data", text, position)


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return position if found is None else found.end()


def _from_csv(text: str) -> list[Mapping[str, Any]]:
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row] or [[]]
    if len(set(header)) < len(header):
        raise _Unusable("has two columns of the same name", "make column names unique")
    if uneven := [row for row in rows if len(row) != len(header)]:
        values = "1 value" if len(uneven[0]) == 1 else f"{len(uneven[0])} values"
        raise _Unusable(f"has a row of {values} for {len(header)} columns", "correct that row")
    return [dict(zip(header, row, strict=True)) for row in rows]


def _object(record: object) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        raise _Unusable(
            f"has a record that is not an object: {str(record)[:40]!r}", "use objects with fields"
        )
    return record
