"""A short story on the console: three origins, buffers out of order, one gap, one idle input.

`python -m slackwater.demo.story` tells it, without Spark. After every step it asks the tracker how far
everybody is, and who holds the watermark back; nothing that is shown is written down here except what
arrives.
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
class Step:
    """What arrives, and what to look out for in the answer."""

    origin: str
    message: BufferHeader | Control
    remark: str


def _sends(origin: str, sequence: int, upto: str, remark: str) -> Step:
    watermark = instant(f"2024-05-01T{upto}:00Z")
    return Step(origin, BufferHeader(origin, sequence, watermarks={"default": watermark}), remark)


STORY = (
    _sends("north", 1, "12:01", "Two of the three origins have not spoken: nothing is complete yet."),
    _sends("south", 1, "12:02", "East may still send anything, so we wait for it."),
    _sends("east", 1, "12:03", "All three have spoken. The slowest decides."),
    _sends("north", 2, "12:06", "North has moved on; now south is the slowest."),
    _sends("south", 3, "12:09", "Buffer 3 overtook buffer 2: what lies beyond the gap does not count."),
    _sends("east", 2, "12:07", "East moves on, too. The gap holds everybody back, and has a name."),
    _sends("south", 2, "12:05", "Found. South is complete up to buffer 3, and the watermark jumps."),
    _sends("south", 2, "12:05", "Delivered twice: counted, and otherwise as if it had not happened."),
    Step("north", IDLE, "North's link is quiet. While it is idle, nobody waits for it."),
    _sends("east", 3, "12:12", "The others go on without it."),
    _sends("north", 3, "12:08", "North is back, far behind. The watermark waits, but never goes back."),
    _sends("north", 4, "12:15", "North has caught up; what was promised stays promised."),
    Step("south", DONE, "South has ended for good. The rest decide."),
    Step("east", DONE, "East, too."),
    Step("north", DONE, "Everybody is done: everything that was ever observed is complete."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scene:
    """One step after it was played: the clock, the step, and the tracker's answer."""

    now: int
    step: Step
    duplicate: bool
    why: Explanation


def play(tracker: ProgressTracker) -> Iterator[Scene]:
    """Play the story into a tracker, one step every two seconds of its clock.

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
        yield Scene(now, step, duplicate, tracker.why())
        now += 2 * SECOND


def main() -> None:
    """Tell the story.

    >>> main()  # doctest: +ELLIPSIS
    <BLANKLINE>
    How far are we, and who is holding it back?
    ...
    """
    console = Console(highlight=False)
    console.print("\n[bold]How far are we, and who is holding it back?[/bold]")
    console.print("Three origins send numbered buffers; each says up to when it is complete.\n")
    tracker = ProgressTracker(ORIGINS, now=START)
    for scene in play(tracker):
        _show(console, scene)
    saved = tracker.save()
    console.print(f"The whole state is {len(saved)} bytes; a restart goes on where it stood:")
    console.print(f"  {ProgressTracker.load(saved).why()}\n")


def _show(console: Console, scene: Scene) -> None:
    why = scene.why
    console.print(
        Text.assemble((_clock(scene.now), "dim"), "  ", (scene.step.origin, "bold cyan"), " ", _what(scene))
    )
    answer = Text.assemble("watermark ", (_time(why.watermark), "bold green"))
    if why.held_by is None:
        answer.append(f", every origin is {why.reason.value}", "yellow")
    else:
        answer.append(", held back by ").append(why.held_by, "bold yellow")
        answer.append(f" and {why.others} more" if why.others else "")
        answer.append(f": {why.reason.value if why.gap is None else why.gap}")
    remark = Text(scene.step.remark, "italic dim")
    console.print(Padding(Group(answer, remark), (0, 0, 1, len("12:10:00  "))))


def _what(scene: Scene) -> str:
    message = scene.step.message
    if isinstance(message, BufferHeader):
        again = " again" if scene.duplicate else ""
        return (
            f"sends buffer {message.sequence}{again}, complete up to {_time(message.watermarks['default'])}"
        )
    return "says it is idle" if message is IDLE else "says it is done"


def _time(value: int | None) -> str:
    return "unknown" if value is None else to_datetime(value).strftime("%H:%M")


def _clock(value: int) -> str:
    return to_datetime(value).strftime("%H:%M:%S")


if __name__ == "__main__":
    main()
