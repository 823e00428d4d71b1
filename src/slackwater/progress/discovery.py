"""Discovery of origins: how long the first watermark waits for origins that are not declared."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.errors import InvalidDuration
from slackwater.time import DurationLike, check_int64, duration


@dataclass(frozen=True, slots=True)
class Discover:
    """Discover origins as they appear, and emit no watermark before ``wait`` has passed; see `discover`.

    Args:
        wait: Microseconds, greater than zero.

    >>> import slackwater as sw
    >>> sw.Discover(30_000_000).wait
    30000000
    """

    wait: int

    def __post_init__(self) -> None:
        if check_int64(self.wait, "wait") <= 0:
            raise InvalidDuration(
                "wait", self.wait, "must be greater than zero", fix='write discover("30 seconds")'
            )


def discover(wait: DurationLike) -> Discover:
    """Discover origins as they appear, and wait for them before the first watermark.

    An origin that is first heard behind the watermark of the others has only late rows. With this value for
    the argument ``origins`` of `stream`, no watermark is emitted for ``wait`` after the first start of the
    query, on the clock of the query. Every origin that is heard in this time then counts for the first
    watermark. The wait is part of the saved state: a restart continues it, and the time of the restart does
    not count.

    When not to use it: if you know the origins, list them. An origin that is silent for longer than ``wait``
    is not waited for.

    Args:
        wait: How long the first watermark waits.

    Returns:
        A value for the argument ``origins`` of `stream`.

    Raises:
        InvalidDuration: The duration cannot be parsed or is not greater than zero.

    >>> import slackwater as sw
    >>> sw.discover("30 seconds")
    Discover(wait=30000000)
    """
    return Discover(duration(wait, name="wait"))
