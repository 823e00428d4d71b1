"""What every conformance suite shares: strict fields, errors that a case asks for, readable failures.

The cases are data written by others. A runner that ignores a field it does not know, or lets any
exception pass for the one that was asked for, proves nothing; so the strictness lives here, once,
and a suite only says which fields it understands and what to do with them.
"""

from __future__ import annotations

import pprint
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slackwater.errors import SlackwaterError

Case = Mapping[str, Any]
Step = Mapping[str, Any]

COMMON_FIELDS = frozenset({"id", "from", "note"})
"""Fields that a case of any suite may have; a suite need not list them."""


class Difference(AssertionError):
    """What the project did is not what the case asks for."""


class BrokenCase(AssertionError):
    """The case itself cannot be understood: never what a case asks for, whatever its `error` says."""


@dataclass(frozen=True)
class Fields:
    """The fields that a mapping must and may have; everything else is a failure.

    >>> Fields({"at"}, {"offset"}).check({"at": 1, "ofset": 2}, "case")
    Traceback (most recent call last):
    tests.conformance.framework.BrokenCase: case: unknown field 'ofset' (known: at, offset)
    """

    required: Iterable[str] = ()
    optional: Iterable[str] = ()
    known: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", frozenset(self.required) | frozenset(self.optional))

    def problem(self, value: object) -> str | None:
        """What is wrong with ``value``, or None."""
        if not isinstance(value, Mapping):
            return f"expected a mapping of fields, got {value!r}"
        names = {str(name) for name in value}
        if unknown := sorted(names - self.known):
            return f"unknown field {', '.join(map(repr, unknown))} (known: {', '.join(sorted(self.known))})"
        if missing := sorted(set(self.required) - names):
            return f"missing field {', '.join(map(repr, missing))}"
        return None

    def check(self, value: object, where: str) -> None:
        """Raise unless ``value`` has every required field and no unknown one."""
        if problem := self.problem(value):
            raise BrokenCase(f"{where}: {problem}")


def check_case(case: Case, fields: Fields, steps: Iterable[Fields] | None, key: str = "steps") -> None:
    """Check the fields of a case, and of its steps against the kinds of step the suite knows.

    A step fits if one kind takes all of its fields; ``error`` is allowed in every step.
    """
    name = case.get("id", "a case without id")
    Fields({"id", *fields.required}, {*COMMON_FIELDS, *fields.optional}).check(case, f"case {name}")
    if steps is None:
        return
    listed = case.get(key)
    if not isinstance(listed, list) or not listed:
        raise BrokenCase(f"case {name}: {key} must be a list with at least one step, got {listed!r}")
    kinds = [Fields(kind.required, {*kind.optional, "error"}) for kind in steps]
    for number, step in enumerate(listed, 1):
        problems = [kind.problem(step) for kind in kinds]
        if None not in problems:
            reasons = "\n".join(
                f"  not {sorted(kind.required)}: {text}" for kind, text in zip(kinds, problems, strict=True)
            )
            raise BrokenCase(
                f"case {name}, step {number} of {len(listed)}: {step!r}\n  fits no kind of step\n{reasons}"
            )


def run_steps(steps: list[Step], perform: Callable[[Step], None]) -> None:
    """Perform every step; the failure of one names its number, the step and the difference.

    A step with ``error`` must raise a Slackwater error whose message contains that text (any, if it
    says ``true``), and is the last of its case.
    """
    for number, step in enumerate(steps, 1):
        where = f"step {number} of {len(steps)}: {step!r}"
        try:
            if "error" in step:
                if number < len(steps):
                    raise BrokenCase("an `error` ends its case, but more steps follow")
                must_fail(step["error"], lambda step=step: perform(step))  # type: ignore[misc]  # mypy knows no default in a lambda
            else:
                perform(step)
        except AssertionError as difference:
            raise Difference(f"{where}\n{difference}") from None
        except SlackwaterError as error:
            raise Difference(
                f"{where}\n  expected: no error\n  got:      {type(error).__name__}: {error}"
            ) from error


def flag(step: Step, name: str) -> bool:
    """Whether the step is of the kind that ``name: true`` marks; any other value cannot be understood.

    >>> flag({"idle": True}, "idle"), flag({"done": True}, "idle")
    (True, False)
    """
    if step.get(name, True) is not True:
        raise BrokenCase(f"{name}: must be true, got {step[name]!r}")
    return name in step


def ends_in_error(case: Case) -> bool:
    """Whether the last step must raise, so that the whole output need not be listed.

    >>> ends_in_error({"steps": [{"error": True}]})
    True
    """
    return "error" in case["steps"][-1]


def must_fail(text: object, perform: Callable[[], object]) -> None:
    """Raise unless ``perform`` raises a Slackwater error whose message contains ``text``.

    Only errors that Slackwater raises on purpose count: a TypeError is a bug, not a refusal.
    """
    wanted = "any error" if text is True else f"an error that says {text!r}"
    try:
        result = perform()
    except SlackwaterError as error:
        if text is not True and str(text).lower() not in str(error).lower():
            raise Difference(f"  expected: {wanted}\n  got:      {type(error).__name__}: {error}") from error
    else:
        raise Difference(f"  expected: {wanted}\n  got:      no error, the result {result!r}")


def equal(what: str, expected: object, got: object) -> None:
    """Raise with both values, one under the other, unless they are equal.

    >>> equal("complete", 3, 2)
    Traceback (most recent call last):
    tests.conformance.framework.Difference: complete
      expected: 3
      got:      2
    """
    if expected != got:
        raise Difference(f"{what}\n  expected: {_shown(expected)}\n  got:      {_shown(got)}")


def _shown(value: object) -> str:
    return pprint.pformat(value, width=110, sort_dicts=False).replace("\n", "\n            ")
