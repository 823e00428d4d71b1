"""``${name}`` in a job: another key, a value given on the command line, or a variable of the environment.

What comes from the environment is a secret: it is used, and never shown. Wherever a text would show it,
the reference that brought it in stands in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, quote_plus

from slackwater.ingest.job_errors import Problem

_REFERENCE: Final = re.compile(r"\$\{([^${}]*)\}")
_NESTED: Final = re.compile(r"\$\{[^{}]*\$\{")
_ENVIRONMENT: Final = "env:"
_WITHHELD: Final = "cannot be used (no more is said, because the value comes from the environment)"
_SHORTEST_PIECE: Final = 3


@dataclass
class Secrets:
    """Values that must not be shown, with the reference that each of them came from.

    >>> Secrets({"${env:TOKEN}": "s3cret"}).mask("Bearer s3cret")
    'Bearer ${env:TOKEN}'
    """

    values: dict[str, str] = field(default_factory=dict, repr=False)

    def mask(self, text: str) -> str:
        """``text`` with every secret replaced, also where it is quoted, escaped or encoded."""
        for name, value in sorted(self.values.items(), key=lambda item: -len(item[1])):
            spellings = {
                *(value, repr(value)[1:-1], json.dumps(value)[1:-1]),
                *(quote(value), quote(value, safe=""), quote_plus(value)),
            }
            for spelling in sorted(spellings, key=len, reverse=True):
                text = text.replace(spelling, name)
        return text

    def mask_reason(self, text: str) -> str:
        """A reason without secrets; if a piece of one is left in it, the reason is withheld.

        >>> Secrets({"${env:TOKEN}": "abcd-efgh"}).mask_reason("'efgh' is not a number")
        'cannot be used (no more is said, because the value comes from the environment)'
        """
        masked = self.mask(text)
        bare = masked
        for name in self.values:
            bare = bare.replace(name, "")
        pieces = {piece for value in self.values.values() for piece in re.split(r"\W+", value)}
        if any(len(piece) >= _SHORTEST_PIECE and piece in bare for piece in pieces):
            return _WITHHELD
        return masked

    def show(self, value: object) -> str:
        """A value as an error shows it."""
        return repr(self._masked(value))

    def _masked(self, value: object) -> object:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self._masked(key): self._masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._masked(item) for item in value]
        return value

    def __bool__(self) -> bool:
        return bool(self.values)


@dataclass(frozen=True)
class Resolved:
    """All keys with their references replaced, the secrets among them, and what could not be replaced."""

    values: dict[str, object] = field(repr=False)
    secrets: Secrets
    problems: tuple[Problem, ...]


def resolve(
    keys: Mapping[str, object], settings: Mapping[str, str], environment: Mapping[str, str]
) -> Resolved:
    """Replace every reference; ``settings`` win over keys of the same name.

    >>> resolve({"a": "${b}/x", "b": "${c}"}, {"c": "1"}, {}).values
    {'a': '1/x', 'b': '1', 'c': '1'}
    >>> print(resolve({"a": "${b}", "b": "${a}"}, {}, {}).problems[0])
    a = '${b}': refers to itself (a → b → a); break the circle
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
            self._done[key] = self._replaced(self._given[key], key, (*path, key))
        return self._done[key]

    def _replaced(self, value: object, key: str, path: tuple[str, ...]) -> object:
        if isinstance(value, str):
            if _NESTED.search(value):
                reason, fix = "has a reference in the name of another one", "write out the name"
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
                fix = "let them stand for different texts"
                self._problems.append(Problem(key, repr(name), "two names have become the same", fix))
            made[new] = self._replaced(item, key, path)
        return made

    def _target(self, name: str, key: str, value: str, path: tuple[str, ...]) -> object:
        """What a reference stands for; where it stands for nothing, the reference itself, and a problem."""
        reference = f"${{{name}}}"
        if name.startswith(_ENVIRONMENT):
            found = self._environment.get(name.removeprefix(_ENVIRONMENT))
            if found is None:
                reason = f"the environment has no {name.removeprefix(_ENVIRONMENT)!r}"
                self._problems.append(Problem(key, repr(value), reason, "set it, or correct the reference"))
                return reference
            if found:
                self._secrets.values[reference] = found
            return found
        if name in path:
            circle = " → ".join([*path[path.index(name) :], name])
            self._problems.append(
                Problem(
                    path[0], repr(self._given[path[0]]), f"refers to itself ({circle})", "break the circle"
                )
            )
            return reference
        if name not in self._given:
            fix = f"add the key {name!r}, give it with --set {name}=…, or write ${{env:NAME}}"
            self._problems.append(Problem(key, repr(value), f"nothing is called {name!r}", fix))
            return reference
        return self._value(name, path)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
