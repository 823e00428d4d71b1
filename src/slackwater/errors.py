"""The exception tree: every error carries the offending value and says what would be right.

An error is read twice: by a person at 3 a.m., who needs the message to name the fix, and by
code, which needs the parts of that message as attributes. So each class takes the parts, keeps
them, and words the message itself; the same mistake reads the same wherever it is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slackwater._time_text import instant_text


def _rebuild(cls: type[SlackwaterError], message: str, state: dict[str, Any]) -> SlackwaterError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class SlackwaterError(Exception):
    """The root of everything Slackwater raises on purpose.

    Errors cross process boundaries (a Spark worker fails, the driver reports), so they pickle
    with all their attributes whatever the signature of their constructor.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.__dict__)


# ---- arguments


class InvalidArgument(SlackwaterError, ValueError):
    """A value given by the caller cannot be used.

    >>> try:
    ...     raise InvalidArgument("size", 0, "must be greater than zero", fix='write size="10 seconds"')
    ... except InvalidArgument as error:
    ...     print(error)
    size = 0: must be greater than zero; write size="10 seconds"
    """

    def __init__(self, name: str, value: object, reason: str, *, fix: str | None = None) -> None:
        self.name = name
        self.value = value
        self.reason = reason
        self.fix = fix
        super().__init__(f"{name} = {value!r}: {reason}" + (f"; {fix}" if fix else ""))


class InvalidDuration(InvalidArgument):
    """A duration that cannot be read, or that is not allowed where it stands."""


class InvalidInstant(InvalidArgument):
    """A point in time that cannot be read, or that lies outside what 64 bits of microseconds hold."""


# ---- progress


class ProgressError(SlackwaterError):
    """A producer broke a rule of the progress protocol; nothing of the offending step was kept."""


class WatermarkRegression(ProgressError):
    """A watermark that does not lie above the previous one of the same input and key (C1)."""

    def __init__(self, source: object, key: str, previous: int, value: int) -> None:
        self.source = source
        self.key = key
        self.previous = previous
        self.value = value
        relation = "equals" if value == previous else "goes back from"
        super().__init__(
            f"watermark {value} ({instant_text(value)}) of key {key!r} on {source} {relation} "
            f"{previous} ({instant_text(previous)}): watermarks on one input and key must strictly "
            f"increase; send one only when it has moved"
        )


class AfterDone(ProgressError):
    """Something arrived from an input or origin that had already said DONE (C7, S6)."""

    def __init__(self, source: object, received: str) -> None:
        self.source = source
        self.received = received
        super().__init__(
            f"{received} on {source} after DONE: DONE is final; say IDLE for an input that may speak again"
        )


class AfterEnd(ProgressError):
    """Rows came in a batch after the one that had ended the stream; nothing of that batch was kept.

    >>> print(AfterEnd())
    rows came after the stream had ended: to_df(flush=True) tells the end with the first batch of a run, and \
the source had more than it gave to that batch, or got more since; nothing of them was lost. Start again \
with a new checkpoint: run the query to its end without flush, then once more with flush=True and a source \
without a limit per batch
    """

    def __init__(self) -> None:
        super().__init__(
            "rows came after the stream had ended: to_df(flush=True) tells the end with the first batch of a "
            "run, and the source had more than it gave to that batch, or got more since; nothing of them was "
            "lost. Start again with a new checkpoint: run the query to its end without flush, then once more "
            "with flush=True and a source without a limit per batch"
        )


class UnknownSource(ProgressError):
    """An input, origin or partition that was not declared."""

    def __init__(self, source: object, known: Iterable[object], *, fix: str) -> None:
        self.source = source
        self.known = tuple(known)
        shown = ", ".join(str(name) for name in self.known[:10]) or "none"
        more = f" and {len(self.known) - 10} more" if len(self.known) > 10 else ""
        super().__init__(f"{source} is not known here (known: {shown}{more}); {fix}")


class SequenceConflict(ProgressError):
    """A buffer whose sequence or chunk number contradicts the rules or what was seen before (S6)."""

    def __init__(self, origin: object, sequence: int, chunk: int, reason: str) -> None:
        self.origin = origin
        self.sequence = sequence
        self.chunk = chunk
        self.reason = reason
        super().__init__(f"origin {origin!r}, sequence {sequence}, chunk {chunk}: {reason}")


# ---- saved state


class StateError(SlackwaterError):
    """Saved state that cannot be loaded. It is never loaded in part."""


class CorruptState(StateError):
    """Saved bytes that are cut short, changed, or not of the form they claim to be."""

    def __init__(self, what: str, reason: str) -> None:
        self.what = what
        self.reason = reason
        super().__init__(
            f"the saved {what} cannot be loaded: {reason}; restore an intact copy, or start without it"
        )


class UnsupportedStateVersion(StateError):
    """Saved bytes of a version that this release does not read."""

    def __init__(self, what: str, version: int, supported: Iterable[int]) -> None:
        self.what = what
        self.version = version
        self.supported = tuple(supported)
        readable = ", ".join(str(number) for number in self.supported)
        super().__init__(
            f"the saved {what} has version {version}, this release reads {readable}; "
            f"load it with the release that wrote it"
        )


# ---- async stages


class AsyncItemFailed(SlackwaterError):
    """An async stage gave up on an item (A4); the cause is chained."""

    def __init__(self, key: object, attempts: int, reason: str) -> None:
        self.key = key
        self.attempts = attempts
        self.reason = reason
        tried = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(f"item with key {key!r} failed after {tried}: {reason}")


# ---- functions of the user


class FunctionFailed(SlackwaterError):
    """A function over the rows of a pane failed, or returned what it had not promised.

    Carries its message alone: it comes out of compiled code, which makes it again from its text.
    """


# ---- the metadata store


class MetadataError(SlackwaterError):
    """The metadata store cannot do what it was asked for; no work was done in part."""


class StoreUnavailable(MetadataError):
    """The database does not answer, has no room, or is kept busy by others."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(
            f"the metadata store at {url} is not available: {reason}; see that the database can be "
            f"reached and written to, and try again"
        )


class UnknownSchemaVersion(MetadataError):
    """The store was made by a newer release."""

    def __init__(self, url: str, version: str, known: Iterable[str]) -> None:
        self.url = url
        self.version = version
        self.known = tuple(known)
        super().__init__(
            f"the metadata store at {url} has version {version}, this release knows {', '.join(self.known)}; "
            f"install the release that made it, or a newer one"
        )


# ---- streams


class StreamError(SlackwaterError):
    """Something about a stream, its writers or its readers; what was acknowledged before is safe."""


class UnknownStream(StreamError):
    """A stream that does not exist, or no longer."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no stream {name!r}; create it, or list the streams that there are")


class StreamExists(StreamError):
    """A stream of that name is there already."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is a stream {name!r} already; open it, or choose another name")


class WriterReplaced(StreamError):
    """Another process has opened a writer with the same id; this one may not go on."""

    def __init__(self, stream: str, writer: str) -> None:
        self.stream = stream
        self.writer = writer
        super().__init__(
            f"writer {writer!r} of stream {stream!r} was opened again elsewhere; give every process an id of "
            f"its own, or close this writer"
        )


class WriterClosed(StreamError):
    """Something was asked of a writer that is closed."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        super().__init__(f"writer {writer!r} is closed; open a new one")


class WriteFailed(StreamError):
    """Events could not be stored: those after number ``acknowledged``. The cause is chained."""

    def __init__(self, writer: str, acknowledged: int, reason: str) -> None:
        self.writer = writer
        self.acknowledged = acknowledged
        self.reason = reason
        super().__init__(
            f"writer {writer!r} could not store its events after number {acknowledged}: {reason}; open the "
            f"writer again with the same id and write them again from there"
        )


class TransactionEnded(StreamError):
    """A transaction that was committed, aborted, or not used in time."""

    def __init__(self, transaction: str, state: str) -> None:
        self.transaction = transaction
        self.state = state
        super().__init__(
            f"transaction {transaction!r} is {state}; begin a new one and write its events again"
        )


class CommitUnknown(StreamError):
    """The store was lost during a commit, and nobody has found out since whether it was stored.

    >>> print(CommitUnknown("loader"))
    writer 'loader' does not know whether its last commit was stored; commit that transaction again, or open \
the writer again
    """

    def __init__(self, writer: str) -> None:
        self.writer = writer
        fix = "commit that transaction again, or open the writer again"
        super().__init__(f"writer {writer!r} does not know whether its last commit was stored; {fix}")


class ReaderReplaced(StreamError):
    """A reader was silent for too long, and others of its group read its segments now."""

    def __init__(self, group: str, reader: str) -> None:
        self.group = group
        self.reader = reader
        super().__init__(
            f"reader {reader!r} of group {group!r} was taken for dead and others read its segments; open it "
            f"again, read from there, and call checkpoint() more often than its lease is long"
        )


class EventsGone(StreamError):
    """Events that a reader asked for were removed by retention."""

    def __init__(self, stream: str, segment: int, offset: int, start: int) -> None:
        self.stream = stream
        self.segment = segment
        self.offset = offset
        self.start = start
        super().__init__(
            f"stream {stream!r}, segment {segment}: the events from {offset} on were removed up to {start}; "
            f"start at the head of the stream, or keep events for longer"
        )


class CorruptSegment(StreamError):
    """Stored events that are missing, cut short, or not what was written."""

    def __init__(self, stream: str, segment: int, offset: int, file: str, reason: str) -> None:
        self.stream = stream
        self.segment = segment
        self.offset = offset
        self.file = file
        self.reason = reason
        super().__init__(
            f"stream {stream!r}, segment {segment}: cannot read the events from {offset} on: "
            f"{file} {reason}; restore that file, or truncate the stream behind it"
        )
