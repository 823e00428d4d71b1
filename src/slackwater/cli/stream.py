"""`slackwater stream`: create, inspect, scale, write and read durable streams."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from itertools import islice
from typing import Annotated

import typer

from slackwater.cli.console import (
    DEFAULT_STORE,
    AsJson,
    Group,
    Store,
    counted,
    open_streams,
    print_json,
    print_line,
    print_result,
    print_table,
)
from slackwater.errors import InvalidArgument
from slackwater.streams import description
from slackwater.streams.log import ndjson
from slackwater.streams.log.scan import follow, parse_cut, scan
from slackwater.streams.log.segment_reader import EventBatch
from slackwater.streams.log.writer import Writer
from slackwater.streams.segments.epochs import even_ranges, split_range
from slackwater.streams.settings import MarkSettings, Retention, ScalingPolicy, StreamSettings
from slackwater.streams.time.marks import NoteResult
from slackwater.time import instant

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Create, inspect, scale, write and read durable streams."
)

Name = Annotated[str, typer.Argument(help="Stream as SCOPE/NAME, for example shop/bids.")]
_POSITION_HELP = "head, tail, a time, or a cut as JSON"
_BATCH_LINES = 10_000


@app.command()
def create(
    name: Name,
    store: Store = DEFAULT_STORE,
    columns: Annotated[
        str, typer.Option(help='Columns and types, for example "auction bigint, at timestamp".')
    ] = "value string",
    segments: Annotated[int, typer.Option(help="Number of initial segments.")] = 1,
    data: Annotated[
        str | None, typer.Option(help="Folder for the data files. Default: next to the SQLite database.")
    ] = None,
    period: Annotated[str, typer.Option(help="How often the watermark is computed.")] = "10 seconds",
    timeout: Annotated[
        str, typer.Option(help="How long a writer that lags behind can hold the watermark back.")
    ] = "60 seconds",
    max_ahead: Annotated[
        str | None,
        typer.Option(help="Reject noted times that are further ahead of the store's clock than this."),
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help='Delete events older than this, for example "7 days".')
    ] = None,
    keep_bytes: Annotated[
        int | None, typer.Option(help="Delete the oldest events beyond this total size in bytes.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option(help="Scale to about this many events per second and segment.")
    ] = None,
    maximum: Annotated[int, typer.Option(help="Scale to at most this many segments.")] = 64,
    json: AsJson = False,
) -> None:
    """Create a stream, and the metadata store if there is none."""
    settings = StreamSettings(
        marks=MarkSettings(period=period, timeout=timeout, max_ahead=max_ahead),
        retention=Retention(age=keep, size=keep_bytes),
        scaling=None if rate is None else ScalingPolicy(rate=rate, minimum=segments, maximum=maximum),
    )
    schema = ndjson.parse_columns(columns)
    with open_streams(store, create=True) as streams:
        made = streams.create(name, segments=segments, columns=schema, data=data, settings=settings)
        result = description.summarize_stream(made)
    print_result(f"stream {name} created with {counted(segments, 'segment')}", result, as_json=json)


@app.command("list")
def list_streams(store: Store = DEFAULT_STORE, json: AsJson = False) -> None:
    """List all streams."""
    with open_streams(store) as streams:
        rows = [description.summarize_stream(streams.get(record.name)) for record in streams.list()]
    print_table(rows, ["name", "segments", "events", "bytes", "watermark"], as_json=json)


@app.command()
def describe(name: Name, store: Store = DEFAULT_STORE, json: AsJson = False) -> None:
    """Show the columns, head and tail, watermark and segments of a stream.

    JSON output also contains its settings and writers.
    """
    with open_streams(store) as streams:
        stream = streams.get(name)
        details = description.describe_stream(stream)
    if json:
        print_json(details)
        return
    shown = {**details, "head": stream.head().as_text(), "tail": stream.tail().as_text()}
    for title in ("name", "columns", "epoch", "head", "tail", "watermark"):
        print_line(f"{title + ':':11}{'none' if shown[title] is None else shown[title]}")
    print_table(
        details["segments"], ["id", "low", "high", "start", "length", "bytes", "sealed"], as_json=False
    )


@app.command()
def scale(
    name: Name,
    store: Store = DEFAULT_STORE,
    segments: Annotated[
        int | None, typer.Option(help="Replace all segments with this many of equal size.")
    ] = None,
    split: Annotated[int | None, typer.Option(help="Id of the segment to split.")] = None,
    into: Annotated[int, typer.Option(help="Number of segments that --split creates.")] = 2,
    merge: Annotated[
        list[int] | None, typer.Option(help="Id of a segment to merge; repeat for each adjacent segment.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Split or merge the segments of a stream."""
    if sum(option is not None for option in (segments, split, merge)) != 1:
        fix = "give exactly one of --segments, --split and --merge"
        raise InvalidArgument("stream", name, "needs one scaling option", fix=fix)
    if into < 2:
        raise InvalidArgument("into", into, "must be at least 2", fix="give 2 or more")
    with open_streams(store) as streams:
        stream = streams.get(name)
        active = {segment.id: segment for segment in stream.epochs().active}
        if segments is not None:
            after = stream.scale(active, even_ranges(segments))
        else:
            chosen = [stream.epochs().segment(i) for i in ([split] if split is not None else merge or [])]
            whole = (min(s.low for s in chosen), max(s.high for s in chosen))
            after = stream.scale([s.id for s in chosen], split_range(whole, 1 if split is None else into))
    result = {"name": name, "epoch": len(after) - 1, "segments": [segment.id for segment in after.active]}
    message = f"stream {name} has {counted(len(after.active), 'segment')}, in epoch {len(after) - 1}"
    print_result(message, result, as_json=json)


@app.command()
def truncate(
    name: Name,
    at: Annotated[str, typer.Argument(help=f"First position to keep: {_POSITION_HELP}.")],
    store: Store = DEFAULT_STORE,
    json: AsJson = False,
) -> None:
    """Delete the events before a position."""
    with open_streams(store) as streams:
        stream = streams.get(name)
        head = stream.truncate(parse_cut(stream, at, "at"))
    print_result(head.as_text(), description.describe_cut(head), as_json=json)


@app.command()
def write(
    name: Name,
    store: Store = DEFAULT_STORE,
    writer: Annotated[str | None, typer.Option(help="Id of the writer. Default: a random id.")] = None,
    key: Annotated[str | None, typer.Option(help="Column that holds the routing key.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Skip the lines that this writer has written before.")
    ] = False,
    note_time: Annotated[str | None, typer.Option(help="Note this event time after the last line.")] = None,
    note_clock: Annotated[
        str | None, typer.Option(help="Note the current time at this interval, for example 1 second.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Write events from standard input, one JSON object per line."""
    if resume and writer is None:
        raise InvalidArgument("resume", resume, "requires the id of the writer", fix="add --writer ID")
    if note_time is not None and note_clock is not None:
        fix = "give one of --note-time and --note-clock"
        raise InvalidArgument("note-time", note_time, "cannot be combined with --note-clock", fix=fix)
    noted = None if note_time is None else instant(note_time, name="note-time")
    with open_streams(store) as streams:
        stream = streams.get(name)
        result: NoteResult | None = None
        with Writer(stream, writer, automatically_note_time=note_clock) as output:
            first = 1
            while lines := list(islice(sys.stdin.buffer, _BATCH_LINES)):
                try:
                    events = ndjson.from_lines(lines, stream.columns, first=first)
                except InvalidArgument as error:
                    if first == 1:
                        raise
                    fix = f"{error.fix}; lines 1 to {first - 1} were written, the rest were not"
                    raise InvalidArgument(error.name, error.value, error.reason, fix=fix) from None
                keys = None if key is None else ndjson.routing_keys(events, key)
                output.write_many(events, keys, number=first if resume else None)
                first += len(lines)
            if noted is not None:
                result = output.note_time(noted)
            else:
                output.flush()
            stored = output.acknowledged - output.last_event_number
    found = {"writer": output.id, "events": stored, "last_event_number": output.acknowledged, "noted": result}
    print_result(f"{counted(stored, 'event')} written by {output.id}", found, as_json=json)
    if result is not None and result is not NoteResult.OK:
        ahead = result is NoteResult.TOO_FAR_AHEAD
        fix = f"note {'an earlier' if ahead else 'a later'} time"
        raise InvalidArgument("note-time", note_time, f"was rejected: {result}", fix=fix)


@app.command()
def read(
    name: Name,
    store: Store = DEFAULT_STORE,
    start: Annotated[str, typer.Option("--from", help=f"Where to start: {_POSITION_HELP}.")] = "head",
    end: Annotated[str, typer.Option("--to", help=f"Where to end (exclusive): {_POSITION_HELP}.")] = "tail",
    limit: Annotated[int | None, typer.Option(help="Read at most this many events.")] = None,
) -> None:
    """Print events, one JSON object per line."""
    _check_limit(limit)
    with open_streams(store) as streams:
        stream = streams.get(name)
        _print(scan(stream, parse_cut(stream, start), parse_cut(stream, end, "to")), limit)


@app.command()
def tail(
    name: Name,
    store: Store = DEFAULT_STORE,
    start: Annotated[str, typer.Option("--from", help=f"Where to start: {_POSITION_HELP}.")] = "tail",
    limit: Annotated[int | None, typer.Option(help="Exit after this many events.")] = None,
) -> None:
    """Print new events as they arrive, one JSON object per line, until Ctrl-C."""
    _check_limit(limit)

    def wait() -> bool:
        time.sleep(0.2)
        return True

    with open_streams(store) as streams:
        stream = streams.get(name)
        try:
            _print(follow(stream, parse_cut(stream, start), wait), limit)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


@app.command()
def marks(name: Name, store: Store = DEFAULT_STORE, json: AsJson = False) -> None:
    """List the watermarks of a stream, each with its cut."""
    with open_streams(store) as streams:
        rows = description.describe_marks(streams.get(name))
    print_table(rows, ["lower", "upper", "cut"], as_json=json)


@app.command()
def writers(name: Name, store: Store = DEFAULT_STORE, json: AsJson = False) -> None:
    """List the writers of a stream and show which of them hold the watermark back."""
    with open_streams(store) as streams:
        rows = description.describe_writers(streams.get(name))
    print_table(rows, ["writer", "time", "state", "behind_since", "position"], as_json=json)


@app.command("cut-at")
def cut_at(
    name: Name,
    at: Annotated[str, typer.Argument(help="An event time, for example 2024-01-01T00:00:00Z.")],
    store: Store = DEFAULT_STORE,
    json: AsJson = False,
) -> None:
    """Print the cut to read from so that no event at or after a time is missed."""
    with open_streams(store) as streams:
        cut = streams.get(name).cut_at(at)
    print_result(cut.as_text(), description.describe_cut(cut), as_json=json)


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise InvalidArgument("limit", limit, "must be at least 1", fix="give 1 or more")


def _print(batches: Iterable[EventBatch], limit: int | None) -> None:
    left = limit
    for batch in batches:
        lines = list(islice(ndjson.to_lines(batch.events), left))
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        left = None if left is None else left - len(lines)
        if left == 0:
            return
