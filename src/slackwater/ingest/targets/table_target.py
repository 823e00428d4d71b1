"""A table of SQLite or PostgreSQL as a target: a slice is deleted and inserted in one transaction.

In PostgreSQL every task loads its rows into a staging table of its own, and the driver inserts from those. A
SQLite file is local to the driver, so the rows travel there and are loaded into temporary tables. Readers see
either the old rows or the new ones. The fields of a unit are text columns of the table.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final

import polars as pl
import pyarrow as pa
import sqlalchemy as sql
from pyarrow.types import is_nested
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from sqlalchemy.engine import URL, Connection
from sqlalchemy.types import UserDefinedType

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.timezones import zone
from slackwater.ingest.job_errors import RunReplaced
from slackwater.ingest.sources.exact_casts import MICROSECOND_FORMATS
from slackwater.ingest.sources.extracted_rows import Batches, Rows
from slackwater.ingest.sources.spark_columns import Columns, column
from slackwater.ingest.sources.sql_statements import posix_zone, time_value
from slackwater.ingest.targets.column_types import accepted_type, column_type, needs_cast
from slackwater.ingest.targets.rejected_rows import LETTERS, Check, joined_letters, times_of
from slackwater.ingest.targets.replacement import ReplacingTarget, Slice, StagedRows, StageTask
from slackwater.ingest.targets.schema_drift import Fit, fit
from slackwater.sql.adbc import create_loaded_table
from slackwater.sql.database import temporary_engine
from slackwater.sql.dead_letters import (
    REJECTIONS,
    LetterRange,
    find_rejected,
    replace_dead_letters,
)
from slackwater.sql.fences import pass_fence
from slackwater.sql.identifiers import quote_table, split_table_name
from slackwater.sql.letters import as_letters
from slackwater.sql.merge import delete_matching, insert_missing, latest_rows, lock_table
from slackwater.sql.row_checks import ColumnLimits, rejection_reasons, table_limits
from slackwater.sql.staging_table import (
    deserialize_batches,
    drop_staging_tables,
    is_embedded,
    load_batches,
    serialize_batches,
    staging_table,
)
from slackwater.sql.stated_completeness import state_completeness, withdraw_completeness
from slackwater.time import format_instant

_STAGING_PREFIX: Final = "slackwater_ingest_"
_SEARCHED: Final = "slackwater_searched"
_NUMBER: Final = "slackwater_number"


class _DeclaredType(UserDefinedType[Any]):
    """A column type by its name in the database."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


_Casts = Mapping[str, _DeclaredType]


@dataclass(frozen=True)
class TableTarget(ReplacingTarget[str]):
    """A table, and the columns that identify its rows; the address is not part of the representation.

    The staging area is a prefix of table names.
    """

    url: URL = field(repr=False)
    table: str
    key: tuple[str, ...] = ()
    """If set, rows with the same key are replaced instead of the rows of the slice."""

    def __post_init__(self) -> None:
        split_table_name("ms.target.table", self.table)

    # ---- the steps of a replacement

    def pass_fence(self) -> None:
        """Record the token of the run in the database."""
        if self.token is not None:
            with temporary_engine(self.url) as engine, engine.begin() as connection:
                self._pass_fence(connection)

    def remove_leftovers(self) -> None:
        """Drop the staging tables of a killed run."""
        self._drop_tables(self._job_prefix)

    def shape(self, rows: Rows, slice_: Slice) -> Rows:
        """Convert nested columns to JSON, and add the columns that identify the unit."""
        nested = {
            name: F.to_json(column(name), MICROSECOND_FORMATS)
            for name, kind in rows.columns.items()
            if is_nested(kind)
        }
        flat = rows.changed(rows.frame.withColumns(nested)) if nested else rows
        shaped = flat.marked(slice_.identity(self.time_column))
        _check_columns("ms.target.key", self.key, shaped.columns, "the source")
        return shaped

    @contextmanager
    def staging_area(self) -> Iterator[str]:
        """Provide a new prefix for the names of staging tables, which are dropped at the end."""
        prefix = f"{self._job_prefix}{uuid.uuid4().hex[:8]}_"
        try:
            yield prefix
        finally:
            self._drop_tables(prefix)

    def target_columns(self, found: Columns) -> Columns | None:
        """Look up the columns of the table; one that can store the values found gets their type."""
        with temporary_engine(self.url, read_only=True) as engine, engine.begin() as connection:
            return self._accepted(self._declared(connection), found) or None

    def staged_columns(self, fitting: Fit) -> Columns:
        """Choose the columns that the source has; the others get their default in the table."""
        return fitting.written

    def stage_task(self, area: str, slice_: Slice) -> StageTask:
        """Load the rows of a task into a table of its own, or serialize them for SQLite."""
        url = self.url

        def stage(batches: Batches, name: str) -> tuple[int, bytes | None]:
            first = next(batches, None)
            if first is None:
                return 0, None
            rows = chain([first], batches)
            if is_embedded(url):
                payload = serialize_batches(rows)
                return len(payload or b""), payload
            size = 0

            def measured() -> Iterator[pa.RecordBatch]:
                nonlocal size
                for batch in rows:
                    size += batch.nbytes
                    yield batch

            create_loaded_table(url, _staging_name(area, name), first.schema, measured())
            return size, None

        return stage

    def row_check(self) -> Check:
        """Compare values with what the columns of the table accept."""
        schema, name = split_table_name("ms.target.table", self.table)
        limits: dict[str, ColumnLimits] = {}
        with temporary_engine(self.url, read_only=True) as engine, engine.begin() as connection:
            if self._declared(connection):
                limits = table_limits(connection, name, schema)
        # without dead letters, rows without a key get the error that names all columns of the key
        key = self.key if self.on_error == "emit" else ()
        return partial(_rejections, limits=limits, backend=self._backend, key=key)

    def swap(
        self, area: str, staged: Sequence[StagedRows], columns: Columns, slice_: Slice, letters: pa.Table
    ) -> int | None:
        """Replace the slice by the staged rows in one transaction."""
        with temporary_engine(self.url) as engine, engine.begin() as connection:
            lock_table(connection, self.table)
            self._pass_fence(connection)
            if not is_embedded(self.url):  # times without a zone are in the timezone of the job
                local = sql.func.set_config("TimeZone", posix_zone(zone(self.zone)), sql.true())
                connection.execute(sql.select(local))
            declared = self._declared(connection)
            if declared and columns:
                again = fit(columns, self._accepted(declared, columns), self.drift)
                if again.cast:
                    return None
                self._add_columns(connection, {name: columns[name] for name in again.new})
            elif columns:
                self._create(connection, columns, slice_)
                withdraw_completeness(connection, self.table)
            found = joined_letters([])
            if columns or declared:
                tables = self._staging_tables(connection, area, staged, columns)
                if not self.key:
                    self._delete_slice(connection, slice_)
                if tables:
                    found = self._store(connection, tables, columns, self._casts(declared))
                for table in tables:
                    table.drop(connection)
                if (until := self.complete_after(slice_)) is not None:
                    state_completeness(connection, self.identity, self.table, until)
            self._replace_letters(connection, pa.concat_tables([letters, found]), slice_)
            return int(found.num_rows)

    def _replace_letters(self, connection: Connection, letters: pa.Table, slice_: Slice) -> None:
        replace_dead_letters(
            connection,
            pl.DataFrame(pl.from_arrow(letters)),
            target=self.table,
            identity=self.job,
            found_in=LetterRange(slice_.unit.key, slice_.start, slice_.low, slice_.high),
            by_time=self.time_column is not None,
        )

    def _pass_fence(self, connection: Connection) -> None:
        if self.token is not None and not pass_fence(connection, self.job, self.table, self.token):
            raise RunReplaced(self.job)

    # ---- staging tables

    @property
    def _job_prefix(self) -> str:
        """The prefix of the staging tables of this job; a digest, because PostgreSQL allows 63 bytes."""
        digest = hashlib.sha256(f"{self.job}\0{self.table}".encode()).hexdigest()
        return f"{_STAGING_PREFIX}{digest[:12]}_"

    def _drop_tables(self, prefix: str) -> None:
        if not is_embedded(self.url):
            with temporary_engine(self.url) as engine, engine.begin() as connection:
                drop_staging_tables(connection, prefix)

    def _staging_tables(
        self, connection: Connection, area: str, staged: Sequence[StagedRows], columns: Columns
    ) -> list[sql.Table]:
        """The staging tables of all tasks; those of SQLite are created and loaded now."""
        tables = []
        for task in staged:
            table = staging_table(self.url, _staging_name(area, task.name), self._declarations(columns))
            if is_embedded(self.url):
                table.create(connection)
                load_batches(connection, table, deserialize_batches(task.payload))
            tables.append(table)
        return tables

    # ---- the target table

    @property
    def _backend(self) -> str:
        return self.url.get_backend_name()

    def _sql_table(self, *columns: sql.Column[Any]) -> sql.Table:
        schema, name = split_table_name("ms.target.table", self.table)
        return sql.Table(name, sql.MetaData(schema=schema), *columns)

    def _declarations(self, columns: Columns) -> list[sql.Column[Any]]:
        return [
            sql.Column(name, _DeclaredType(column_type(kind, self._backend)))
            for name, kind in columns.items()
        ]

    def _declared(self, connection: Connection) -> dict[str, str]:
        """The columns of the table, with the names that the database gives their types."""
        if is_embedded(self.url):
            _, name = split_table_name("ms.target.table", self.table)
            query = sql.text("SELECT name, type FROM pragma_table_info(:name)")
        else:
            name = quote_table(self.table)
            query = sql.text(
                "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
                "WHERE attrelid = to_regclass(:name) AND attnum > 0 AND NOT attisdropped "
                "AND attgenerated = '' ORDER BY attnum"
            )
        rows = connection.execute(query, {"name": name})
        return {str(row[0]): str(row[1]) for row in rows}

    def _accepted(self, declared: Mapping[str, str], found: Columns) -> dict[str, pa.DataType]:
        return {name: accepted_type(kind, found.get(name), self._backend) for name, kind in declared.items()}

    def _create(self, connection: Connection, columns: Columns, slice_: Slice) -> None:
        table = self._sql_table(*self._declarations(columns))
        times = [self.time_column] if self.time_column else []
        indexed = list(self.key) or [*slice_.identity(self.time_column), *times]
        name = f"{table.name[:40]}_by_{'key' if self.key else 'slice'}"
        sql.Index(name, *(table.c[column] for column in indexed))
        table.create(connection)

    def _add_columns(self, connection: Connection, columns: Columns) -> None:
        if not columns:
            return
        from alembic.migration import MigrationContext  # only here: executors need no migrations
        from alembic.operations import Operations

        table = self._sql_table()
        alter = Operations(MigrationContext.configure(connection))
        for added in self._declarations(columns):
            alter.add_column(table.name, added, schema=table.schema)

    # ---- rows

    def _delete_slice(self, connection: Connection, slice_: Slice) -> None:
        conditions: list[sql.ColumnElement[bool]] = []
        for name, value in slice_.identity(self.time_column).items():
            found: sql.ColumnClause[Any] = sql.column(name)
            conditions.append(found.is_(None) if value is None else found == sql.literal(value))
        if self.time_column is not None:
            at: sql.ColumnClause[Any] = sql.column(self.time_column)
            conditions += [at >= self._bound(slice_.low), at < self._bound(slice_.high)]
        connection.execute(sql.delete(self._sql_table()).where(*conditions))

    def _bound(self, at: int) -> sql.ColumnElement[Any]:
        """A time as text, because a driver would convert a typed parameter to UTC."""
        if self._backend == "postgresql":
            return sql.cast(sql.literal(format_instant(at)), sql.DateTime(timezone=True))
        text = str(time_value(at, self._backend))
        return sql.literal(text if "." in text else f"{text}.000000")

    def _casts(self, declared: Mapping[str, str]) -> _Casts:
        """The columns for which PostgreSQL would not convert text by itself."""
        if is_embedded(self.url):
            return {}
        return {name: _DeclaredType(kind) for name, kind in declared.items() if needs_cast(kind)}

    def _store(
        self, connection: Connection, tables: Sequence[sql.Table], columns: Columns, casts: _Casts
    ) -> pa.Table:
        """Insert or merge the staged rows; returns those that the database rejects as dead letters."""
        selected = [sql.select(*(table.c[name] for name in columns)) for table in tables]
        rows = sql.union_all(*selected).subquery("staged")
        if self.key:
            _check_columns("ms.target.key", self.key, columns, self.table)
            times = [] if self.time_column is None else [self.time_column]
            _check_columns("ms.time.column", times, columns, self.table)
            self._check_key(connection, rows)

        def store(source: sql.FromClause) -> None:
            change = self._merge if self.key else self._insert
            change(connection, source, columns, casts)

        if self.on_error == "fail":
            store(rows)
            return joined_letters([])
        try:
            with connection.begin_nested():
                store(rows)
        except REJECTIONS:
            return self._store_accepted(connection, rows, columns, store)
        return joined_letters([])

    def _store_accepted(
        self,
        connection: Connection,
        rows: sql.Subquery,
        columns: Columns,
        store: Callable[[sql.FromClause], None],
    ) -> pa.Table:
        """Store the rows that the database accepts, and return the others as dead letters."""
        numbered = sql.Table(
            _SEARCHED,
            sql.MetaData(),
            sql.Column(_NUMBER, sql.BigInteger, primary_key=True, autoincrement=False),
            *self._declarations(columns),
            prefixes=["TEMPORARY"],
        )
        numbered.create(connection)
        number = numbered.c[_NUMBER]
        selected = sql.select(sql.func.row_number().over(), *rows.c)
        connection.execute(sql.insert(numbered).from_select([_NUMBER, *columns], selected))
        count = connection.execute(sql.select(sql.func.count()).select_from(numbered)).scalar_one()

        def store_some(first: int, last: int) -> None:
            store(sql.select(numbered).where(number.between(first, last)).subquery("part"))

        reasons = find_rejected(connection, store_some, count, self.table)
        found = sql.select(numbered).where(number.in_(list(reasons))).order_by(number)
        rejected = pl.DataFrame(
            [tuple(row) for row in connection.execute(found)],
            schema=[_NUMBER, *columns],
            orient="row",
            infer_schema_length=None,
        )
        numbered.drop(connection)
        given = pl.Series([reasons[each] for each in rejected[_NUMBER]], dtype=pl.String)
        letters = as_letters(rejected.drop(_NUMBER), given).to_arrow(compat_level=pl.CompatLevel.oldest())
        times = pa.nulls(len(letters), pa.int64())
        if self.time_column is not None and self.time_column in columns:
            column = rejected[self.time_column].to_arrow(compat_level=pl.CompatLevel.oldest())
            times = times_of(column, "UTC" if is_embedded(self.url) else self.zone, self.time_column)
        return letters.append_column("time", times).cast(LETTERS)

    def _insert(self, connection: Connection, rows: sql.FromClause, columns: Columns, casts: _Casts) -> None:
        values = _values(rows, columns, casts)
        target = self._sql_table(*(sql.Column(name) for name in columns))
        chosen = sql.select(*values.values()).select_from(rows)
        connection.execute(sql.insert(target).from_select(list(values), chosen))

    def _merge(self, connection: Connection, rows: sql.FromClause, columns: Columns, casts: _Casts) -> None:
        """Replace rows with the same key by the newest staged row, unless the table has a newer one."""
        times = [] if self.time_column is None else [self.time_column]
        target = self._sql_table(*(sql.Column(name) for name in columns))
        newest_first = [rows.c[name].desc() for name in times]
        latest = latest_rows(rows, list(columns), key=self.key, newest_first=newest_first)
        same = sql.and_(*(latest.c[name] == target.c[name] for name in self.key))
        newer = [sql.or_(target.c[name].is_(None), latest.c[name] >= target.c[name]) for name in times]
        delete_matching(connection, target, latest, sql.and_(same, *newer))
        insert_missing(connection, target, latest, _values(latest, columns, casts), same)

    def _check_key(self, connection: Connection, rows: sql.Subquery) -> None:
        """Reject rows without a key, and without a time column rows with the same key."""
        key = [rows.c[name] for name in self.key]
        some = sql.select(sql.literal(1)).select_from(rows).limit(1)
        if connection.execute(some.where(sql.or_(*(name.is_(None) for name in key)))).first():
            fix = "merge by columns that are never null"
            raise InvalidArgument("ms.target.key", list(self.key), "is null in some rows", fix=fix)
        if self.time_column is None:
            repeated = some.group_by(*key).having(sql.func.count() > 1)
            if connection.execute(repeated).first():
                fix = "add columns to the key, or set ms.time.column to keep the newest row"
                reason = "is the same in several rows"
                raise InvalidArgument("ms.target.key", list(self.key), reason, fix=fix)


def _rejections(
    batch: pa.RecordBatch, *, limits: Mapping[str, ColumnLimits], backend: str, key: Sequence[str]
) -> tuple[pa.Array, pa.Array] | None:
    """The rows that a table cannot store, as a `Check` returns them."""
    frame = pl.DataFrame(pl.from_arrow(batch))
    reasons = rejection_reasons(frame, limits, backend)
    without_key = [
        pl.when(pl.col(name).is_null()).then(pl.lit(f"column {name!r} of ms.target.key is null"))
        for name in key
    ]
    if key and (no_key := frame.select(pl.coalesce(*without_key)).to_series()).null_count() < len(frame):
        reasons = no_key if reasons is None else pl.select(pl.coalesce(reasons, no_key)).to_series()
    if reasons is None:
        return None
    letters = as_letters(frame.filter(reasons.is_not_null()), reasons.drop_nulls())
    return _as_texts(reasons), _as_texts(letters["content"])


def _as_texts(series: pl.Series) -> pa.Array:
    return series.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())


def _staging_name(prefix: str, task: str) -> str:
    return prefix + task[:16]


def _values(source: sql.FromClause, columns: Columns, casts: _Casts) -> dict[str, sql.ColumnElement[Any]]:
    """The staged columns, cast where necessary."""
    return {
        name: sql.cast(source.c[name], casts[name]) if name in casts else source.c[name] for name in columns
    }


def _check_columns(key: str, names: Sequence[str], columns: Columns, where: str) -> None:
    for name in names:
        if name not in columns:
            fix = available(name, columns)
            raise InvalidArgument(key, name, f"column not found in {where}", fix=fix)
