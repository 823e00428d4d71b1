"""Reading a stream without a reader group: between two cuts, or continuously."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.segment_reader import EventBatch, read_events
from slackwater.streams.log.stream_records import epochs_of
from slackwater.streams.segments.cut_traversal import advance_cut, readable_cut, spans_between
from slackwater.streams.segments.cuts import check_cut, check_not_before, check_reached
from slackwater.streams.segments.epochs import Epochs
from slackwater.streams.segments.positions import Position


@dataclass(frozen=True, slots=True)
class Extent:
    """The segments of a stream and their lengths, at one moment.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     Extent.of(streams.create("shop/bids")).lengths
    {0: 0}
    """

    epochs: Epochs
    lengths: dict[int, int]

    @classmethod
    def of(cls, stream: Stream) -> Extent:
        """The current extent of a stream."""
        states = stream.segments()
        return cls(epochs_of(states), {state.segment.id: state.length for state in states})


def parse_cut(stream: Stream, text: str, name: str = "from") -> Position:
    """Parse a cut at which reading can start: ``head``, ``tail``, a time, or a cut as JSON.

    A time stands for the cut that `Stream.cut_at` returns. ``name`` is the argument that errors name.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     [parse_cut(bids, text) for text in ("head", "2024-01-01T00:00:00Z", '{"0": 0}')]
    [Position({0: 0}), Position({0: 0}), Position({0: 0})]
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
    return readable_cut(extent.epochs, cut, extent.lengths)


def scan(stream: Stream, start: Position, end: Position | None = None) -> Iterator[EventBatch]:
    """Read the events between two cuts, in order for each routing key.

    Args:
        stream: The stream.
        start: Cut at which reading starts.
        end: Cut at which it ends; by default the current end of the stream.

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
    last = advance_cut(extent.epochs, start, extent.lengths) if end is None else end
    check_not_before(extent.epochs, last, start, "to")
    for span in spans_between(extent.epochs, start, last, extent.lengths):
        yield from read_events(stream, span.segment, span.start, span.end)


def follow(stream: Stream, start: Position, wait: Callable[[], bool]) -> Iterator[EventBatch]:
    """Read the events after a cut as they arrive.

    Args:
        stream: The stream.
        start: Cut at which reading starts.
        wait: Called when there is no new event. It waits, and returns whether to go on.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     list(follow(bids, bids.head(), wait=lambda: False))
    []
    """
    reached = start
    while True:
        extent = Extent.of(stream)
        end = advance_cut(extent.epochs, reached, extent.lengths)
        spans = spans_between(extent.epochs, reached, end, extent.lengths)
        for span in spans:
            yield from read_events(stream, span.segment, span.start, span.end)
        reached = end
        if not spans and not wait():
            return
