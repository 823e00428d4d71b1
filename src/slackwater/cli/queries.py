"""`slackwater why`, `origins`, `windows` and `late`: the console's views of queries, as text or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel

from slackwater.cli.console import DEFAULT_STORE, AsJson, Store, counted, print_json, print_line, print_table
from slackwater.cli.watching import Interval, Watch, show_changes
from slackwater.monitoring.sentence import clock_text, rough
from slackwater.progress.values import DEFAULT_KEY
from slackwater.time import END_OF_TIME, format_duration
from slackwater.ui.models import (
    LagAnswer,
    LateAnswer,
    NowAnswer,
    OperatorAnswer,
    OriginsAnswer,
    QueryAnswer,
    WindowsAnswer,
)
from slackwater.ui.views import LISTED_ORIGINS, MOST_LISTED, OriginOrder, Views

Shown = TypeVar("Shown", bound=BaseModel)

_CLOCKS: dict[str, Any] = {"now": True, "summary": {"age"}, "queries": {"__all__": {"age"}}}
_LONGEST_NAME = 80
_HOLDERS = 8
_ORIGINS = 10
_SAMPLES = 20

QueryName = Annotated[str, typer.Argument(metavar="QUERY", help="Name or id of the query.")]
Operator = Annotated[
    str | None, typer.Option(help="Id of the operator, such as 0.1; by default the last one.")
]


def why(
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="Name or id of the query; by default all.")
    ] = None,
    store: Store = DEFAULT_STORE,
    operator: Operator = None,
    json: AsJson = False,
    watch: Watch = False,
    interval: Interval = 2.0,
) -> None:
    """Show where the watermarks of queries are, what holds them back since when, and what waits."""
    with Views(store) as views:
        if query is None:
            _show(views.now, _print_queries, as_json=json, watch=watch, interval=interval)
        else:
            name = query

            def show(answer: QueryAnswer) -> None:
                _print_query(answer, views.origins(name, operator=operator, limit=_ORIGINS))

            _show(
                lambda: views.query(name, operator=operator), show, as_json=json, watch=watch,
                interval=interval,
            )  # fmt: skip


def origins(
    query: QueryName,
    store: Store = DEFAULT_STORE,
    operator: Annotated[
        str | None, typer.Option(help="Id of the operator; by default the one that holds the query back.")
    ] = None,
    filter: Annotated[  # noqa: A002 - the name of the option
        str, typer.Option(help="Only origins with this text in their name, input or state.")
    ] = "",
    sort: Annotated[OriginOrder, typer.Option(help="What to sort by; behind: the slowest first.")] = "behind",
    offset: Annotated[int, typer.Option(min=0, help="Number of origins to skip.")] = 0,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST_LISTED, help="Maximum number of origins to show.")
    ] = LISTED_ORIGINS,
    json: AsJson = False,
    watch: Watch = False,
    interval: Interval = 2.0,
) -> None:
    """Show the origins of QUERY, such as partitions or files: their states and watermarks."""
    with Views(store) as views:
        _show(
            lambda: views.origins(
                query, operator=operator, text=filter, order=sort, offset=offset, limit=limit
            ),
            _print_origins, as_json=json, watch=watch, interval=interval,
        )  # fmt: skip


def windows(
    query: QueryName,
    store: Store = DEFAULT_STORE,
    operator: Operator = None,
    json: AsJson = False,
    watch: Watch = False,
    interval: Interval = 2.0,
) -> None:
    """Show the open windows of QUERY by end, when each closes, and those that were closed last."""
    with Views(store) as views:
        _show(
            lambda: views.windows(query, operator=operator), _print_windows, as_json=json, watch=watch,
            interval=interval,
        )  # fmt: skip


def late(
    query: QueryName,
    store: Store = DEFAULT_STORE,
    json: AsJson = False,
    watch: Watch = False,
    interval: Interval = 2.0,
) -> None:
    """Show how late the rows of QUERY are, by origin, and a sample of those that were dropped."""
    with Views(store) as views:
        _show(lambda: views.late(query), _print_late, as_json=json, watch=watch, interval=interval)


def _show(
    read: Callable[[], Shown], show: Callable[[Shown], None], *, as_json: bool, watch: bool, interval: float
) -> None:
    """Print an answer once, or whenever it has changed; ages and the clock alone are no change."""

    def printed(answer: Shown) -> None:
        if as_json:
            print_json(answer.model_dump(mode="json"))
        else:
            show(answer)

    def content(answer: Shown) -> object:
        return answer.model_dump(exclude=_CLOCKS)

    show_changes(read, printed, content=content, watch=watch, interval=interval)


# ---- output


def _print_queries(answer: NowAnswer) -> None:
    for query in answer.queries:
        print_line(query.sentence)
    if not answer.queries:
        print_line("no query has reported to this store; start one with sw.session(monitor=…)")


def _print_query(answer: QueryAnswer, origins: OriginsAnswer) -> None:
    at = partial(_time, now=answer.now)
    print_line(answer.summary.sentence)
    rows = [
        {
            "operator": each.id,
            "watermark": at(each.watermark),
            "lag": _duration(each.lag),
            "own": _duration(each.local_lag),
            "inherited": _duration(each.inherited_lag),
            "open windows": each.open_windows,
            "held by": _held_by(each),
        }
        for each in answer.operators
    ]
    print_line("")
    print_table(rows, list(rows[0]) if rows else ["operator"], as_json=False)
    if origins.total:
        print_line("")
        _print_origins(origins)
    for each in answer.operators:
        if each.origins and each.id != origins.operator:
            print_line(f"origins of operator {each.id}: {_counts(each.origins)} (add --operator {each.id})")
    if answer.holders:
        of = f" (operator {answer.held_operator})" if len(answer.operators) > 1 else ""
        print_line(f"\nwhat held the watermark back{of}")
        spans = [
            {
                "from": at(span.at), "for": format_duration(span.lasted),
                "held by": span.held_by or "nothing", "reason": span.reason,
            }
            for span in answer.holders[:_HOLDERS]
        ]  # fmt: skip
        print_table(spans, ["from", "for", "held by", "reason"], as_json=False)


def _print_origins(answer: OriginsAnswer) -> None:
    at = partial(_time, now=answer.now)
    if not answer.total:
        print_line("no origins are in the reports of this query")
        return
    print_line(f"origins of operator {answer.operator}: {_counts(answer.counts)}")
    rows = [
        {
            "origin": _short(each.name), "input": each.input, "state": each.status,
            "watermark": at(each.watermark), "since": at(each.since), "gap": each.gap,
        }
        for each in answer.origins
    ]  # fmt: skip
    always = ("origin", "state", "watermark", "since")
    columns = [
        name
        for name in ("origin", "input", "state", "watermark", "since", "gap")
        if name in always or any(row[name] for row in rows)
    ]
    print_table(rows, columns, as_json=False)
    if answer.matching < answer.total - answer.left_out:
        print_line(f"{answer.matching} of {answer.total} match")
    if (more := answer.matching - answer.offset - len(rows)) > 0:
        print_line(
            f"… and {more} more; see slackwater origins --offset {answer.offset + len(rows)}, --filter"
        )
    if answer.left_out:
        print_line(f"{answer.left_out} are not in the reports, which have the slowest and the fastest")


def _held_by(operator: OperatorAnswer) -> str:
    before = operator.held_by_operator
    return operator.held_by or operator.reason if before is None else f"operator {before}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _print_windows(answer: WindowsAnswer) -> None:
    at = partial(_time, now=answer.now)
    print_line(answer.summary.sentence)
    if answer.open:
        rows = [
            {
                "start": at(each.start), "end": at(each.end), "keys": each.keys,
                "bytes": each.bytes, "early": each.early, "on time": each.on_time, "late": each.late,
                "closes": each.closes, "operator": each.operator,
            }
            for each in answer.open
        ]  # fmt: skip
        print_line("\nopen windows by end")
        print_table(rows, list(rows[0]), as_json=False)
    if answer.left_out:
        print_line(f"… and {counted(answer.left_out, 'more open window')}")
    if answer.closed:
        gone = [
            {
                "start": at(each.start), "end": at(each.end), "early": each.early,
                "on time": each.on_time, "late": each.late, "retractions": each.retractions,
                "closed": at(each.closed), "operator": each.operator,
            }
            for each in answer.closed[:_SAMPLES]
        ]  # fmt: skip
        print_line("\nrecently closed")
        print_table(gone, list(gone[0]), as_json=False)


def _print_late(answer: LateAnswer) -> None:
    at = partial(_time, now=answer.now)
    dropped = ", ".join(f"{count} {reason}" for reason, count in answer.dropped.items()) or "nothing"
    print_line(f"{answer.summary.sentence}\ndropped: {dropped}")
    for lag in answer.lags:
        print_line(f"{_policy_lag(lag, answer)}")
    if answer.advice is not None:
        print_line(f"recommended: {answer.advice}")
    if answer.delays:
        rows = [
            {"origin": _short(each.origin), "rows": each.rows, "largest delay": format_duration(each.highest)}
            for each in answer.delays[:_ORIGINS]
        ]
        print_line("\ndelays behind the fastest event time")
        print_table(rows, list(rows[0]), as_json=False)
        if answer.origins > _ORIGINS:
            print_line(f"… and {answer.origins - _ORIGINS} more origins")
    if answer.samples:
        found = [
            {
                "batch": at(row.at), "reason": row.kind, "side": row.side, "origin": _short(row.origin or ""),
                "event time": at(row.event_time),
                "window end": at(row.window_end), "late by": _duration(row.lateness),
                "watermark": at(row.watermark), "slowest origin": row.ahead,
                "values": "redacted" if row.values is None else row.values,
            }
            for row in answer.samples[:_SAMPLES]
        ]  # fmt: skip
        print_line("\na sample of the dropped rows")
        has_sides = any(row["side"] for row in found)
        columns = [name for name in found[0] if name != "side" or has_sides]
        print_table(found, columns, as_json=False)


def _policy_lag(lag: LagAnswer, answer: LateAnswer) -> str:
    name = "" if lag.name == DEFAULT_KEY else f" of {_short(lag.name)}"
    if lag.coverage is None:
        return f"lag{name}: {format_duration(lag.lag)}"
    since = "at first" if lag.since is None else f"since {_time(lag.since, answer.now)}"
    return f"lag{name}: {format_duration(lag.lag)} {since}, learned for {lag.coverage:.6g} of the rows"


def _time(at: int | None, now: int) -> str:
    if at is None:
        return ""
    return "end of time" if at == END_OF_TIME else clock_text(at, now)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _duration(value: int | None) -> str:
    return "" if value is None else rough(value)
