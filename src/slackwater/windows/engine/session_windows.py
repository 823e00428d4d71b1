"""Sessions: windows that elements make, stretch and merge, on columns.

A row is a session of one key: its bounds, what its trigger remembers, and its partials. Elements of a batch
are first joined among themselves (sorted by key and time, cut where the gap is met), then with the sessions
they overlap. Sessions lie in groups by the time they end, one blob each, so that a batch reads only those
it can reach, and the watermark only those it completes.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from slackwater.time import BEGINNING_OF_TIME, SECOND
from slackwater.windows.accumulations.base import TIME
from slackwater.windows.assigners import Sessions, WindowBounds
from slackwater.windows.engine.firing import (
    FIRES,
    WANTED,
    Question,
    clock_question,
    decide,
    emit,
    take_back_suppressed,
)
from slackwater.windows.engine.rules import (
    ADDED,
    CLOSED,
    END,
    INDEX,
    ON_TIME,
    ROW,
    STAMP,
    START,
    Collector,
    Rules,
    match,
    stack,
)
from slackwater.windows.engine.window_state import WindowEntry, WindowState

_SEGMENT = "segment"
_MERGED = "merged"
_SOURCE = "source"
_SOURCES = "sources"
_GROUP = "group"
_GAPS_IN_A_GROUP = 8


class SessionWindows:
    """Folds batches into sessions, and fires them."""

    minimum_width = SECOND
    """Groups are at least so wide, however short the gap."""

    def __init__(self, rules: Rules, window: Sessions) -> None:
        self.rules = rules
        self.gap = window.gap
        self.width = max(_GAPS_IN_A_GROUP * window.gap, self.minimum_width)

    # ---- the three parts of a step

    def add(self, state: WindowState, elements: pl.DataFrame, now: int, out: Collector) -> None:
        """Elements of a batch, judged by the watermark before the step."""
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        elements = self._drop_late(elements, watermark, out)
        if elements.is_empty():
            return
        arrivals = self._arrivals(elements, watermark)
        groups = self._reached(state, int(arrivals[START].min()), int(arrivals[END].max()))  # type: ignore[arg-type]
        known = self._read_rows(state, groups)
        if known is None:
            merged, untouched, owners = self._fresh(arrivals), arrivals.clear(), None
        else:
            merged, untouched, owners = self._merge(known, arrivals, watermark)
            merged, untouched = self._drop_closed(merged, untouched, elements, out)
        standing = self._moved(self._read_standing(state, groups), owners)
        merged = merged.with_columns(self.rules.add_to_rows(watermark, now)).drop(ADDED)
        # A trigger that waits for the end need not be asked for sessions that go on.
        asked = pl.col(END) <= watermark if self.rules.machine.waits_for_end else pl.lit(value=True)
        asks = merged.height > 0 and bool(merged.select(asked.any()).item())
        question = Question(watermark, state.clock, state.step, asked, asks=asks)
        if asks:
            merged, standing = self._fire(merged, standing, question, out)
        self._keep(state, groups, [untouched, merged], standing, question)

    def advance(self, state: WindowState, before: int, watermark: int, out: Collector) -> None:
        """The watermark moved: sessions it completes are asked, sessions it purges say their last word."""
        groups = state.dues.take(watermark)
        if not groups:
            return
        completes = (pl.col(END) > before) & (pl.col(END) <= watermark)
        purged = self.rules.horizon_expression(pl.col(END)) <= watermark
        question = Question(watermark, state.clock, state.step, completes, purged, completes)
        self._ask(state, groups, completes | purged, question, out)

    def tick(self, state: WindowState, before: int, out: Collector) -> None:
        """The clock moved: sessions whose target it passed are asked."""
        groups = state.targets.take(state.clock - 1)
        if not groups:
            return
        question = clock_question(self.rules, state, before)
        self._ask(state, groups, question.asked, question, out)

    def _ask(
        self, state: WindowState, groups: list[WindowBounds], due: pl.Expr, question: Question, out: Collector
    ) -> None:
        rows = self._read_rows(state, groups)
        if rows is None:
            return
        asked, others = rows.filter(due), rows.filter(~due)
        standing = self._read_standing(state, groups)
        asked, standing = self._fire(asked, standing, question, out)
        self._keep(state, groups, [others, asked], standing, question)

    # ---- elements to sessions

    def _drop_late(self, elements: pl.DataFrame, watermark: int, out: Collector) -> pl.DataFrame:
        rules = self.rules
        end = pl.col(TIME) + self.gap
        late = (rules.horizon_expression(end) <= watermark) | rules.drop_behind(watermark)
        dropped = elements.filter(late)
        if dropped.is_empty():
            return elements
        out.dropped_late += dropped.height
        if rules.spec.late == "emit":
            by_window = rules.spec.drop_late == "by_window"
            nothing = pl.lit(None, pl.Int64())
            bounds = (
                (pl.col(TIME).alias(START), end.alias(END))
                if by_window
                else (nothing.alias(START), nothing.alias(END))
            )
            out.late.append(dropped.select(ROW, pl.lit("late").alias("reason"), *bounds))
        return elements.filter(~late)

    def _arrivals(self, elements: pl.DataFrame, watermark: int) -> pl.DataFrame:
        """The sessions that the elements of a batch make among themselves."""
        keys = self.rules.key_columns
        elements = elements.sort(*keys, TIME, maintain_order=True)
        cut = _changes(keys) | (pl.col(TIME).diff() >= self.gap)
        elements = elements.with_columns(
            cut.fill_null(value=True).cum_sum().cast(pl.Int64).set_sorted().alias(_SEGMENT)
        )
        arrivals = elements.group_by(_SEGMENT, maintain_order=True).agg(
            *(pl.col(key).first() for key in keys),
            pl.col(TIME).first().alias(START),
            (pl.col(TIME).last() + self.gap).alias(END),
            *self.rules.add_elements(watermark),
        )
        if STAMP not in arrivals.columns:
            arrivals = arrivals.with_columns(pl.lit(None, pl.Int64()).alias(STAMP))
        return arrivals.drop(_SEGMENT)

    def _reached(self, state: WindowState, start: int, end: int) -> list[WindowBounds]:
        """The groups with sessions that may overlap a stretch of time."""
        return sorted(
            bounds for bounds, entry in state.windows.items() if entry.end > start and entry.reach < end
        )

    def _fresh(self, arrivals: pl.DataFrame) -> pl.DataFrame:
        """Sessions of a batch that meet no others."""
        return arrivals.with_columns(self.rules.new_rows())

    def _merge(
        self, known: pl.DataFrame, arrivals: pl.DataFrame, watermark: int
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Sessions of a batch joined with those they overlap; the others; and what became of the old ones."""
        rules = self.rules
        closed, opened = known.filter(CLOSED), known.filter(~pl.col(CLOSED))
        met = _meetings(
            opened.select(rules.row_columns), arrivals.select(rules.row_columns), rules.key_columns
        )
        opened, arrivals = opened.hstack(met.head(opened.height)), arrivals.hstack(met.tail(arrivals.height))
        sources = opened.filter("met:arrivals")
        untouched = stack([opened.filter(~pl.col("met:arrivals")).select(known.columns), closed])
        fresh = self._fresh(arrivals.filter(~pl.col("met:sources"))).with_columns(pl.lit(0).alias(_SOURCES))
        columns = [*known.columns, ADDED, _SOURCES]
        merged = fresh.select(columns)
        if sources.height:
            joined = self._joined(sources, arrivals.filter("met:sources"), watermark)
            merged = stack([joined.select(columns), merged])
        owners = sources.select(
            *rules.row_columns, pl.col("met:start").alias("owner:start"), pl.col("met:end").alias("owner:end")
        )
        return merged, untouched, owners

    def _joined(self, sources: pl.DataFrame, arrivals: pl.DataFrame, watermark: int) -> pl.DataFrame:
        """Each group of sessions that met as one, older partials first, so that of two values with the same
        event time the one that arrived first is the first.
        """
        rules = self.rules
        source = pl.lit(value=True).alias(_SOURCE)
        older = sources.with_columns(source, pl.lit(0, pl.Int64()).alias(ADDED))
        newer = arrivals.with_columns(*rules.new_rows(), ~source)
        both = stack([older, newer.select(older.columns)])
        same = pl.col(_SOURCE) & (pl.col(START) == pl.col("met:start")) & (pl.col(END) == pl.col("met:end"))
        both = both.with_columns(
            pl.when(same).then(pl.col(INDEX)).otherwise(0).alias(INDEX),
            pl.when(same).then(pl.col(ON_TIME)).otherwise(0).alias(ON_TIME),
        )
        merged = both.group_by(_MERGED).agg(
            *(pl.col(key).first() for key in rules.key_columns),
            pl.col("met:start").first().alias(START),
            pl.col("met:end").first().alias(END),
            *rules.combine_rows(),
            *rules.machine.merge(_SOURCE),
            *rules.merge_parts(),
        )
        return merged.with_columns(*rules.machine.rewind(pl.col(END) <= watermark), pl.lit(1).alias(_SOURCES))

    def _drop_closed(
        self, merged: pl.DataFrame, untouched: pl.DataFrame, elements: pl.DataFrame, out: Collector
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Sessions that equal a closed one: dropped if no open one took part, else they go on from it."""
        rules = self.rules
        closed = untouched.filter(CLOSED).select(
            *rules.row_columns, pl.col(INDEX).alias("closed:index"), pl.col(ON_TIME).alias("closed:on_time")
        )
        if rules.machine.can_finish and closed.height:
            merged = match(merged, closed, rules.row_columns, "left")
            meets = pl.col("closed:index").is_not_null()
            dropped = merged.filter(meets & (pl.col(_SOURCES) == 0))
            merged = merged.filter(~meets | (pl.col(_SOURCES) > 0))
            if dropped.height:
                out.dropped_closed += int(dropped[ADDED].sum())
                if rules.spec.late == "emit":
                    bounds = dropped.select(*rules.key_columns, START, END)
                    rows = match(
                        elements.select(ROW, TIME, *rules.key_columns), bounds, rules.key_columns, "inner"
                    )
                    rows = rows.filter(pl.col(TIME).is_between(START, END, closed="left"))
                    out.late.append(rows.select(ROW, pl.lit("closed").alias("reason"), START, END))
            untouched = match(untouched, merged.filter(meets), rules.row_columns, "anti")
            merged = merged.with_columns(
                pl.coalesce("closed:index", INDEX).alias(INDEX),
                pl.coalesce("closed:on_time", ON_TIME).alias(ON_TIME),
            ).drop("closed:index", "closed:on_time")
        return merged.drop(_SOURCES), untouched

    # ---- firing and keeping

    def _fire(
        self, rows: pl.DataFrame, standing: pl.DataFrame | None, question: Question, out: Collector
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The rows after the decision, and the panes that stand then."""
        rules = self.rules
        if rows.is_empty():
            return rows, standing
        columns = rows.columns
        rows = decide(rows, rules, question)
        wanted = rows.filter(WANTED)
        if wanted.height:
            emission = emit(wanted, rules, standing)
            if emission.panes.height:
                out.panes.append(emission.panes)
            if rules.keeps_standing:
                standing = emission.standing
            rows = take_back_suppressed(rows, emission.suppressed)
        if rules.spec.mode == "discarding":
            parts = [name for name in columns if name.startswith("part:")]
            rows = rows.with_columns(pl.when(~pl.col(FIRES)).then(pl.col(name)).alias(name) for name in parts)
        if standing is not None:
            # A closed session takes no part in merging: what stands of it stands for good.
            standing = match(standing, rows.filter(pl.col("pane:last")), rules.row_columns, "anti")
        rows = rows.filter(rules.horizon_expression(pl.col(END)) > question.watermark)
        return rows.select(columns), standing

    def _read_rows(self, state: WindowState, groups: Iterable[WindowBounds]) -> pl.DataFrame | None:
        kept = [state.windows[bounds].rows for bounds in groups]
        frames = [state.read(name) for name in kept if name is not None]
        return stack(frames) if frames else None

    def _read_standing(self, state: WindowState, groups: Iterable[WindowBounds]) -> pl.DataFrame | None:
        kept = [state.windows[bounds].standing for bounds in groups]
        frames = [state.read(name) for name in kept if name is not None]
        return stack(frames) if frames else None

    def _moved(self, standing: pl.DataFrame | None, owners: pl.DataFrame | None) -> pl.DataFrame | None:
        """Standing panes, owed now by the session that their old one was merged into."""
        if standing is None or owners is None:
            return standing
        return (
            match(standing, owners, self.rules.row_columns, "left")
            .with_columns(
                pl.coalesce("owner:start", START).alias(START), pl.coalesce("owner:end", END).alias(END)
            )
            .drop("owner:start", "owner:end")
        )

    def _keep(
        self,
        state: WindowState,
        groups: list[WindowBounds],
        frames: list[pl.DataFrame],
        standing: pl.DataFrame | None,
        question: Question,
    ) -> None:
        """Write the sessions into their groups, and note when each group is due again."""
        filled = [frame for frame in frames if frame.height]
        rows = stack(filled).with_columns(self._group()) if filled else None
        targets = set(groups)
        if rows is not None:
            named = {(start, start + self.width) for start in rows[_GROUP].unique()}
            visited = [bounds for bounds in named - targets if bounds in state.windows]
            if visited:  # sessions that moved into a group which the batch could not reach
                others = [state.read(state.windows[bounds].rows) for bounds in visited]
                rows = stack([rows, *(frame.with_columns(self._group()) for frame in others)])
                more = self._read_standing(state, visited)
                standing = more if standing is None else standing if more is None else stack([standing, more])
            targets |= named
        by_group = {} if rows is None else rows.partition_by(_GROUP, as_dict=True, include_key=False)
        stands = (
            {}
            if standing is None
            else standing.with_columns(self._group()).partition_by(_GROUP, as_dict=True, include_key=False)
        )
        for bounds in sorted(targets):
            frame = by_group.get((bounds[0],))
            if frame is None:
                if bounds in state.windows:
                    state.forget(bounds)
                continue
            self._keep_group(state, bounds, frame, stands.get((bounds[0],)), question)

    def _keep_group(
        self,
        state: WindowState,
        bounds: WindowBounds,
        rows: pl.DataFrame,
        standing: pl.DataFrame | None,
        question: Question,
    ) -> None:
        rules = self.rules
        end = pl.col(END)
        due = pl.when(end > question.watermark).then(end).otherwise(rules.horizon_expression(end))
        dates = rows.select(
            due.min().alias("due"),
            rules.hold().min().alias("hold"),
            pl.when(~pl.col(CLOSED)).then(rules.machine.target(question.clock)).min().alias("target"),
            pl.col(START).min().alias("reach"),
        ).row(0, named=True)
        entry = state.windows.get(bounds) or WindowEntry(*bounds)
        entry.rows = state.write(rows, replaces=entry.rows)
        if standing is None:
            state.delete(entry.standing)
            entry.standing = None
        else:
            entry.standing = state.write(standing, replaces=entry.standing)
        entry.due, entry.hold, entry.target, entry.reach = (
            dates["due"], dates["hold"], dates["target"], dates["reach"],
        )  # fmt: skip
        state.note(entry)

    def _group(self) -> pl.Expr:
        end = pl.col(END)
        return (end - end % self.width).alias(_GROUP)


def _changes(keys: list[str]) -> pl.Expr:
    """Where, in sorted rows, another key begins."""
    return pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift(1)) for key in keys)


def _meetings(opened: pl.DataFrame, arrivals: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """For each of the sessions of either kind, in their order: which overlap, in what, and of what kinds.

    Within a kind none overlap, so the furthest end before a row is that of the last row of either kind.
    """
    source = pl.lit(value=True).alias(_SOURCE)
    ordered = (
        stack([opened.with_columns(source), arrivals.with_columns(~source)])
        .with_row_index(ROW)
        .sort(*keys, START, END)
        .with_columns(_changes(keys).alias("other"))
    )
    before = pl.lit(BEGINNING_OF_TIME, pl.Int64())

    def furthest(kind: pl.Expr) -> pl.Expr:
        return (
            pl.when(kind)
            .then(pl.col(END))
            .when(pl.col("other"))
            .then(before)
            .forward_fill()
            .fill_null(before)
        )

    reached = pl.max_horizontal(furthest(pl.col(_SOURCE)), furthest(~pl.col(_SOURCE))).shift(1)
    cut = (pl.col("other") | (pl.col(START) >= reached)).fill_null(value=True)
    numbered = ordered.select(
        ROW, _SOURCE, START, END, cut.cum_sum().cast(pl.Int64).set_sorted().alias(_MERGED)
    )
    met = numbered.group_by(_MERGED, maintain_order=True).agg(
        pl.col(START).first().alias("met:start"),
        pl.col(END).max().alias("met:end"),
        pl.col(_SOURCE).any().alias("met:sources"),
        (~pl.col(_SOURCE)).any().alias("met:arrivals"),
    )
    # The numbers are dense, so what was met is found by position.
    spread = met.drop(_MERGED)[numbered[_MERGED] - 1]
    return numbered.select(ROW, _MERGED).hstack(spread).sort(ROW).drop(ROW)
