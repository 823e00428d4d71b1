"""Reading a stream without a group: from one place to another, or on and on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slackwater.streams.log.catalog import Stream, epochs_of
from slackwater.streams.log.cuts import check_cut, check_not_before, check_reached
from slackwater.streams.log.positions import Position
from slackwater.streams.log.segment_reader import EventBatch, read_events
from slackwater.streams.log.segments import Epochs
from slackwater.streams.log.walking import advanced, between, readable


@dataclass(frozen=True, slots=True)
class Extent:
    """The segments of a stream and how many events each has had, at one moment.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     Extent.of(streams.create("shop/bids")).lengths
    {0: 0}
    """

    epochs: Epochs
    lengths: dict[int, int]

    @classmethod
    def of(cls, stream: Stream) -> Extent:
        """As it is now."""
        states = stream.segments()
        return cls(epochs_of(states), {state.segment.id: state.length for state in states})


def place(stream: Stream, text: str, name: str = "from") -> Position:
    """A place in a stream that reading can start at: ``head``, ``tail``, a time, or a cut as JSON.

    A time stands for the newest cut before which nothing was noted at or after it.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     place(bids, "head"), place(bids, "2024-01-01T00:00:00Z"), place(bids, '{"0": 0}')
    (Position({0: 0}), Position({0: 0}), Position({0: 0}))
    """
    if text == "head":
        return stream.head()
    extent = Extent.of(stream)
    if text == "tail":
        return Position.of({s.id: extent.lengths[s.id] for s in extent.epochs.active})
    if text.lstrip().startswith("{"):
        cut = check_cut(extent.epochs, Position.parse(text, name))
        check_reached(cut, extent.lengths, name)
    else:
        cut = stream.cut_at(text)
    return readable(extent.epochs, cut, extent.lengths)


def scan(stream: Stream, start: Position, end: Position | None = None) -> Iterator[EventBatch]:
    """The events between two places, in their order for each routing key; up to where the stream ends now.

    >>> from slackwater.streams.log.catalog import Streams
    >>> from slackwater.streams.log.writer import Writer
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids", segments=2)
    ...     with Writer(bids) as writer:
    ...         number = writer.write_many([b"a", b"b"], keys=["a", "b"])
    ...     sum(batch.events.num_rows for batch in scan(bids, bids.head()))
    2
    """
    extent = Extent.of(stream)
    last = advanced(extent.epochs, start, extent.lengths) if end is None else end
    check_not_before(extent.epochs, last, start, "to")
    for span in between(extent.epochs, start, last, extent.lengths):
        yield from read_events(stream, span.segment, span.start, span.end)


def follow(stream: Stream, start: Position, wait: Callable[[], bool]) -> Iterator[EventBatch]:
    """The events from a place on, as they come; ``wait`` is called when there is none, and ends it by False.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     list(follow(bids, bids.head(), wait=lambda: False))
    []
    """
    reached = start
    while True:
        extent = Extent.of(stream)
        end = advanced(extent.epochs, reached, extent.lengths)
        spans = between(extent.epochs, reached, end, extent.lengths)
        for span in spans:
            yield from read_events(stream, span.segment, span.start, span.end)
        reached = end
        if not spans and not wait():
            return
