"""A short scenario on the console, without Spark: three origins, a gap, a duplicate, an idle origin.

Run it with `python -m slackwater.demo.console_scenario`. After every message it prints the watermark and what
holds it back, as the tracker explains it. Only the messages and the remarks are scripted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from slackwater.progress.explanation import Explanation
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import DONE, IDLE, BufferHeader, Control
from slackwater.time import SECOND, instant, to_datetime

ORIGINS = ("north", "south", "east")
START = instant("2024-05-01T12:10:00Z")


@dataclass(frozen=True, slots=True)
class ConsoleStep:
    """A message and a remark on its effect."""

    origin: str
    message: BufferHeader | Control
    remark: str


def _sends(origin: str, sequence: int, upto: str, remark: str) -> ConsoleStep:
    watermark = instant(f"2024-05-01T{upto}:00Z")
    return ConsoleStep(origin, BufferHeader(origin, sequence, watermarks={"default": watermark}), remark)


STORY = (
    _sends("north", 1, "12:01", "Two of the three origins have not sent anything: nothing is complete yet."),
    _sends("south", 1, "12:02", "East may still send anything, so we wait for it."),
    _sends("east", 1, "12:03", "All three have sent something. The slowest decides."),
    _sends("north", 2, "12:06", "North has advanced; now south is the slowest."),
    _sends("south", 3, "12:09", "Buffer 3 overtook buffer 2: what comes after the gap does not count yet."),
    _sends("east", 2, "12:07", "East advances too. The gap still holds the watermark back."),
    _sends("south", 2, "12:05", "The gap is closed. South is complete up to buffer 3; the watermark jumps."),
    _sends("south", 2, "12:05", "A duplicate: it is counted and has no other effect."),
    ConsoleStep("north", IDLE, "North's link is quiet. The watermark does not wait for an idle origin."),
    _sends("east", 3, "12:12", "The watermark advances without north."),
    _sends("north", 3, "12:08", "North is back, far behind. The watermark waits, but never goes back."),
    _sends("north", 4, "12:15", "North has caught up; now south is the slowest again."),
    ConsoleStep("south", DONE, "South has ended. The others decide."),
    ConsoleStep("east", DONE, "East has ended too."),
    ConsoleStep("north", DONE, "All origins are done: everything that was observed is complete."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConsoleScene:
    """A step with the clock and the explanation of the tracker after it."""

    now: int
    step: ConsoleStep
    duplicate: bool
    why: Explanation


def play(tracker: ProgressTracker) -> Iterator[ConsoleScene]:
    """Send the messages to a tracker, one every two seconds of its clock.

    >>> scenes = list(play(ProgressTracker(ORIGINS)))
    >>> scenes[4].why.held_by, str(scenes[4].why.gap)
    ("origin 'south'", 'gap at sequence 2 (chunks missing: all)')
    """
    now = START
    for step in STORY:
        duplicate = False
        if isinstance(step.message, BufferHeader):
            duplicate = tracker.observe(step.message, now=now).duplicate
        elif step.message is IDLE:
            tracker.idle(step.origin, now=now)
        else:
            tracker.done(step.origin, now=now)
        yield ConsoleScene(now, step, duplicate, tracker.why())
        now += 2 * SECOND


def main() -> None:
    """Print every step of the scenario.

    >>> main()  # doctest: +ELLIPSIS
    <BLANKLINE>
    How far are we, and what holds the watermark back?
    ...
    """
    console = Console(highlight=False)
    console.print("\n[bold]How far are we, and what holds the watermark back?[/bold]")
    console.print(
        "Three origins send numbered buffers; each carries the time up to which its origin is complete.\n"
    )
    tracker = ProgressTracker(ORIGINS, now=START)
    for scene in play(tracker):
        _print_scene(console, scene)
    saved = tracker.save()
    console.print(f"The complete state is {len(saved)} bytes. After a restart:")
    console.print(f"  {ProgressTracker.load(saved).why()}\n")


def _print_scene(console: Console, scene: ConsoleScene) -> None:
    why = scene.why
    console.print(
        Text.assemble(
            (_clock(scene.now), "dim"), "  ", (scene.step.origin, "bold cyan"), " ", _message_text(scene)
        )
    )
    status = Text.assemble("watermark ", (_time(why.watermark), "bold green"))
    if why.held_by is None:
        status.append(f", every origin is {why.reason.value}", "yellow")
    else:
        status.append(", held back by ").append(why.held_by, "bold yellow")
        status.append(f" and {why.others} more" if why.others else "")
        status.append(f": {why.reason.value if why.gap is None else why.gap}")
    remark = Text(scene.step.remark, "italic dim")
    console.print(Padding(Group(status, remark), (0, 0, 1, len("12:10:00  "))))


def _message_text(scene: ConsoleScene) -> str:
    message = scene.step.message
    if isinstance(message, BufferHeader):
        again = " again" if scene.duplicate else ""
        return (
            f"sends buffer {message.sequence}{again}, complete up to {_time(message.watermarks['default'])}"
        )
    return "is idle" if message is IDLE else "is done"


def _time(value: int | None) -> str:
    return "unknown" if value is None else to_datetime(value).strftime("%H:%M")


def _clock(value: int) -> str:
    return to_datetime(value).strftime("%H:%M:%S")


if __name__ == "__main__":
    main()
