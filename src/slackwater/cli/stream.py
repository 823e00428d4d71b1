"""``slackwater stream …``: make streams, write to them, read them, and see where they are in time."""

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
    answer,
    open_streams,
    say,
    show,
    write_json,
)
from slackwater.errors import InvalidArgument
from slackwater.streams import description
from slackwater.streams.log import ndjson
from slackwater.streams.log.scan import follow, place, scan
from slackwater.streams.log.segment_reader import EventBatch
from slackwater.streams.log.segments import even_ranges, split_range
from slackwater.streams.log.writer import Writer
from slackwater.streams.maintenance.retention import Retention
from slackwater.streams.maintenance.scaling import ScalingPolicy
from slackwater.streams.settings import StreamSettings
from slackwater.streams.time.marks import MarkSettings, NoteResult
from slackwater.time import duration, instant

app = typer.Typer(cls=Group, no_args_is_help=True, help="Streams whose writers note time.")

Name = Annotated[str, typer.Argument(help="Scope and name, as shop/bids.")]
_LINES = 10_000


@app.command()
def create(
    name: Name,
    store: Store = DEFAULT_STORE,
    columns: Annotated[str, typer.Option(help='As "auction bigint, at timestamp".')] = "value string",
    segments: Annotated[int, typer.Option(help="How many segments it starts with.")] = 1,
    data: Annotated[
        str | None, typer.Option(help="Where its files are; beside the database if not given.")
    ] = None,
    period: Annotated[str, typer.Option(help="How often marks are made.")] = "10 seconds",
    timeout: Annotated[str, typer.Option(help="How long a writer behind is waited for.")] = "60 seconds",
    keep: Annotated[str | None, typer.Option(help='Forget what is older than this, as "7 days".')] = None,
    keep_bytes: Annotated[int | None, typer.Option(help="Forget the oldest beyond so many bytes.")] = None,
    rate: Annotated[
        int | None, typer.Option(help="Scale to about so many events a second a segment.")
    ] = None,
    maximum: Annotated[int, typer.Option(help="To at most so many segments.")] = 64,
    json: AsJson = False,
) -> None:
    """Make a stream."""
    settings = StreamSettings(
        marks=MarkSettings(period=duration(period, name="period"), timeout=duration(timeout, name="timeout")),
        retention=Retention(age=None if keep is None else duration(keep, name="keep"), size=keep_bytes),
        scaling=None if rate is None else ScalingPolicy(rate=rate, minimum=segments, maximum=maximum),
    )
    schema = ndjson.parse_columns(columns)
    with open_streams(store) as streams:
        made = streams.create(name, segments=segments, columns=schema, data=data, settings=settings.save())
        found = description.summary(made)
    answer(f"stream {name} is there, with {segments} segments", found, as_json=json)


@app.command("list")
def list_streams(store: Store = DEFAULT_STORE, json: AsJson = False) -> None:
    """List the streams."""
    with open_streams(store) as streams:
        rows = [description.summary(streams.get(record.name)) for record in streams.list()]
    show(rows, ["name", "segments", "events", "bytes", "watermark"], as_json=json)


@app.command()
def describe(name: Name, store: Store = DEFAULT_STORE, json: AsJson = False) -> None:
    """Show the segments, the settings, the writers and the newest mark of a stream."""
    with open_streams(store) as streams:
        stream = streams.get(name)
        found = description.whole(stream)
    if json:
        write_json(found)
        return
    places = {"head": stream.head().as_text(), "tail": stream.tail().as_text()}
    for title in ("name", "columns", "epoch", "head", "tail", "watermark"):
        say(f"{title + ':':11}{places.get(title, found[title])}")
    show(found["segments"], ["id", "low", "high", "start", "length", "bytes", "sealed"], as_json=False)


@app.command()
def scale(
    name: Name,
    store: Store = DEFAULT_STORE,
    segments: Annotated[int | None, typer.Option(help="Replace all by so many equal ones.")] = None,
    split: Annotated[int | None, typer.Option(help="The id of a segment to split.")] = None,
    into: Annotated[int, typer.Option(help="Into how many.")] = 2,
    merge: Annotated[list[int] | None, typer.Option(help="Ids of neighbours; give it for each.")] = None,
    json: AsJson = False,
) -> None:
    """Split and merge segments."""
    if sum(wish is not None for wish in (segments, split, merge)) != 1:
        fix = "give exactly one of --segments, --split and --merge"
        raise InvalidArgument("scale", name, "does not say how", fix=fix)
    if into < 2:
        raise InvalidArgument("into", into, "does not split anything", fix="give 2 or more")
    with open_streams(store) as streams:
        stream = streams.get(name)
        active = {segment.id: segment for segment in stream.epochs().active}
        if segments is not None:
            after = stream.scale(active, even_ranges(segments))
        else:
            chosen = [stream.epochs().segment(i) for i in ([split] if split is not None else merge or [])]
            whole = (min(s.low for s in chosen), max(s.high for s in chosen))
            after = stream.scale([s.id for s in chosen], split_range(whole, 1 if split is None else into))
    found = {"name": name, "epoch": len(after) - 1, "segments": [segment.id for segment in after.active]}
    answer(f"stream {name} has {len(after.active)} segments, in epoch {len(after) - 1}", found, as_json=json)


@app.command()
def truncate(
    name: Name,
    at: Annotated[str, typer.Argument(help="head, tail, a time, or a cut as JSON.")],
    store: Store = DEFAULT_STORE,
    json: AsJson = False,
) -> None:
    """Forget what lies before a place."""
    with open_streams(store) as streams:
        stream = streams.get(name)
        head = stream.truncate(place(stream, at, "at"))
    answer(head.as_text(), description.cut(head), as_json=json)


@app.command()
def write(
    name: Name,
    store: Store = DEFAULT_STORE,
    writer: Annotated[str | None, typer.Option(help="The writer's id; drawn if not given.")] = None,
    key: Annotated[str | None, typer.Option(help="The column that holds the routing keys.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out lines that this writer wrote before.")
    ] = False,
    note_time: Annotated[str | None, typer.Option(help="Note this time after the last line.")] = None,
    note_clock: Annotated[str | None, typer.Option(help="Note the clock at this interval.")] = None,
    json: AsJson = False,
) -> None:
    """Write the lines of standard input, one JSON object an event."""
    if resume and writer is None:
        raise InvalidArgument("resume", resume, "needs the id of the writer", fix="add --writer ID")
    if note_time is not None and note_clock is not None:
        fix = "give one of --note-time and --note-clock"
        raise InvalidArgument("note-time", note_time, "would be noted beside the clock", fix=fix)
    noted = None if note_time is None else instant(note_time, name="note-time")
    with open_streams(store) as streams:
        stream = streams.get(name)
        result: NoteResult | None = None
        with Writer(stream, writer, automatically_note_time=note_clock) as output:
            first = 1
            while lines := list(islice(sys.stdin.buffer, _LINES)):
                try:
                    events = ndjson.from_lines(lines, stream.columns, first=first)
                except InvalidArgument as error:
                    if first == 1:
                        raise
                    fix = f"{error.fix}; the lines up to {first - 1} are written, the rest is not"
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
    answer(f"{stored} events written by {output.id}", found, as_json=json)
    if result is not None and result is not NoteResult.OK:
        raise InvalidArgument("note-time", note_time, f"was refused: {result}", fix="note a later time")


@app.command()
def read(
    name: Name,
    store: Store = DEFAULT_STORE,
    start: Annotated[str, typer.Option("--from", help="head, tail, a time, or a cut as JSON.")] = "head",
    end: Annotated[str, typer.Option("--to", help="The same; not included.")] = "tail",
    limit: Annotated[int | None, typer.Option(help="At most so many events.")] = None,
) -> None:
    """Write events to standard output, one JSON object a line."""
    _check_limit(limit)
    with open_streams(store) as streams:
        stream = streams.get(name)
        _print(scan(stream, place(stream, start), place(stream, end, "to")), limit)


@app.command()
def tail(
    name: Name,
    store: Store = DEFAULT_STORE,
    start: Annotated[str, typer.Option("--from", help="head, tail, a time, or a cut as JSON.")] = "tail",
    limit: Annotated[int | None, typer.Option(help="End after so many events.")] = None,
) -> None:
    """Write events to standard output as they come, until it is stopped."""
    _check_limit(limit)

    def wait() -> bool:
        time.sleep(0.2)
        return True

    with open_streams(store) as streams:
        stream = streams.get(name)
        try:
            _print(follow(stream, place(stream, start), wait), limit)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


@app.command()
def marks(name: Name, store: Store = DEFAULT_STORE, json: AsJson = False) -> None:
    """List the watermarks that writers' times have led to."""
    with open_streams(store) as streams:
        rows = description.marks(streams.get(name))
    show(rows, ["lower", "upper", "cut"], as_json=json)


@app.command()
def writers(name: Name, store: Store = DEFAULT_STORE, json: AsJson = False) -> None:
    """List the writers that are on record, and which of them hold the watermark back."""
    with open_streams(store) as streams:
        rows = description.writers(streams.get(name))
    show(rows, ["writer", "time", "state", "behind_since", "position"], as_json=json)


@app.command("cut-at")
def cut_at(
    name: Name,
    at: Annotated[str, typer.Argument(help="A time.")],
    store: Store = DEFAULT_STORE,
    json: AsJson = False,
) -> None:
    """Show where to start reading to miss nothing that was noted at or after a time."""
    with open_streams(store) as streams:
        cut = streams.get(name).cut_at(at)
    answer(cut.as_text(), description.cut(cut), as_json=json)


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise InvalidArgument("limit", limit, "is not a number of events", fix="give 1 or more")


def _print(batches: Iterable[EventBatch], limit: int | None) -> None:
    left = limit
    for batch in batches:
        lines = list(islice(ndjson.to_lines(batch.events), left))
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        left = None if left is None else left - len(lines)
        if left == 0:
            return
