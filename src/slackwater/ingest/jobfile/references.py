"""References in a job: ``${name}`` is another key, a ``--set`` value, or an environment variable.

Values from the environment are secrets: messages show the reference instead of the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from slackwater.ingest.job_errors import Problem
from slackwater.ingest.jobfile.value_sizes import LONGEST_TEXT, MOST_VALUES, expanded_size
from slackwater.ingest.redaction import Secrets

_REFERENCE: Final = re.compile(r"\$\{([^${}]*)\}")
_NESTED: Final = re.compile(r"\$\{[^{}]*\$\{")
_ENVIRONMENT: Final = "env:"
_LONGEST_CHAIN: Final = 50


@dataclass(frozen=True)
class Resolved:
    """All keys with their references replaced, the secrets among them, and the problems."""

    values: dict[str, object] = field(repr=False)
    secrets: Secrets
    problems: tuple[Problem, ...]


def resolve(
    keys: Mapping[str, object], settings: Mapping[str, str], environment: Mapping[str, str]
) -> Resolved:
    """Replace every reference; ``settings`` override keys of the same name.

    >>> resolve({"a": "${b}/x", "b": "${c}"}, {"c": "1"}, {}).values
    {'a': '1/x', 'b': '1', 'c': '1'}
    >>> print(resolve({"a": "${b}", "b": "${a}"}, {}, {}).problems[0])
    a = '${b}': is a circular reference (a → b → a); remove one of the references
    """
    return _Resolution({**keys, **settings}, environment).run()


class _Resolution:
    def __init__(self, given: Mapping[str, object], environment: Mapping[str, str]) -> None:
        self._given = given
        self._environment = environment
        self._secrets = Secrets()
        self._problems: list[Problem] = []
        self._done: dict[str, object] = {}

    def run(self) -> Resolved:
        for key in self._given:
            self._value(key, ())
        return Resolved({key: self._done[key] for key in self._given if key in self._done}, self._secrets,
                        tuple(dict.fromkeys(self._problems)))  # fmt: skip

    def _value(self, key: str, path: tuple[str, ...]) -> object:
        if key not in self._done:
            found = self._replaced(self._given[key], key, (*path, key))
            if (isinstance(found, str) and len(found) > LONGEST_TEXT) or expanded_size(found) > MOST_VALUES:
                size = f"{LONGEST_TEXT} characters or {MOST_VALUES} values"
                reason = f"has more than {size} after its references are replaced"
                self._problems.append(Problem(key, None, reason, "use fewer references"))
                found = ""  # and not a value that would make others even longer
            self._done[key] = found
        return self._done[key]

    def _replaced(self, value: object, key: str, path: tuple[str, ...]) -> object:
        if isinstance(value, str):
            if _NESTED.search(value):
                reason, fix = "has a nested reference", "write out the inner name"
                self._problems.append(Problem(key, repr(value), reason, fix))
                return value
            whole = _REFERENCE.fullmatch(value)
            if whole:
                return self._target(whole[1], key, value, path)
            return _REFERENCE.sub(lambda found: _as_text(self._target(found[1], key, value, path)), value)
        if isinstance(value, Mapping):
            return self._replaced_object(value, key, path)
        if isinstance(value, list):
            return [self._replaced(item, key, path) for item in value]
        return value

    def _replaced_object(
        self, value: Mapping[object, object], key: str, path: tuple[str, ...]
    ) -> dict[object, object]:
        made: dict[object, object] = {}
        for name, item in value.items():
            new = _as_text(self._replaced(name, key, path)) if isinstance(name, str) else name
            if new in made:
                fix = "give the references different values"
                self._problems.append(Problem(key, repr(name), "is the same name as another one", fix))
            made[new] = self._replaced(item, key, path)
        return made

    def _target(self, name: str, key: str, value: str, path: tuple[str, ...]) -> object:
        """The value of a reference; if it has none, the reference itself, and a problem is recorded."""
        reference = f"${{{name}}}"
        if name.startswith(_ENVIRONMENT):
            found = self._environment.get(name.removeprefix(_ENVIRONMENT))
            if found is None:
                reason = f"environment variable {name.removeprefix(_ENVIRONMENT)!r} is not set"
                self._problems.append(Problem(key, repr(value), reason, "set it, or correct the reference"))
                return reference
            if found:
                self._secrets.values[reference] = found
            return found
        if len(path) > _LONGEST_CHAIN:
            reason = f"is a chain of more than {_LONGEST_CHAIN} references"
            fix = "refer to the last key directly"
            self._problems.append(Problem(path[0], None, reason, fix))
            return reference
        if name in path:
            circle = " → ".join([*path[path.index(name) :], name])
            self._problems.append(
                Problem(
                    path[0],
                    repr(self._given[path[0]]),
                    f"is a circular reference ({circle})",
                    "remove one of the references",
                )
            )
            return reference
        if name not in self._given:
            fix = f"add the key {name!r}, pass --set {name}=…, or write ${{env:NAME}}"
            self._problems.append(Problem(key, repr(value), f"unknown reference {name!r}", fix))
            return reference
        return self._value(name, path)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
