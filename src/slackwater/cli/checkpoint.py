"""`slackwater state` and `slackwater rescale`: the checkpoint of a query on Spark."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.console import AsJson, counted, print_json, print_line, print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slackwater.spark.checkpoint.state_reader import OperatorState

Checkpoint = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The checkpointLocation of the query.")]


def state(
    checkpoint: Checkpoint,
    windows: Annotated[bool, typer.Option("--windows", help="List the open windows.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of a query on Spark: open windows, keys, bytes, watermarks and origins.

    The last committed micro-batch of the checkpoint is read with a local Spark; the query does not run.
    """
    from slackwater.spark.checkpoint.state_reader import operator_states  # PySpark takes a second to import

    states = operator_states(_local_session(), checkpoint)
    if as_json:
        print_json([_plain(asdict(each)) for each in states])
        return
    for each in states:
        _print_operator(each, windows=windows)


def rescale(
    checkpoint: Checkpoint,
    partitions: Annotated[
        int, typer.Option(help="New number of shuffle partitions; must divide the number of buckets.")
    ],
) -> None:
    """Distribute the state of a stopped query over another number of shuffle partitions.

    Spark fixes that number at the first start of a query. Stop the query first, and back up the checkpoint.
    """
    from slackwater.spark.checkpoint import rescaling

    buckets = rescaling.rescale(_local_session(), checkpoint, partitions)
    print_line(
        f"{counted(buckets, 'bucket')} in {counted(partitions, 'partition')}; if the session of the query "
        f"has another number of shuffle partitions than {buckets}, pass buckets={buckets} to sw.stream"
    )


def _local_session() -> SparkSession:
    from slackwater.spark.session import session

    spark = session(
        master="local[*]",
        partitions=2,
        config={"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"},
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _print_operator(found: OperatorState, *, windows: bool) -> None:
    print_line(f"operator {found.operator}: {found.kind} {found.description}")
    held = f"{counted(found.open_windows, 'open window')}, {counted(found.keys, 'key')}"
    if found.kind not in ("window", "cogroup"):
        held = counted(found.buffered, "buffered row")
    print_line(
        f"  {held}, {counted(found.bytes, 'byte')} in {counted(len(found.buckets), 'bucket')} and "
        f"{counted(found.partitions, 'partition')}"
    )
    print_line(f"  {found.dropped_late} rows dropped late, {found.dropped_closed} after their window closed")
    for key, at in found.watermarks.items():
        print_line(f"  watermark {key}: {'the stream has ended' if found.ended else _text(at)}")
    if not found.watermarks:
        print_line("  no watermark yet")
    print_line(f"  clock: {_text(found.clock)}")
    if found.origins:
        rows = [{**each, "watermark": _text(each["watermark"])} for each in found.origins]
        print_table(rows, ("input", "origin", "status", "key", "watermark"), as_json=False)
    if windows and found.windows:
        rows = [{**each, "start": _text(each["start"]), "end": _text(each["end"])} for each in found.windows]
        print_table(rows, ("start", "end", "windows", "keys", "bytes"), as_json=False)


def _text(at: datetime | None) -> str:
    return "" if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    """The value with times as text, for JSON."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case datetime():
            return _text(value)
        case _:
            return value
