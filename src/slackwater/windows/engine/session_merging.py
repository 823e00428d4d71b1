"""Merging of sessions: elements of a batch form sessions, which merge with the stored ones they overlap.

Intervals that overlap strictly merge: elements exactly one gap apart are two sessions. A session that was
closed by its trigger takes no part in merging. If the input contains retractions, a session that lost
elements is formed again from those that remain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from slackwater.time import BEGINNING_OF_TIME
from slackwater.windows.accumulations.counted import GROUP
from slackwater.windows.assigners import Sessions
from slackwater.windows.engine.compiled_spec import CompiledSpec, StepResults
from slackwater.windows.engine.frames import match, sort_by_key, stack
from slackwater.windows.operator_columns import (
    ADDED,
    CLOSED,
    END,
    GAP,
    INDEX,
    ON_TIME,
    REMAINING,
    ROW,
    STAMP,
    START,
    TIME,
    missed_column,
)

_SEGMENT: Final = "segment"
_MERGED: Final = "merged"
_STORED: Final = "source"
_FROM_STORED: Final = "sources"
_MERGED_START: Final = "met:start"
_MERGED_END: Final = "met:end"
_MEETS_STORED: Final = "met:sources"
_MEETS_NEW: Final = "met:arrivals"
_FIRST: Final = "remaining:start"
_LAST: Final = "remaining:end"
_SPLIT: Final = "remaining:split"
NEW_OWNER: Final = (("owner:start", START), ("owner:end", END))
"""The bounds of the session into which a stored one was merged, with the columns they replace."""


@dataclass(frozen=True)
class Merge:
    """The result of merging the sessions of a batch with the stored ones."""

    merged: pl.DataFrame
    """The sessions that got elements, with the number of elements added."""
    untouched: pl.DataFrame
    """The stored sessions that overlap none of the batch."""
    owners: pl.DataFrame
    """For each stored session that was merged, the bounds of the session it is part of now."""


@dataclass(frozen=True)
class SessionMerging:
    """The merging rules of one operator."""

    compiled: CompiledSpec
    window: Sessions

    @property
    def ends(self) -> pl.Expr:
        """The end of the interval of each element."""
        return pl.col(TIME) + (pl.col(GAP) if isinstance(self.window.gap, str) else self.window.gap)

    @property
    def _is_apart(self) -> pl.Expr:
        """Whether an element begins after the intervals of all before it; they are sorted by key and time."""
        if not isinstance(self.window.gap, str):
            return pl.col(TIME).diff() >= self.window.gap
        reached = self.ends.cum_max().shift(1).over(self.compiled.key_columns)
        return pl.col(TIME) >= reached

    def sessions_of(self, elements: pl.DataFrame, watermark: int) -> pl.DataFrame:
        """The sessions that the elements of a batch form among themselves."""
        keys = self.compiled.key_columns
        elements = sort_by_key(elements, keys, TIME)
        starts = _key_changes(keys) | self._is_apart
        elements = elements.with_columns(
            starts.fill_null(value=True).cum_sum().cast(pl.Int64).alias(_SEGMENT)
        )
        sessions = elements.group_by(_SEGMENT, maintain_order=True).agg(
            *(pl.col(key).first() for key in keys),
            pl.col(TIME).first().alias(START),
            self.ends.max().alias(END),
            *self.compiled.add_elements(watermark, elements),
        )
        if STAMP not in sessions.columns:
            sessions = sessions.with_columns(pl.lit(None, pl.Int64()).alias(STAMP))
        return self.compiled.settled(sessions.drop(_SEGMENT))

    def merge(
        self,
        stored: pl.DataFrame | None,
        sessions: pl.DataFrame,
        elements: pl.DataFrame,
        watermark: int,
        out: StepResults,
    ) -> Merge:
        """Merge the sessions of a batch with stored ones; elements of closed sessions are dropped."""
        if stored is None:
            merged = sessions.with_columns(self.compiled.new_rows)
            return self._reformed(
                Merge(merged, sessions.clear(), sessions.clear()), sessions.clear(), watermark
            )
        columns = self.compiled.row_columns
        closed, opened = stored.filter(CLOSED), stored.filter(~pl.col(CLOSED))
        overlaps = _overlaps(opened.select(columns), sessions.select(columns), self.compiled.key_columns)
        opened = opened.hstack(overlaps.head(opened.height))
        sessions = sessions.hstack(overlaps.tail(sessions.height))
        to_merge = opened.filter(_MEETS_NEW)
        untouched = stack([opened.filter(~pl.col(_MEETS_NEW)).select(stored.columns), closed])
        alone = sessions.filter(~pl.col(_MEETS_STORED)).with_columns(self.compiled.new_rows)
        result_columns = [*stored.columns, ADDED, _FROM_STORED]
        merged = alone.with_columns(pl.lit(0).alias(_FROM_STORED)).select(result_columns)
        if to_merge.height:
            joined = self._joined(to_merge, sessions.filter(_MEETS_STORED), watermark)
            merged = stack([joined.select(result_columns), merged])
        bounds = zip((_MERGED_START, _MERGED_END), NEW_OWNER, strict=True)
        owners = to_merge.select(*columns, *(pl.col(name).alias(owner) for name, (owner, _) in bounds))
        merged, untouched = self._drop_closed(merged, untouched, elements, out)
        return self._reformed(Merge(merged, untouched, owners), to_merge, watermark)

    def _joined(self, stored: pl.DataFrame, sessions: pl.DataFrame, watermark: int) -> pl.DataFrame:
        """Each group of overlapping sessions as one.

        Stored partials come first, so that among values with the same event time the one that arrived first
        stays the first. The pane numbering continues if the merged session equals a stored one.
        """
        compiled = self.compiled
        is_stored = pl.lit(value=True).alias(_STORED)
        older = stored.with_columns(is_stored, pl.lit(0, pl.Int64()).alias(ADDED))
        newer = sessions.with_columns(*compiled.new_rows, ~is_stored)
        both = stack([older, newer.select(older.columns)])
        unchanged = (
            pl.col(_STORED) & (pl.col(START) == pl.col(_MERGED_START)) & (pl.col(END) == pl.col(_MERGED_END))
        )
        both = both.with_columns(
            pl.when(unchanged).then(pl.col(INDEX)).otherwise(0).alias(INDEX),
            pl.when(unchanged).then(pl.col(ON_TIME)).otherwise(0).alias(ON_TIME),
        )
        missed = [name for name in compiled.spec.accumulations if missed_column(name) in both.columns]
        merged = both.group_by(_MERGED).agg(
            *(pl.col(key).first() for key in compiled.key_columns),
            pl.col(_MERGED_START).first().alias(START),
            pl.col(_MERGED_END).first().alias(END),
            *compiled.combine_rows,
            *compiled.trigger.merge(_STORED),
            *compiled.merge_values(missed),
        )
        rewound = compiled.trigger.rewind(pl.col(END) <= watermark)
        return compiled.settled(merged).with_columns(*rewound, pl.lit(1).alias(_FROM_STORED))

    # ---- sessions that lost elements

    def _reformed(self, merge: Merge, stored: pl.DataFrame, watermark: int) -> Merge:
        """Replace each session that lost elements by the sessions that the remaining ones form.

        A part with other bounds than any of the ``stored`` sessions is a new window. All elements of a part
        are new, and its trigger starts again. A session without elements stays until it has fired.
        """
        compiled, merged = self.compiled, merge.merged
        if compiled.session_elements is None:
            return merge
        elements = sort_by_key(compiled.session_elements.elements(merged), [GROUP], TIME)
        split = self._is_apart.any().alias(_SPLIT)
        first, last = pl.col(TIME).first().alias(_FIRST), self.ends.max().alias(_LAST)
        ranges = elements.group_by(GROUP).agg(first, last, split)
        sessions = merged.select(*compiled.row_columns, REMAINING).with_row_index(GROUP)
        moved = (pl.col(START) != pl.col(_FIRST)) | (pl.col(END) != pl.col(_LAST)) | pl.col(_SPLIT)
        # The count is null if an earlier release stored the session, without its elements.
        lost = sessions.join(ranges, on=GROUP).filter(moved & pl.col(REMAINING).is_not_null())
        if lost.is_empty():
            return merge
        keyed = elements.join(lost.select(GROUP, *compiled.key_columns), on=GROUP, maintain_order="left")
        parts = self.sessions_of(keyed, watermark).with_columns(compiled.new_rows)
        if stored.height:
            parts = self._renumbered(parts, stored)
        kept = match(merged, lost, compiled.row_columns, "anti")
        merged = stack([kept, parts.select(kept.columns)])
        return Merge(merged, merge.untouched, self._owners_of_parts(merge.owners, lost, parts))

    def _renumbered(self, parts: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
        """Continue the pane numbering of stored sessions with the same bounds."""
        columns = self.compiled.row_columns
        numbers = (INDEX, ON_TIME)
        known = stored.select(*columns, *(pl.col(name).alias(f"stored:{name}") for name in numbers))
        found = match(parts, known, columns, "left")
        return found.with_columns(pl.coalesce(f"stored:{name}", name).alias(name) for name in numbers)

    def _owners_of_parts(self, owners: pl.DataFrame, lost: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
        """Assign stored sessions to parts: to the one with the same bounds, else to the earliest one."""
        if owners.is_empty():
            return owners
        keys, columns = self.compiled.key_columns, self.compiled.row_columns
        (owner_start, _), (owner_end, _) = NEW_OWNER
        bounds = parts.select(*keys, pl.col(START).alias(_FIRST), pl.col(END).alias(_LAST))
        whole = lost.select(*keys, pl.col(START).alias(owner_start), pl.col(END).alias(owner_end))
        within = match(whole, bounds, keys, "inner").filter(
            pl.col(_FIRST) >= pl.col(owner_start), pl.col(_LAST) <= pl.col(owner_end)
        )
        earliest = within.sort(_FIRST).unique([*keys, owner_start, owner_end], keep="first")
        found = match(owners, earliest, [*keys, owner_start, owner_end], "left")
        unmoved = match(found, bounds.rename({_FIRST: START, _LAST: END}), columns, "semi")
        moved = match(found, unmoved, columns, "anti")
        return stack(
            [
                moved.select(
                    *columns,
                    pl.coalesce(_FIRST, owner_start).alias(owner_start),
                    pl.coalesce(_LAST, owner_end).alias(owner_end),
                ),
                unmoved.select(*columns, pl.col(START).alias(owner_start), pl.col(END).alias(owner_end)),
            ]
        )

    # ---- sessions that a trigger closed

    def _drop_closed(
        self, merged: pl.DataFrame, untouched: pl.DataFrame, elements: pl.DataFrame, out: StepResults
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Handle sessions that equal a closed one.

        If no open session took part, their elements are dropped. Otherwise they continue its numbering.
        """
        compiled = self.compiled
        closed = untouched.filter(CLOSED).select(
            *compiled.row_columns,
            pl.col(INDEX).alias("closed:index"),
            pl.col(ON_TIME).alias("closed:on_time"),
        )
        if compiled.trigger.can_finish and closed.height:
            merged = match(merged, closed, compiled.row_columns, "left")
            equals_closed = pl.col("closed:index").is_not_null()
            dropped = merged.filter(equals_closed & (pl.col(_FROM_STORED) == 0))
            merged = merged.filter(~equals_closed | (pl.col(_FROM_STORED) > 0))
            if dropped.height:
                self._report_closed(dropped, elements, out)
            untouched = match(untouched, merged.filter(equals_closed), compiled.row_columns, "anti")
            merged = merged.with_columns(
                pl.coalesce("closed:index", INDEX).alias(INDEX),
                pl.coalesce("closed:on_time", ON_TIME).alias(ON_TIME),
            ).drop("closed:index", "closed:on_time")
        return merged.drop(_FROM_STORED), untouched

    def _report_closed(self, dropped: pl.DataFrame, elements: pl.DataFrame, out: StepResults) -> None:
        keys = self.compiled.key_columns
        out.dropped_closed += int(dropped[ADDED].sum())
        out.sample(dropped, "closed", (pl.col(START), pl.col(END)), keys)
        if self.compiled.spec.late == "emit":
            bounds = dropped.select(*keys, START, END)
            rows = match(elements.select(ROW, TIME, *keys), bounds, keys, "inner")
            rows = rows.filter(pl.col(TIME).is_between(START, END, closed="left"))
            out.late.append(rows.select(ROW, pl.lit("closed").alias("reason"), START, END))


def _key_changes(keys: list[str]) -> pl.Expr:
    """Where another key begins, in sorted rows."""
    return pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift(1)) for key in keys)


def _overlaps(stored: pl.DataFrame, sessions: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """For each stored and each new session, in this order: the merged session that it is part of.

    The result has the number and bounds of the merged session, and whether stored and new sessions take part.
    Sessions of one kind do not overlap each other, so the furthest end before a row is that of the last row
    of either kind.
    """
    is_stored = pl.lit(value=True).alias(_STORED)
    both = stack([stored.with_columns(is_stored), sessions.with_columns(~is_stored)]).with_row_index(ROW)
    ordered = sort_by_key(both, keys, START).with_columns(_key_changes(keys).alias("other"))
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

    reached = pl.max_horizontal(furthest(pl.col(_STORED)), furthest(~pl.col(_STORED))).shift(1)
    starts = (pl.col("other") | (pl.col(START) >= reached)).fill_null(value=True)
    numbered = ordered.select(ROW, _STORED, START, END, starts.cum_sum().cast(pl.Int64).alias(_MERGED))
    merged = numbered.group_by(_MERGED, maintain_order=True).agg(
        pl.col(START).first().alias(_MERGED_START),
        pl.col(END).max().alias(_MERGED_END),
        pl.col(_STORED).any().alias(_MEETS_STORED),
        (~pl.col(_STORED)).any().alias(_MEETS_NEW),
    )
    # The numbers are dense, so the merged session of a row is found by position.
    per_row = merged.drop(_MERGED)[numbered[_MERGED] - 1]
    return numbered.select(ROW, _MERGED).hstack(per_row).sort(ROW).drop(ROW)
