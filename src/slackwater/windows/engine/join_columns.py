"""The columns of a join: validation of the sides, names in the output, and output rows."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from slackwater.errors import InvalidArgument
from slackwater.windows.engine.equal_rows import retracting
from slackwater.windows.engine.join_limits import OTHER
from slackwater.windows.spec.operator_spec import REACH, SIDES, Side
from slackwater.windows.spec.two_sided_spec import TwoSidedSpec

Schema = Mapping[str, pl.DataType | type[pl.DataType]]


class PairColumns:
    """The columns of both sides, and of the pairs of their rows.

    A pair has the keys, then the other columns of the left side, then those of the right side. The column
    that marks retractions is neither stored nor part of a pair.

    Args:
        spec: the settings that name columns.
        left: the schema of the left side.
        right: the schema of the right side.

    Raises:
        InvalidArgument: a column is missing or has a type that cannot be used, or a name is used twice.

    >>> from slackwater.windows import JoinSpec
    >>> side = {"k": pl.String, "ts": pl.Int64}
    >>> PairColumns(JoinSpec(on=("k",), before=0, after=0), left=side, right=side).pair_schema.names()
    ['k', 'ts_left', 'ts_right']
    """

    def __init__(self, spec: TwoSidedSpec, *, left: Schema, right: Schema) -> None:
        self._spec = spec
        self.schemas: dict[Side, pl.Schema] = {"left": pl.Schema(left), "right": pl.Schema(right)}
        """The columns of each side."""
        self._check()
        self.stored = {
            side: pl.Schema({name: kind for name, kind in schema.items() if name != spec.retractions(side)})
            for side, schema in self.schemas.items()
        }
        """The columns of each side that are stored."""
        self.names = self._pair_names()
        """The columns of each side that are not keys, with their names in a pair."""
        self.pair_schema = pl.Schema({name: self.stored["left"][name] for name in spec.on})
        """The columns of a pair."""
        for side in SIDES:
            for name, renamed in self.names[side].items():
                self.pair_schema[renamed] = self.stored[side][name]

    @property
    def signature(self) -> str:
        """The schemas, on which saved state depends."""
        return ", ".join(f"{side}={dict(self.schemas[side])}" for side in SIDES)

    def checked(self, side: Side, batch: pl.DataFrame | None) -> pl.DataFrame:
        """The batch with its columns in the order of the schema; raises if it cannot be used."""
        schema, time = self.schemas[side], self._spec.times[side]
        if batch is None:
            return schema.to_frame()
        if dict(batch.schema) != dict(schema):
            raise InvalidArgument(
                side, dict(batch.schema), "does not have the declared schema", fix=f"use {dict(schema)}"
            )
        times = batch[time]
        if times.has_nulls():
            raise InvalidArgument(side, None, f"event time {time!r} is null", fix="filter out such rows")
        outside = times.filter((times <= -REACH) | (times >= REACH))
        if not outside.is_empty():
            raise InvalidArgument(
                side,
                outside[0],
                f"event time {time!r} is more than 146,000 years from 1970",
                fix="use microseconds since 1970",
            )
        return batch.select(schema.names())

    def pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Pairs of the rows of two frames of the same height."""
        return pl.concat(
            [
                left.select(*self._spec.on, *_renamed(self.names["left"])),
                right.select(_renamed(self.names["right"])),
            ],
            how="horizontal",
        )

    def padded(self, side: Side, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of one side as pairs, with nulls in the columns of the other side."""
        other = OTHER[side]
        nulls = [pl.lit(None, self.stored[other][name]).alias(to) for name, to in self.names[other].items()]
        columns = {side: _renamed(self.names[side]), other: nulls}
        return rows.select(*self._spec.on, *columns["left"], *columns["right"])

    def late_rows(self, side: Side, rows: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
        """Late rows of a side under the names of the output, with its keys and the mark of retractions.

        Args:
            side: the side of the rows.
            rows: the rows as they arrived.
            names: the columns of the side that are in the output and not keys, with their names there.
        """
        mark, output = self._spec.retractions(side), self._spec.output_retractions
        marks = [] if mark is None or output is None else [pl.col(mark).alias(output)]
        return rows.select(*self._spec.on, *_renamed(names), *marks)

    def with_unknown(self, side: Side, late: pl.DataFrame, unknown: pl.DataFrame) -> pl.DataFrame:
        """Late rows of a side and retractions of rows that are not stored."""
        column = self._spec.retractions(side)
        if column is None or unknown.is_empty():
            return late
        return pl.concat([late, retracting(unknown, column, late.columns)])

    def marked(self, rows: pl.DataFrame, *, retraction: bool = False) -> pl.DataFrame:
        """Output rows with the column that marks retractions, if there is one."""
        name = self._spec.output_retractions
        return rows if name is None else rows.with_columns(pl.lit(retraction).alias(name))

    def marked_schema(self, schema: pl.Schema) -> pl.Schema:
        """The columns of output rows with the one that marks retractions; raises if its name is taken."""
        name = self._spec.output_retractions
        if name is None:
            return schema
        if name in schema:
            raise InvalidArgument(
                "retractions", name, "is also the name of another output column", fix="rename the column"
            )
        return pl.Schema({**schema, name: pl.Boolean()})

    def _check(self) -> None:
        for side in SIDES:
            schema, retractions = self.schemas[side], self._spec.retractions(side)
            time, keys = self._spec.times[side], [column for _, column in self._spec.keys(side)]
            for name in (*self._spec.on, time, *keys, *([] if retractions is None else [retractions])):
                if name not in schema:
                    raise InvalidArgument(
                        side, schema.names(), f"has no column {name!r}", fix="add or rename the column"
                    )
            for argument, name in ((f"{side}_time", time), *((f"{side}_keys", key) for key in keys)):
                if schema[name] != pl.Int64:
                    raise InvalidArgument(
                        argument, name, f"has type {schema[name]}", fix="use Int64 microseconds since 1970"
                    )
            if retractions is not None and schema[retractions] != pl.Boolean:
                raise InvalidArgument(
                    f"{side}_retractions",
                    retractions,
                    f"has type {schema[retractions]}",
                    fix="use a boolean column",
                )
        for index, name in enumerate(self._spec.on):
            self._check_key(name)
            if name in self._spec.on[:index]:
                raise InvalidArgument("on", self._spec.on, f"contains {name!r} twice", fix="name it once")
        suffixes: object = self._spec.suffixes
        if not isinstance(suffixes, tuple | list) or [type(each) for each in suffixes] != [str, str]:
            raise InvalidArgument(
                "suffixes", suffixes, "is not a pair of strings", fix='write suffixes=("_left", "_right")'
            )

    def _check_key(self, name: str) -> None:
        left, right = self.schemas["left"][name], self.schemas["right"][name]
        if left != right:
            raise InvalidArgument(
                "on", name, f"has type {left} on the left and {right} on the right", fix="cast one of them"
            )
        if left.is_nested() or left == pl.Object:
            raise InvalidArgument(
                "on", name, f"has type {left}, which cannot be a key", fix="use a column that is not nested"
            )

    def _pair_names(self) -> dict[Side, dict[str, str]]:
        """The columns of each side that are not keys, with their names in a pair."""
        own = {side: [name for name in self.stored[side] if name not in self._spec.on] for side in SIDES}
        shared = set(own["left"]) & set(own["right"])
        names = {
            side: {name: name + suffix if name in shared else name for name in own[side]}
            for side, suffix in zip(SIDES, self._spec.suffixes, strict=True)
        }
        result = [*self._spec.on, *names["left"].values(), *names["right"].values()]
        if twice := sorted({name for name in result if result.count(name) > 1}):
            raise InvalidArgument(
                "suffixes",
                self._spec.suffixes,
                f"give two columns the name {twice[0]!r}",
                fix="use other suffixes",
            )
        return names


def _renamed(names: Mapping[str, str]) -> list[pl.Expr]:
    return [pl.col(name).alias(renamed) for name, renamed in names.items()]
