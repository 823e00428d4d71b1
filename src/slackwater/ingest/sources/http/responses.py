"""Response parsing: the records in a response in JSON, JSON lines or CSV."""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from slackwater.ingest.sources.http.http_errors import InvalidResponse, UnreadableResponse

WHOLE: Final = "."
"""The path of a response that is itself the record, or the list of records."""
_OPTIONAL: Final = "?"
"""At the end of a path: a missing path means no records."""
VALUE: Final = "value"
"""The column of records that are not objects."""
_SHOWN: Final = 10


@dataclass(frozen=True)
class ResponseFormat:
    """The format of a response, and the path of its records."""

    format: str = "json"
    path: str | None = None
    delimiter: str = ","

    def parse(self, data: bytes, charset: str | None) -> Page:
        """Parse a response into its records; in JSON, keep the whole document for its cursor.

        >>> ResponseFormat(path="data.items").parse(b'{"data": {"items": [{"id": 1}, 7]}}', None).records
        [{'id': 1}, {'value': 7}]
        """
        text = _decoded(data, charset)
        if self.format == "csv":
            return Page(_from_csv(text, self.delimiter))
        if self.format == "ndjson":
            return Page([_record(_json(line)) for line in text.split("\n") if line.strip()])
        if not text.strip():
            raise UnreadableResponse("an empty response, which is not JSON")
        document = _json(text)
        return Page(self._found(document), document)

    def _found(self, document: Any) -> list[Mapping[str, Any]]:
        if self.path is None or self.path == WHOLE:
            if isinstance(document, list):
                return [_record(item) for item in document]
            if self.path is None:
                raise InvalidResponse(
                    f"the response is {_kind(document)}, not a list of records; set ms.source.http.records "
                    f"to the path of the list{_names(document)}, or to . for a single record"
                )
            return [_record(document)]
        path, optional = self.path.removesuffix(_OPTIONAL), self.path.endswith(_OPTIONAL)
        found, there = at_path(document, path)
        if not found and optional:
            return []
        if not found:
            raise InvalidResponse(
                f"the response has nothing at {path!r}; set ms.source.http.records to the path of the "
                f"records{_names(there)}"
            )
        if there is None:
            return []
        return [_record(item) for item in there] if isinstance(there, list) else [_record(there)]


@dataclass(frozen=True)
class Page:
    """The records of a response; ``document`` is the whole response in JSON."""

    records: list[Mapping[str, Any]]
    document: Any = None


def at_path(document: Any, path: str) -> tuple[bool, Any]:
    """Look up a dotted path, whose names may contain dots; if it is missing, return how far it leads.

    >>> at_path({"a": [{"b.c": 1}]}, "a.0.b.c")
    (True, 1)
    >>> at_path({"a": {"b": 1}}, "a.c")
    (False, {'b': 1})
    """
    if isinstance(document, Mapping) and path in document:
        return True, document[path]
    name, _, rest = path.partition(".")
    inner: Any
    if isinstance(document, Mapping) and name in document:
        inner = document[name]
    elif isinstance(document, list) and name.isdecimal() and int(name) < len(document):
        inner = document[int(name)]
    else:
        return False, document
    return at_path(inner, rest) if rest else (True, inner)


def encoded(record: Mapping[str, Any]) -> str:
    r"""Encode a record as one line of JSON; replace lone surrogates, which UTF-8 cannot encode.

    >>> encoded({"name": "Ä\ud800"})
    '{"name":"Ä�"}'
    """
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _decoded(data: bytes, charset: str | None) -> str:
    try:
        name = codecs.lookup(charset or "utf-8").name
    except LookupError:
        raise InvalidResponse(f"the response has an unknown charset {charset!r}; check the API") from None
    try:
        return data.decode("utf-8-sig" if name == "utf-8" else name)
    except UnicodeDecodeError as error:
        raise UnreadableResponse(
            f"a response that is not {name}: {error.reason} at byte {error.start}"
        ) from None


def _json(text: str) -> Any:
    def number(digits: str) -> float | str:
        value = float(digits)
        return value if math.isfinite(value) else digits

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a number")

    try:
        return json.loads(text, parse_float=number, parse_int=_whole, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        detail = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UnreadableResponse(f"a response that is not JSON: {detail}") from None


def _whole(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:  # more digits than Python parses
        return digits


def _record(item: Any) -> Mapping[str, Any]:
    return item if isinstance(item, Mapping) else {VALUE: item}


def _from_csv(text: str, delimiter: str) -> list[Mapping[str, Any]]:
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        header, *lines = [row for row in rows if row] or [[]]
    except csv.Error as error:
        raise UnreadableResponse(f"a response that is not CSV: {error}") from None
    if len(set(header)) < len(header):
        raise InvalidResponse("the response has two columns of the same name; column names must be unique")
    if uneven := [row for row in lines if len(row) != len(header)]:
        values = "1 value" if len(uneven[0]) == 1 else f"{len(uneven[0])} values"
        raise UnreadableResponse(f"a response with a row of {values} for {len(header)} columns")
    return [{name: value or None for name, value in zip(header, row, strict=True)} for row in lines]


def _kind(value: Any) -> str:
    return "an object" if isinstance(value, Mapping) else "null" if value is None else "a single value"


def _names(value: Any) -> str:
    if not isinstance(value, Mapping) or not value:
        return ""
    listed = [name for name, item in value.items() if isinstance(item, list)] or list(value)
    return f" (available: {', '.join(map(repr, listed[:_SHOWN]))})"
