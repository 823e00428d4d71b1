"""Makes a failing scenario small: fewer steps, fewer rows, plainer options, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from slackwater import windows
from tests.model.windows import Row
from tests.strategies.windows import Scenario, Step
from tests.support.windowed import RETRACTION, Options


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool], rounds: int = 400) -> Scenario:
    """The smallest scenario found by trying one simplification after the other."""
    for _ in range(rounds):
        simpler = (candidate for candidate in _simpler(scenario) if _is_valid(candidate))
        smaller = next((candidate for candidate in simpler if fails(candidate)), None)
        if smaller is None:
            break
        scenario = smaller
    return scenario


def _is_valid(scenario: Scenario) -> bool:
    """Whether every retraction takes back a row that was sent before."""
    remaining: list[Row] = []
    for step in scenario.steps:
        for row in step.rows:
            plain = {name: value for name, value in row.items() if name != RETRACTION}
            if not row.get(RETRACTION):
                remaining.append(plain)
            elif not scenario.options.retractions or plain not in remaining:
                return False
            else:
                remaining.remove(plain)
    return True


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    steps = scenario.steps
    for place in range(len(steps)):
        yield replace(scenario, steps=steps[:place] + steps[place + 1 :])
    for place, step in enumerate(steps):
        for changed in _simpler_step(step):
            yield replace(scenario, steps=(*steps[:place], changed, *steps[place + 1 :]))
    for options in _simpler_options(scenario.options):
        yield replace(scenario, options=options)


def _simpler_step(step: Step) -> Iterator[Step]:
    for size in (8, 3, 1):
        for place in range(0, len(step.rows), size):
            yield replace(step, rows=step.rows[:place] + step.rows[place + size :])
    if step.watermark is not None:
        yield replace(step, watermark=None)
    if step.reload:
        yield replace(step, reload=False)
    for place, row in enumerate(step.rows):
        if row["value"] != 1:
            yield replace(step, rows=(*step.rows[:place], {**row, "value": 1}, *step.rows[place + 1 :]))


def _simpler_options(options: Options) -> Iterator[Options]:
    for option in fields(options):
        if (
            option.name not in {"window", "trigger", "key"}
            and getattr(options, option.name) != option.default
        ):
            simpler: dict[str, Any] = {option.name: option.default}
            yield replace(options, **simpler)
    for trigger in _simpler_triggers(options.trigger):
        yield replace(options, trigger=trigger)
    match options.window:
        case windows.Fixed(size, offset) if offset:
            yield replace(options, window=windows.Fixed(size))
        case windows.Sliding(size, every, offset) if offset:
            yield replace(options, window=windows.Sliding(size, every))
        case windows.Sliding(size):
            yield replace(options, window=windows.Fixed(size))


def _simpler_triggers(trigger: windows.Trigger) -> Iterator[windows.Trigger]:
    """The parts of a trigger, and the trigger with one of its parts made simpler."""
    match trigger:
        case windows.AfterWatermark(early=early, late=late):
            yield from (part for part in (early, late) if part is not None)
            if early is not None:
                yield windows.AfterWatermark(late=late)
                yield from (windows.AfterWatermark(part, late) for part in _simpler_triggers(early))
            if late is not None:
                yield windows.AfterWatermark(early=early)
                yield from (windows.AfterWatermark(early, part) for part in _simpler_triggers(late))
        case windows.Repeatedly(trigger=inner):
            yield inner
            yield from (windows.Repeatedly(part) for part in _simpler_triggers(inner))
        case windows.OrFinally(main=main, until=until):
            yield from (main, until)
            yield from (windows.OrFinally(part, until) for part in _simpler_triggers(main))
            yield from (windows.OrFinally(main, part) for part in _simpler_triggers(until))
        case (
            windows.AfterEach(triggers=parts)
            | windows.AfterAny(triggers=parts)
            | windows.AfterAll(triggers=parts)
        ):
            yield from parts
            for place, part in enumerate(parts):
                before, after = parts[:place], parts[place + 1 :]
                if len(parts) > 1:
                    yield type(trigger)(*before, *after)
                yield from (type(trigger)(*before, simple, *after) for simple in _simpler_triggers(part))
