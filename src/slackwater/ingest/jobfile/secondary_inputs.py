"""Secondary inputs: files whose records are the units of a job, or authenticate its requests.

Parquet, Avro, CSV and JSON lines, told apart by their first bytes, because the name of a file is often
only a date. All values become text, so that a unit keeps its identity when its file changes its format.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from slackwater.errors import InvalidArgument
from slackwater.ingest.job_errors import Problem
from slackwater.ingest.jobfile.job_keys import SecondaryInput
from slackwater.ingest.units import Unit, distinct, unit_of, value_text

_KEY: Final = "ms.secondary.input"
_PARQUET, _AVRO = b"PAR1", b"Obj\x01"


@dataclass(frozen=True)
class Inputs:
    """What the secondary inputs hold; ``units`` is None where no input lists units."""

    units: tuple[Unit, ...] | None = None
    authentication: Mapping[str, str | None] = field(default_factory=dict, repr=False)


class _Unusable(Exception):
    """Why an input cannot be used, and what would be right."""

    def __init__(self, reason: str, fix: str) -> None:
        self.problem = (reason, fix)
        super().__init__(reason)


def read_inputs(inputs: Sequence[SecondaryInput], folder: Path) -> tuple[Inputs, list[Problem]]:
    """Read all inputs, relative paths from ``folder``, and every problem with them.

    >>> read_inputs([], Path())
    (Inputs(units=None), [])
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
        fix = "let paths and filters leave exactly one record"
        problems.append(Problem(_KEY, None, f"{found} of category authentication", fix))
    activates = any(item.category == "activation" for item in inputs)
    token = tokens[0] if len(tokens) == 1 else {}
    return Inputs(distinct(units) if activates else None, token), problems


def _selected(item: SecondaryInput, records: list[Mapping[str, Any]]) -> list[dict[str, str | None]]:
    """The records that match all filters, with the fields that are asked for."""
    known = dict.fromkeys(name for record in records for name in record)
    missing = [name for name in [*item.fields, *item.filters] if name not in known]
    if records and missing:
        raise _Unusable(f"has no field {missing[0]!r}", f"use one of {', '.join(known)}")
    wanted = item.fields or tuple(known)
    try:
        return [
            {name: value_text(record.get(name)) for name in wanted}
            for record in records
            if all(_matches(record.get(name), pattern) for name, pattern in item.filters.items())
        ]
    except InvalidArgument as error:
        raise _Unusable(f"has a value that {error.reason}", "name other fields") from None


def _matches(value: object, pattern: re.Pattern[str]) -> bool:
    text = value_text(value)
    return text is not None and pattern.fullmatch(text) is not None


def _records(path: str, folder: Path) -> list[Mapping[str, Any]]:
    """All records of a file, or of all files in a folder in the order of their names."""
    try:
        if "://" in path:
            store, place = fs.FileSystem.from_uri(path)
        else:
            store, place = fs.LocalFileSystem(), str(folder / path)
        found = store.get_file_info(place)
        if found.type == fs.FileType.Directory:
            inside = store.get_file_info(fs.FileSelector(place, recursive=True))
            files = sorted(info.path for info in inside if info.is_file and info.base_name[0] not in "._")
        elif found.type == fs.FileType.File:
            files = [found.path]
        else:
            raise _Unusable("does not exist", "give the path of a file, or of a folder of files")
        records: list[Mapping[str, Any]] = []
        for file in files:
            with store.open_input_stream(file) as stream:
                records += _parsed(stream.read(), file)
    except (OSError, ValueError, EOFError, RecursionError, csv.Error, pa.ArrowException) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _Unusable(f"cannot be read: {detail}", "give Parquet, Avro, CSV or JSON lines") from None
    return records


def _parsed(data: bytes, file: str) -> Iterable[Mapping[str, Any]]:
    if data.startswith(_PARQUET):
        table: list[Mapping[str, Any]] = pq.read_table(pa.BufferReader(data)).to_pylist()
        return table
    if data.startswith(_AVRO):
        return [_object(record) for record in fastavro.reader(io.BytesIO(data))]
    text = data.decode("utf-8-sig")
    if file.lower().endswith(".csv"):
        return _from_csv(text)
    if text.strip() and not text.lstrip().startswith("{"):
        raise _Unusable(
            f"{Path(file).name!r} is in no known format", "give Parquet, Avro, JSON lines, or name it .csv"
        )
    return [_object(json.loads(line)) for line in text.split("\n") if line.strip()]


def _from_csv(text: str) -> list[Mapping[str, Any]]:
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row] or [[]]
    if len(set(header)) < len(header):
        raise _Unusable("has two columns of one name", "give every column a name of its own")
    if uneven := [row for row in rows if len(row) != len(header)]:
        raise _Unusable(f"has a row of {len(uneven[0])} values under {len(header)} names", "correct that row")
    return [dict(zip(header, row, strict=True)) for row in rows]


def _object(record: object) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        raise _Unusable(f"has a record that is no object: {str(record)[:40]!r}", "give objects with fields")
    return record
