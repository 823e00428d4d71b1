"""The exceptions that Slackwater raises.

Every error carries the offending value and states the fix. The parts of the message are also attributes, so
that code can react to them without parsing text. Each class builds its message from these parts, so the same
mistake always gives the same message. The rule numbers (C1, S6, …) refer to docs/spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from slackwater._time_text import instant_text


def _rebuild(cls: type[SlackwaterError], message: str, state: dict[str, Any]) -> SlackwaterError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class SlackwaterError(Exception):
    """The base class of all errors that Slackwater raises.

    Errors cross process boundaries (a Spark worker fails, the driver reports), so they can be
    pickled with all their attributes, whatever the signature of their constructor.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.__dict__)


# ---- arguments

_LONGEST_VALUE: Final = 400


def _short(value: object) -> str:
    """A value as a message shows it: a row of a megabyte would hide the reason."""
    text = repr(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[:_LONGEST_VALUE]}… ({len(text):,} characters)"


class InvalidArgument(SlackwaterError, ValueError):
    """An argument has a value that is not allowed.

    Args:
        name: The name of the parameter, column or key.
        value: The rejected value.
        reason: Why it is not allowed, as a predicate: ``"must be greater than zero"``.
        fix: What to write instead.

    >>> import slackwater as sw
    >>> try:
    ...     raise sw.InvalidArgument("size", 0, "must be greater than zero", fix='write size="10 seconds"')
    ... except sw.InvalidArgument as error:
    ...     print(error)
    size = 0: must be greater than zero; write size="10 seconds"
    """

    def __init__(self, name: str, value: object, reason: str, *, fix: str | None = None) -> None:
        self.name = name
        self.value = value
        self.reason = reason
        self.fix = fix
        super().__init__(f"{name} = {_short(value)}: {reason}" + (f"; {fix}" if fix else ""))


class InvalidDuration(InvalidArgument):
    """A duration cannot be parsed, or is not allowed for this parameter."""


class InvalidInstant(InvalidArgument):
    """A point in time cannot be parsed, or does not fit into 64 bits of microseconds."""


class MissingExtra(SlackwaterError, ImportError):
    """A feature of Slackwater needs a package that is not installed by default.

    >>> import slackwater as sw
    >>> print(sw.MissingExtra("ui", "fastapi"))
    fastapi is not installed; run: pip install "slackwater[ui]"
    """

    def __init__(self, extra: str, package: str) -> None:
        self.extra = extra
        self.package = package
        super().__init__(f'{package} is not installed; run: pip install "slackwater[{extra}]"')


class NeedsNewerSpark(SlackwaterError):
    """The installed version of PySpark does not have what a feature needs.

    >>> import slackwater as sw
    >>> print(sw.NeedsNewerSpark("max_events", "4.2", "4.0.5", fix="omit it"))
    max_events needs PySpark 4.2 or newer; this is 4.0.5. Run pip install "pyspark>=4.2", or omit it
    """

    def __init__(self, feature: str, since: str, installed: str, *, fix: str | None = None) -> None:
        self.feature = feature
        self.since = since
        self.installed = installed
        self.fix = fix
        super().__init__(
            f"{feature} needs PySpark {since} or newer; this is {installed}. "
            f'Run pip install "pyspark>={since}"' + (f", or {fix}" if fix else "")
        )


# ---- progress


class ProgressError(SlackwaterError):
    """A producer violated the progress protocol. The rejected step changed no state."""


class WatermarkRegression(ProgressError):
    """A watermark is not greater than the previous one of the same input and key (C1)."""

    def __init__(self, source: object, key: str, previous: int, value: int) -> None:
        self.source = source
        self.key = key
        self.previous = previous
        self.value = value
        relation = "equals" if value == previous else "is lower than"
        super().__init__(
            f"watermark {value} ({instant_text(value)}) of key {key!r} on {source} {relation} the previous "
            f"watermark {previous} ({instant_text(previous)}): watermarks of one input and key must strictly "
            f"increase; send a watermark only when it has advanced"
        )


class AfterDone(ProgressError):
    """A message arrived from an input or origin that had already sent DONE (C7, S6)."""

    def __init__(self, source: object, received: str) -> None:
        self.source = source
        self.received = received
        super().__init__(
            f"received {received} on {source} after DONE: DONE is final; send IDLE if the input can resume"
        )


class AfterEnd(ProgressError):
    """Rows arrived in a batch after the batch that ended the stream. No row of the new batch was processed.

    >>> import slackwater as sw
    >>> print(sw.AfterEnd())
    rows arrived after the end of the stream: a run with to_df(flush=True) has ended it, and the source had \
more rows or received more since; no rows were lost. Start again with a new checkpoint: omit flush while \
rows may follow, and end the stream with flush=True and trigger(availableNow=True)
    """

    def __init__(self) -> None:
        super().__init__(
            "rows arrived after the end of the stream: a run with to_df(flush=True) has ended it, and the "
            "source had more rows or received more since; no rows were lost. Start again with a new "
            "checkpoint: omit flush while rows may follow, and end the stream with flush=True and "
            "trigger(availableNow=True)"
        )


class UnknownSource(ProgressError):
    """An input, origin or partition was not declared."""

    def __init__(self, source: object, known: Iterable[object], *, fix: str) -> None:
        self.source = source
        self.known = tuple(known)
        shown = ", ".join(str(name) for name in self.known[:10]) or "none"
        more = f" and {len(self.known) - 10} more" if len(self.known) > 10 else ""
        super().__init__(f"unknown {source} (known: {shown}{more}); {fix}")


class SequenceConflict(ProgressError):
    """A buffer has an invalid sequence or chunk number, or contradicts an earlier buffer (S6)."""

    def __init__(self, origin: object, sequence: int, chunk: int, reason: str) -> None:
        self.origin = origin
        self.sequence = sequence
        self.chunk = chunk
        self.reason = reason
        super().__init__(f"origin {origin!r}, sequence {sequence}, chunk {chunk}: {reason}")


# ---- saved state


class StateError(SlackwaterError):
    """Saved state cannot be loaded. State is never loaded partially."""


class CorruptState(StateError):
    """Saved bytes are truncated, modified, or not in the expected format."""

    def __init__(self, what: str, reason: str) -> None:
        self.what = what
        self.reason = reason
        super().__init__(
            f"cannot load the saved {what}: {reason}; restore an intact copy, or start without saved state"
        )


class UnsupportedStateVersion(StateError):
    """Saved bytes have a format version that this release cannot read."""

    def __init__(self, what: str, version: int, supported: Iterable[int]) -> None:
        self.what = what
        self.version = version
        self.supported = tuple(supported)
        versions = ", ".join(str(number) for number in self.supported)
        super().__init__(
            f"cannot load the saved {what}: it has format version {version}, but this release supports "
            f"{versions}; load it with the release that wrote it"
        )


class IncompatibleState(StateError):
    """Saved state is intact, but incompatible with the changed query.

    Args:
        what: Whose state it is.
        differences: What differs: the name of the setting, its saved value and its new value.

    >>> import slackwater as sw
    >>> print(sw.IncompatibleState("windowed operator", [("mode", "'accumulating'", "'discarding'")]))
    the changed query is incompatible with the saved state of its windowed operator: mode was \
'accumulating' and is now 'discarding'. Use the old setting again, or start with a new checkpoint and read \
the input again from its beginning
    """

    def __init__(self, what: str, differences: Iterable[tuple[str, object, object]]) -> None:
        self.what = what
        self.differences = tuple(differences)
        named = "; ".join(f"{name} was {saved} and is now {new}" for name, saved, new in self.differences)
        super().__init__(
            f"the changed query is incompatible with the saved state of its {what}: {named}. Use the old "
            f"setting again, or start with a new checkpoint and read the input again from its beginning"
        )


# ---- async stages


class AsyncItemFailed(SlackwaterError):
    """An item of an async stage failed after all its retries (A4). The cause is chained."""

    def __init__(self, key: object, attempts: int, reason: str) -> None:
        self.key = key
        self.attempts = attempts
        self.reason = reason
        tried = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(f"item with key {key!r} failed after {tried}: {reason}")


# ---- functions of the user


class FunctionFailed(SlackwaterError):
    """A user function over the rows of a pane raised, or returned rows that do not match its schema.

    Has no attributes apart from the message: compiled code raises it again from its text.
    """


# ---- accumulations


class SumOverflow(SlackwaterError, OverflowError):
    """A sum or a mean does not fit into its type: 64 bits for integers, 38 digits for decimals.

    Args:
        columns: The column that each of the accumulations sums, by the name of the accumulation.
        rows: The number of keys and windows for which it does not fit.

    >>> import slackwater as sw
    >>> print(sw.SumOverflow({"total": "price"}, 1))
    the sum total of column 'price' does not fit into its type for 1 key and window: integers have 64 bits, \
decimals 38 digits; cast the column before the aggregation, to decimal(38, 0) or double for integers, to \
double for decimals
    """

    def __init__(self, columns: Mapping[str, str], rows: int) -> None:
        self.columns = dict(columns)
        self.rows = rows
        named = " or ".join(f"{name} of column {column!r}" for name, column in columns.items())
        counted = "1 key and window" if rows == 1 else f"{rows} keys and windows"
        super().__init__(
            f"the sum {named} does not fit into its type for {counted}: integers have 64 bits, decimals 38 "
            "digits; cast the column before the aggregation, to decimal(38, 0) or double for integers, to "
            "double for decimals"
        )


# ---- the metadata store


class MetadataError(SlackwaterError):
    """An operation of the metadata store failed. Its transaction was rolled back."""


class StoreUnavailable(MetadataError):
    """The database cannot be reached, is full, or is locked by other processes."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(
            f"the metadata store at {url} is not available: {reason}; check that the database is running, "
            f"reachable and writable, then retry"
        )


class StoreUnreachable(StoreUnavailable):
    """The database refuses connections, or the connection was lost, and it did not come back in time."""


class UnknownStore(MetadataError):
    """There is no metadata store at this address.

    >>> print(UnknownStore("sqlite:////data/shop.db"))
    there is no metadata store at sqlite:////data/shop.db; check the address, or create the store: open it \
with create=True, or run `slackwater stream create`
    """

    def __init__(self, url: str) -> None:
        self.url = url
        fix = "create the store: open it with create=True, or run `slackwater stream create`"
        super().__init__(f"there is no metadata store at {url}; check the address, or {fix}")


class StoreReplaced(MetadataError):
    """The file of a SQLite store was removed or replaced while it was open.

    >>> print(StoreReplaced("sqlite:////data/shop.db", "removed"))
    the metadata store at sqlite:////data/shop.db was removed while it was open; what this operation wrote \
is not stored. Restore the file, then open the store again
    """

    def __init__(self, url: str, what: str) -> None:
        self.url = url
        self.what = what
        super().__init__(
            f"the metadata store at {url} was {what} while it was open; what this operation wrote is not "
            f"stored. Restore the file, then open the store again"
        )


class UnknownSchemaVersion(MetadataError):
    """The metadata store was created by a newer release."""

    def __init__(self, url: str, version: str, known: Iterable[str]) -> None:
        self.url = url
        self.version = version
        self.known = tuple(known)
        super().__init__(
            f"the metadata store at {url} has schema version {version}, but this release supports "
            f"{', '.join(self.known)}; install the release that created it, or a newer one"
        )


# ---- streams


class StreamError(SlackwaterError):
    """An operation on a stream failed. Events that were acknowledged before are safe."""


class UnknownStream(StreamError):
    """The stream does not exist, or was deleted."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"stream {name!r} does not exist; create it, or list the existing streams")


class StreamExists(StreamError):
    """A stream with this name exists already."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"stream {name!r} exists already; open it, or choose another name")


class WriterReplaced(StreamError):
    """Another process opened a writer with the same id; this writer can no longer write."""

    def __init__(self, stream: str, writer: str) -> None:
        self.stream = stream
        self.writer = writer
        super().__init__(
            f"writer {writer!r} of stream {stream!r} was opened again by another process; give every process "
            f"its own writer id, or close this writer"
        )


class WriterClosed(StreamError):
    """The writer is closed."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        super().__init__(f"writer {writer!r} is closed; open a new one")


class WriteFailed(StreamError):
    """The events after number ``acknowledged`` were not stored. The cause is chained."""

    def __init__(self, writer: str, acknowledged: int, reason: str) -> None:
        self.writer = writer
        self.acknowledged = acknowledged
        self.reason = reason
        super().__init__(
            f"writer {writer!r} could not store its events after number {acknowledged}: {reason}; reopen the "
            f"writer with the same id and write the events after that number again"
        )


class TransactionEnded(StreamError):
    """The transaction was committed or aborted, has expired, or its writer was closed."""

    def __init__(self, transaction: str, state: str) -> None:
        self.transaction = transaction
        self.state = state
        super().__init__(
            f"transaction {transaction!r} is {state}; begin a new one and write its events again"
        )


class CommitUnknown(StreamError):
    """The connection to the store was lost during a commit, and its outcome has not been determined yet.

    >>> print(CommitUnknown("loader"))
    the outcome of the last commit of writer 'loader' is unknown; commit that transaction again, or reopen \
the writer
    """

    def __init__(self, writer: str) -> None:
        self.writer = writer
        fix = "commit that transaction again, or reopen the writer"
        super().__init__(f"the outcome of the last commit of writer {writer!r} is unknown; {fix}")


class ReaderReplaced(StreamError):
    """The lease of a reader expired, and other readers of its group took over its segments."""

    def __init__(self, group: str, reader: str) -> None:
        self.group = group
        self.reader = reader
        super().__init__(
            f"the lease of reader {reader!r} of group {group!r} expired, and other readers took over its "
            f"segments; reopen the reader, resume from its new positions, and call checkpoint() more often "
            f"than the lease timeout"
        )


class EventsGone(StreamError):
    """Retention has removed the requested events.

    >>> print(EventsGone("shop/bids", 0, 5, 9, group="totals"))
    stream 'shop/bids', segment 0: the events from offset 5 to 9 were removed by retention before group \
'totals' read them; start at the head of the stream with reset(stream.head()) on the group, and keep events \
for longer
    """

    def __init__(self, stream: str, segment: int, offset: int, start: int, group: str | None = None) -> None:
        self.stream = stream
        self.segment = segment
        self.offset = offset
        self.start = start
        self.group = group
        removed = f"the events from offset {offset} to {start} were removed by retention"
        fix = "start at the head of the stream, or keep events for longer"
        if group is not None:
            removed += f" before group {group!r} read them"
            start_again = "start at the head of the stream with reset(stream.head()) on the group"
            fix = f"{start_again}, and keep events for longer"
        super().__init__(f"stream {stream!r}, segment {segment}: {removed}; {fix}")


class CorruptSegment(StreamError):
    """Stored events are missing, truncated or modified."""

    def __init__(self, stream: str, segment: int, offset: int, file: str, reason: str) -> None:
        self.stream = stream
        self.segment = segment
        self.offset = offset
        self.file = file
        self.reason = reason
        super().__init__(
            f"stream {stream!r}, segment {segment}: cannot read the events from offset {offset} on: "
            f"{file} {reason}; restore that file, or truncate the stream after it"
        )
