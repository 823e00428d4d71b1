"""`slackwater stream`: create, configure, inspect, scale, write, read and delete durable streams."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any

import pyarrow as pa
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
    print_note,
    print_result,
    print_table,
)
from slackwater.cli.live_lines import live_lines
from slackwater.cli.watching import Interval, Watch, show_changes
from slackwater.errors import InvalidArgument
from slackwater.streams import description
from slackwater.streams.arguments import positive_duration, scope_and_name
from slackwater.streams.log import ndjson
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.scan import follow, parse_cut, scan
from slackwater.streams.log.segment_reader import EventBatch
from slackwater.streams.log.writer import Writer
from slackwater.streams.segments.epochs import even_ranges, split_range
from slackwater.streams.settings import MarkSettings, Retention, ScalingPolicy, StreamSettings
from slackwater.streams.time.notes import NoteResult
from slackwater.streams.timeline import stream_timeline
from slackwater.time import SECOND, format_duration, format_instant, instant

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Create, inspect, configure, scale, write and read durable streams."
)

Name = Annotated[str, typer.Argument(metavar="STREAM", help="Stream as SCOPE/NAME, for example shop/bids.")]
MaxAhead = Annotated[
    str | None,
    typer.Option(help="Reject noted times that are further ahead of the store's clock than this."),
]
Keep = Annotated[str | None, typer.Option(help='Delete events older than this, for example "7 days".')]
KeepBytes = Annotated[
    int | None, typer.Option(help="Delete the oldest events beyond this total size in bytes.")
]
Rate = Annotated[int | None, typer.Option(help="Scale to about this many events per second and segment.")]
_POSITION_HELP = "head, tail, a time, or a cut as JSON"
_BATCH_LINES = 10_000
_WRITER_COLUMNS = ["writer", "time", "state", "behind_since", "position"]
_SHORTEST_WAIT = 0.05
"""Seconds between two attempts to note the clock while a line is incomplete."""


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
    max_ahead: MaxAhead = None,
    keep: Keep = None,
    keep_bytes: KeepBytes = None,
    rate: Rate = None,
    maximum: Annotated[int, typer.Option(help="Scale to at most this many segments.")] = 64,
    json: AsJson = False,
) -> None:
    """Create a stream, and the metadata store if there is none."""
    scope_and_name(name)  # an invalid name creates no store
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
def describe(
    name: Name,
    store: Store = DEFAULT_STORE,
    json: AsJson = False,
    watch: Watch = False,
    interval: Interval = 2.0,
) -> None:
    """Show what a stream waits for, its columns, settings, segments, writers and reader groups."""
    with open_streams(store) as streams:
        stream = streams.get(name)
        show_changes(
            lambda: _described(stream),
            print_json if json else lambda details: _print_description(stream, details),
            content=lambda details: details,
            watch=watch,
            interval=interval,
        )


def _described(stream: Stream) -> dict[str, Any]:
    line = stream_timeline(stream, marks=0)
    groups = [
        {
            "group": each.group, "readers": list(each.readers), "behind": each.behind,
            "removed": each.removed, "from": _instant(each.lower), "to": _instant(each.upper),
        }
        for each in line.groups
    ]  # fmt: skip
    return {**description.describe_stream(stream), "sentence": line.sentence, "groups": groups}


def _instant(at: int | None) -> str | None:
    return None if at is None else format_instant(at)


def _print_description(stream: Stream, details: dict[str, Any]) -> None:
    print_line(f"{details['name']}: {details['sentence']}\n")
    shown = {**details, "head": stream.head().as_text(), "tail": stream.tail().as_text()}
    for title in ("name", "columns", "epoch", "head", "tail", "watermark"):
        print_line(f"{title + ':':11}{'none' if shown[title] is None else shown[title]}")
    for title, text in _settings_text(StreamSettings.load(details["settings"])).items():
        print_line(f"{title + ':':11}{text}")
    print_line("")
    print_table(
        details["segments"], ["id", "low", "high", "start", "length", "bytes", "sealed"], as_json=False
    )
    print_line("")
    if details["writers"]:
        print_table(details["writers"], _WRITER_COLUMNS, as_json=False)
    else:
        print_line("no writer has noted a time")
    if details["groups"]:
        print_line("")
        groups = [{**each, "readers": ", ".join(each["readers"]) or "none"} for each in details["groups"]]
        print_table(groups, ["group", "readers", "behind", "removed", "from", "to"], as_json=False)


def _settings_text(settings: StreamSettings) -> dict[str, str]:
    """The settings of a stream, a line each."""
    marks, retention, scaling = settings.marks, settings.retention, settings.scaling
    limits = [
        *([] if retention.age is None else [f"events of the last {format_duration(retention.age)}"]),
        *([] if retention.size is None else [f"at most {counted(retention.size, 'byte')}"]),
    ]
    ahead = "" if marks.max_ahead is None else f", at most {format_duration(marks.max_ahead)} ahead"
    return {
        "marks": f"every {format_duration(marks.period)}, timeout {format_duration(marks.timeout)}{ahead}",
        "retention": ", ".join(limits) or "everything is kept",
        "scaling": "by hand"
        if scaling is None
        else f"{counted(scaling.rate, 'event')} per second and segment, "
        f"{scaling.minimum} to {counted(scaling.maximum, 'segment')}",
    }


@app.command()
def configure(
    name: Name,
    store: Store = DEFAULT_STORE,
    period: Annotated[str | None, typer.Option(help="How often the watermark is computed.")] = None,
    timeout: Annotated[
        str | None, typer.Option(help="How long a writer that lags behind can hold the watermark back.")
    ] = None,
    max_ahead: MaxAhead = None,
    keep: Keep = None,
    keep_bytes: KeepBytes = None,
    keep_everything: Annotated[
        bool, typer.Option("--keep-everything", help="Remove the limits of --keep and --keep-bytes.")
    ] = False,
    rate: Rate = None,
    minimum: Annotated[int | None, typer.Option(help="Scale to at least this many segments.")] = None,
    maximum: Annotated[int | None, typer.Option(help="Scale to at most this many segments.")] = None,
    no_scaling: Annotated[
        bool, typer.Option("--no-scaling", help="Disable automatic scaling; `stream scale` still works.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Change settings of a stream; options that are not given keep their values."""
    if keep_everything and (keep is not None or keep_bytes is not None):
        fix = "give limits, or --keep-everything"
        reason = "cannot be combined with --keep or --keep-bytes"
        raise InvalidArgument("--keep-everything", keep_everything, reason, fix=fix)
    with open_streams(store) as streams:
        stream = streams.get(name)
        settings = StreamSettings.load(stream.record.settings)
        limits = {"rate": rate, "minimum": minimum, "maximum": maximum}
        if any(value is not None for value in limits.values()):
            if no_scaling:
                fix = "omit it, or --rate, --minimum and --maximum"
                reason = "cannot be combined with --rate, --minimum or --maximum"
                raise InvalidArgument("--no-scaling", no_scaling, reason, fix=fix)
            if settings.scaling is None and rate is None:
                fix = "add --rate EVENTS"
                reason = "is not scaled automatically, so --minimum and --maximum have no effect"
                raise InvalidArgument("stream", name, reason, fix=fix)
        kept = StreamSettings(
            settings.marks,
            Retention() if keep_everything else settings.retention,
            None if no_scaling else settings.scaling,
        )
        changed = kept.changed(
            {
                "marks": {"period": period, "timeout": timeout, "max_ahead": max_ahead},
                "retention": {"age": keep, "size": keep_bytes},
                "scaling": limits,
            }
        )
        stream.configure(changed)
    if json:
        print_json(changed.save())
        return
    for title, text in _settings_text(changed).items():
        print_line(f"{title + ':':11}{text}")


@app.command()
def delete(
    name: Name,
    store: Store = DEFAULT_STORE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    json: AsJson = False,
) -> None:
    """Delete a stream with all its events, marks and reader groups."""
    with open_streams(store) as streams:
        events = description.summarize_stream(streams.get(name))["events"]
        if not yes:
            if not sys.stdin.isatty():
                raise InvalidArgument(
                    "stream",
                    name,
                    "must be confirmed before it is deleted, but standard input is not a terminal",
                    fix="add --yes",
                )
            typer.confirm(f"Delete stream {name} with {counted(events, 'event')}?", abort=True)
        streams.delete(name)
    message = f"stream {name} deleted with {counted(events, 'event')}"
    print_result(message, {"name": name, "events": events}, as_json=json)


@app.command()
def scale(
    name: Name,
    store: Store = DEFAULT_STORE,
    into: Annotated[
        int | None,
        typer.Option(
            "--into",
            "--segments",
            help="Replace all segments, or the one of --split, with this many of equal size.",
        ),
    ] = None,
    split: Annotated[
        int | None, typer.Option(help="Id of the segment to split, by default into two.")
    ] = None,
    merge: Annotated[
        list[int] | None, typer.Option(help="Id of a segment to merge; repeat for each adjacent segment.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Split or merge the segments of a stream."""
    if merge and (split is not None or into is not None):
        fix = "give --into N, or --split ID with or without --into N, or --merge ID twice or more"
        raise InvalidArgument("merge", merge, "cannot be combined with --into or --split", fix=fix)
    if not merge and split is None and into is None:
        fix = "give --into N, or --split ID with or without --into N, or --merge ID twice or more"
        raise InvalidArgument("stream", name, "no scaling option is given", fix=fix)
    if split is not None and into is not None and into < 2:
        raise InvalidArgument("--into", into, "must be at least 2 with --split", fix="give 2 or more")
    with open_streams(store) as streams:
        stream = streams.get(name)
        epochs = stream.epochs()
        if into is not None and split is None:
            after = stream.scale([segment.id for segment in epochs.active], even_ranges(into))
        else:
            chosen = [epochs.segment(i) for i in ([split] if split is not None else merge or [])]
            whole = (min(s.low for s in chosen), max(s.high for s in chosen))
            parts = 1 if split is None else into or 2
            after = stream.scale([s.id for s in chosen], split_range(whole, parts))
    result = {"name": name, "epoch": len(after) - 1, "segments": [segment.id for segment in after.active]}
    message = f"stream {name} has {counted(len(after.active), 'segment')}, in epoch {len(after) - 1}"
    print_result(message, result, as_json=json)


@app.command()
def truncate(
    name: Name,
    at: Annotated[str, typer.Argument(metavar="POSITION", help=f"First position to keep: {_POSITION_HELP}.")],
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
        str | None,
        typer.Option(
            help="Note the current time at this interval, for example 1 second, whenever all lines that "
            "have arrived are written."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Write events from standard input, one JSON object per line, as they arrive."""
    if resume and writer is None:
        raise InvalidArgument("resume", resume, "requires the id of the writer", fix="add --writer ID")
    if note_time is not None and note_clock is not None:
        fix = "give one of --note-time and --note-clock"
        raise InvalidArgument("note-time", note_time, "cannot be combined with --note-clock", fix=fix)
    noted = None if note_time is None else instant(note_time, name="note-time")
    every = None if note_clock is None else positive_duration(note_clock, "note-clock")
    with open_streams(store) as streams:
        stream = streams.get(name)
        result: NoteResult | None = None
        with Writer(stream, writer) as output:
            first = 1
            clock = _ClockNotes(output, every)
            for batch in live_lines(
                sys.stdin.buffer, stream.clock, maximum=_BATCH_LINES, wait=clock.seconds_left
            ):
                if batch.lines:
                    events = _parsed(batch.lines, stream.columns, first)
                    keys = None if key is None else ndjson.routing_keys(events, key)
                    output.write_many(events, keys, number=first if resume else None)
                    first += len(batch.lines)
                if batch.complete_at is not None:
                    clock.note(batch.complete_at)
            clock.end()
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


def _parsed(lines: list[bytes], columns: pa.Schema, first: int) -> pa.RecordBatch:
    try:
        return ndjson.from_lines(lines, columns, first=first)
    except InvalidArgument as error:
        if first == 1:
            raise
        fix = f"{error.fix}; {_written(first - 1)} written, the rest were not"
        raise InvalidArgument(error.name, error.value, error.reason, fix=fix) from None


def _written(lines: int) -> str:
    return "line 1 was" if lines == 1 else f"lines 1 to {lines} were"


class _ClockNotes:
    """Notes the clock as event time, at an interval, each time after everything that has arrived is stored.

    A time that the writer noted by itself would pass the lines that were read and are not written yet: they
    would all be late.
    """

    def __init__(self, writer: Writer, every: int | None) -> None:
        self._writer = writer
        self._seconds = None if every is None else every / SECOND
        self._due = time.monotonic() + (self._seconds or 0)
        self._complete_at: int | None = None
        self._warned = False

    def seconds_left(self) -> float | None:
        """Seconds until the clock must be noted; None if it is not noted at all."""
        return None if self._seconds is None else max(_SHORTEST_WAIT, self._due - time.monotonic())

    def note(self, at: int) -> None:
        """Note a time if that is due; everything that had arrived by then is written."""
        self._complete_at = at
        if self._seconds is not None and time.monotonic() >= self._due:
            self._store(at)
            self._due = time.monotonic() + self._seconds

    def end(self) -> None:
        """Note the last time, because no more lines will arrive."""
        if self._seconds is not None and self._complete_at is not None:
            self._store(self._complete_at)

    def _store(self, at: int) -> None:
        result = self._writer.note_time(at)
        if result is not NoteResult.OK and not self._warned:
            self._warned = True
            print_note(f"warning: the clock could not be noted: {result}; was it set back?")


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
def groups(name: Name, store: Store = DEFAULT_STORE, json: AsJson = False) -> None:
    """List the reader groups of a stream and how many events each is behind."""
    with open_streams(store) as streams:
        rows = description.describe_groups(streams.get(name))
    shown = rows if json else [{**row, "readers": ", ".join(row["readers"])} for row in rows]
    print_table(shown, ["group", "readers", "behind", "removed", "watermark", "position"], as_json=json)


@app.command()
def writers(name: Name, store: Store = DEFAULT_STORE, json: AsJson = False) -> None:
    """List the writers of a stream and show which of them hold the watermark back."""
    with open_streams(store) as streams:
        rows = description.describe_writers(streams.get(name))
    print_table(rows, _WRITER_COLUMNS, as_json=json)


@app.command("cut-at")
def cut_at(
    name: Name,
    at: Annotated[
        str, typer.Argument(metavar="TIME", help="An event time, for example 2024-01-01T00:00:00Z.")
    ],
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
