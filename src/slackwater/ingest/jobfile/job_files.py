"""Parsers of job files: Java properties, or YAML with the same flat keys.

In YAML the keys of the source and of the target may also be grouped below ``ms.source`` and ``ms.target``.
A duplicate key is an error; the last one does not win silently. YAML is read without the implicit types of
YAML 1.1, in which ``NO`` is false, ``010`` is eight and a date is not text. Its depth is limited, and so is
its size after aliases are replaced by what they stand for.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final

import javaproperties
import yaml

from slackwater.ingest.job_errors import InvalidJob, Problem
from slackwater.ingest.jobfile.value_sizes import MOST_VALUES, expanded_size

_PROPERTIES: Final = (".properties", ".pull", ".job", ".conf")
_YAML: Final = (".yaml", ".yml")
_GROUPS: Final = ("ms.source", "ms.target")
_DEEPEST: Final = 50
_FLAT: Final = "use flat keys, like ms.work.unit.partition: daily"


def read_job_file(path: Path) -> dict[str, object]:
    r"""Read the keys and values of a job file: text from properties, typed values from YAML.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "orders.properties"
    ...     _ = file.write_text("ms.backfill = false\n", encoding="utf-8")
    ...     read_job_file(file)
    {'ms.backfill': 'false'}
    """
    if path.suffix not in _PROPERTIES + _YAML:
        fix = f"rename it to end in one of {', '.join(_PROPERTIES + _YAML)}"
        raise InvalidJob([Problem("file", repr(path.name), "is neither a properties nor a YAML file", fix)])
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidJob(
            [Problem("file", repr(path.name), f"cannot be read: {reason}", "name a readable file in UTF-8")]
        ) from None
    return _from_yaml(text, path.name) if path.suffix in _YAML else _from_properties(text, path.name)


def _from_properties(text: str, name: str) -> dict[str, object]:
    try:
        pairs = [
            (entry.key, entry.value)
            for entry in javaproperties.parse(io.StringIO(text))
            if isinstance(entry, javaproperties.KeyValue)
        ]
    except javaproperties.InvalidUEscapeError as error:
        problem = Problem("file", repr(name), str(error), "write \\u followed by four hexadecimal digits")
        raise InvalidJob([problem], source=name) from None
    _reject_duplicates(Counter(key for key, _ in pairs), name)
    return dict(pairs)


def _from_yaml(text: str, name: str) -> dict[str, object]:
    try:
        loaded = yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - a SafeLoader with fewer implicit types
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        reason = f"is not YAML{where}: {getattr(error, 'problem', None) or 'cannot be read'}"
        raise InvalidJob([Problem("file", repr(name), reason, "correct that line")], source=name) from None
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping):
        problem = Problem("file", repr(name), "is not a mapping of keys to values", _FLAT)
        raise InvalidJob([problem], source=name)
    if expanded_size(loaded) > MOST_VALUES:
        reason = f"has more than {MOST_VALUES} values, aliases replaced"
        raise InvalidJob([Problem("file", repr(name), reason, "remove aliases")], source=name)
    nested = [str(key) for key, value in loaded.items() if _is_nested(str(key), value)]
    if nested:
        raise InvalidJob([Problem(key, None, "contains nested keys", _FLAT) for key in nested], source=name)
    pairs = [pair for key, value in loaded.items() for pair in _ungrouped(str(key), value)]
    _reject_duplicates(Counter(key for key, _ in pairs), name)
    return dict(pairs)


def _ungrouped(key: str, value: object) -> list[tuple[str, object]]:
    """A key with its value; or the keys of a group, each with its full name.

    >>> _ungrouped("ms.source", {"type": "sql", "table": "prices"})
    [('ms.source.type', 'sql'), ('ms.source.table', 'prices')]
    """
    if key in _GROUPS and isinstance(value, Mapping):
        return [(f"{key}.{inner}", each) for inner, each in value.items()]
    return [(key, value)]


def _is_nested(key: str, value: object) -> bool:
    return not key.startswith("ms.") and isinstance(value, Mapping)


def _reject_duplicates(uses: Counter[str], name: str) -> None:
    twice = [key for key, count in uses.items() if count > 1]
    if twice:
        raise InvalidJob(
            [Problem(key, None, f"occurs {uses[key]} times", "remove all but one") for key in twice],
            source=name,
        )


class _PlainLoader(yaml.SafeLoader):
    """The safe loader of PyYAML with the implicit types of YAML 1.2; duplicate keys are errors."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as the base has it
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _DEEPEST:
            reason = f"it is nested more than {_DEEPEST} levels deep"
            raise yaml.composer.ComposerError(None, None, reason, self.get_mark())
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable) or key in seen:
                reason = f"duplicate key {key!r}" if isinstance(key, Hashable) else "a key is not text"
                raise yaml.constructor.ConstructorError(None, None, reason, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[+-]?(?:0|[1-9][0-9]*)", "+-0123456789"),
    ("float", r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", "+-0123456789"),
):
    _PlainLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first)
    )
