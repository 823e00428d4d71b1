"""The tables of a pane upsert in the user's database, and whether an existing target table fits.

Three tables take part. The *target* belongs to the user and shows the current result of every key and window.
The *ledger* records the last batch of every query, in the transaction that applies the batch. Rows are
bulk-loaded into the *staging* table before a few statements merge them. A target that does not fit is
rejected before the first row is written, and the error names every wrong column. Rows that the target cannot
store fail their batch, or become *dead letters*.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy import types
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.schema import CreateIndex, CreateTable

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.sql.database import DRIVERS, redacted_url, temporary_engine
from slackwater.sql.dead_letters import OnError, check_on_error, create_dead_letter_table
from slackwater.sql.identifiers import check_identifier, quote_identifier, quote_table, split_table_name
from slackwater.sql.merge import lock_table
from slackwater.sql.pane_targets import Fold, TableDoesNotFit
from slackwater.sql.row_checks import ColumnLimits, table_limits
from slackwater.sql.staging_table import is_embedded, staging_table

WINDOW_COLUMNS: Final = ("window_start", "window_end")
LEDGER: Final = "slackwater_upserts"
"""The name of the ledger, in the schema of the target."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_KINDS: Final[dict[str, types.TypeEngine[Any]]] = {
    "boolean": types.Boolean(),
    "integer": types.Integer(),
    "long": types.BigInteger(),
    "float": types.REAL(),
    "double": types.Double(),
    "text": types.Text(),
    "binary": types.LargeBinary(),
    "date": types.Date(),
    "timestamp": types.DateTime(timezone=True),
    "local timestamp": types.DateTime(),
    "json": types.JSON().with_variant(JSONB(), "postgresql"),
}
_FOLDABLE: Final = {
    "sum": {"integer", "long", "float", "double", "decimal"},
    "min": {"integer", "long", "float", "double", "decimal", "text", "date", "timestamp", "local timestamp"},
    "max": {"integer", "long", "float", "double", "decimal", "text", "date", "timestamp", "local timestamp"},
}


@dataclass(frozen=True, slots=True)
class PaneColumn:
    """A column of the target table: its name and the kind of its values.

    Kinds are ``boolean``, ``integer``, ``long``, ``float``, ``double``, ``decimal(p,s)``, ``text``,
    ``binary``, ``date``, ``timestamp``, ``local timestamp`` and ``json``.

    >>> PaneColumn("price", "decimal(10,2)").family
    'decimal'
    """

    name: str
    kind: str

    @property
    def family(self) -> str:
        """The kind without precision and scale."""
        return self.kind.partition("(")[0]

    @property
    def type(self) -> types.TypeEngine[Any]:
        """The type of the column when the table is created."""
        if numbers := _DECIMAL.fullmatch(self.kind):
            # SQLite has no decimal type; text keeps every digit
            exact = types.Numeric(int(numbers[1]), int(numbers[2]))
            return exact.with_variant(types.Text(), "sqlite")
        return _KINDS[self.kind]

    def problem(self, found: types.TypeEngine[Any], dialect: str) -> str | None:
        """Describe why a column of type ``found`` cannot store these values; None if it can."""
        if self._fits(found, dialect):
            return None
        return f"{self.name} is {found}, needs {self.type.compile(_dialect(dialect))}"

    def _fits(self, found: types.TypeEngine[Any], dialect: str) -> bool:
        match self.family:
            case "boolean":
                return isinstance(found, types.Boolean)
            case "integer":
                narrow = isinstance(found, types.SmallInteger) and dialect != "sqlite"
                return isinstance(found, (types.Integer, types.Numeric)) and not narrow
            case "long":
                wide = isinstance(found, (types.BigInteger, types.Numeric))
                return wide or (dialect == "sqlite" and isinstance(found, types.Integer))
            case "float":
                return isinstance(found, (types.Float, types.Numeric))
            case "double":
                narrow = isinstance(found, types.REAL) and dialect != "sqlite"
                return isinstance(found, (types.Float, types.Numeric)) and not narrow
            case "decimal":
                if dialect == "sqlite":
                    return isinstance(found, types.String)
                return isinstance(found, types.Numeric) and not isinstance(found, types.Float)
            case "text":
                return isinstance(found, types.String)
            case "binary":
                return isinstance(found, types.LargeBinary)
            case "date":
                return isinstance(found, types.Date)
            case "timestamp":
                return isinstance(found, types.DateTime) and (found.timezone or dialect == "sqlite")
            case "local timestamp":
                return isinstance(found, types.DateTime) and not found.timezone
            case _:
                return isinstance(found, types.JSON) or (
                    dialect == "sqlite" and isinstance(found, types.String)
                )


def check_columns(
    identity: Sequence[PaneColumn],
    values: Sequence[PaneColumn],
    fold: Mapping[str, Fold],
    *,
    embedded: bool = False,
) -> None:
    """Raise if a table cannot have these columns, or values cannot be folded.

    Args:
        identity: the columns that identify a row.
        values: the other columns.
        fold: how deltas are folded, by value column; empty if a pane is a full result.
        embedded: whether the table is in SQLite, which would round decimals.

    Raises:
        InvalidArgument: a column occurs twice or does not fit, or a fold is invalid.

    >>> check_columns([PaneColumn("tags", "json")], [], {})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: key = 'tags': is a nested column; key by scalar columns
    """
    names = [column.name for column in (*identity, *values)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidArgument("column", twice[0], "occurs twice", fix="rename the key or the value")
    if not identity:
        raise InvalidArgument(
            "key", (), "is empty and windows=False, so rows cannot be distinguished",
            fix="name the key columns",
        )  # fmt: skip
    for column in identity:
        if column.family == "json":
            raise InvalidArgument("key", column.name, "is a nested column", fix="key by scalar columns")
    for column in values if fold else ():
        how = fold.get(column.name)
        if how is None:
            raise InvalidArgument(
                "fold", dict(fold), f"has no entry for column {column.name}",
                fix=f'add "{column.name}": "sum", "min" or "max"; a value that none of them fits '
                f"(a mean, a list) needs accumulating panes without fold",
            )  # fmt: skip
        if how not in _FOLDABLE:
            raise InvalidArgument("fold", how, "is not a valid fold", fix='write "sum", "min" or "max"')
        rounded = column.family == "decimal" and embedded
        if column.family not in _FOLDABLE[how] or rounded:
            where = " in SQLite, which would round it" if rounded else ""
            raise InvalidArgument(
                "fold", {column.name: how}, f"cannot be applied to {column.kind}{where}",
                fix="use accumulating panes without fold",
            )  # fmt: skip
    if unknown := sorted(fold.keys() - {column.name for column in values}):
        fix = available(unknown[0], (column.name for column in values))
        raise InvalidArgument("fold", unknown[0], "is not a value column", fix=fix)


@dataclass(frozen=True)
class PaneTable:
    """A target table: its address, the columns that identify a row, and how a pane changes a row.

    ``fold`` is empty if a pane carries the full result of its key and window. If panes are deltas, it names
    the fold of every value column. The address is not part of the representation.

    >>> from slackwater.sql.database import database_url
    >>> url = database_url("sqlite:////data/a.db")
    >>> totals = PaneTable(url, "totals", (PaneColumn("auction", "long"),), (PaneColumn("bids", "long"),))
    >>> totals
    PaneTable(name='totals', key=(PaneColumn(name='auction', kind='long'),), \
values=(PaneColumn(name='bids', kind='long'),), windows=True, fold={}, on_error='fail')
    >>> [column.name for column in totals.identity]
    ['auction', 'window_start', 'window_end']
    """

    url: URL = field(repr=False)
    name: str
    """Name of the table, as ``table`` or ``schema.table``."""
    key: tuple[PaneColumn, ...]
    values: tuple[PaneColumn, ...]
    windows: bool = True
    fold: Mapping[str, Fold] = field(default_factory=dict)
    on_error: OnError = "fail"
    """What happens to panes that the table cannot store."""
    existing: Mapping[str, ColumnLimits] = field(default_factory=dict, repr=False)
    """What the columns of the existing table accept, once `prepare` has looked them up."""

    def __post_init__(self) -> None:
        check_on_error(self.on_error)
        split_table_name("table", self.name)
        for part in self.name.split("."):
            check_identifier("table", part)
        for column in self.columns:
            check_identifier("column", column.name)
        check_columns(self.identity, self.values, self.fold, embedded=is_embedded(self.url))

    @property
    def identity(self) -> tuple[PaneColumn, ...]:
        """The columns that identify a row: the key, and the window unless ``windows`` is False."""
        windows = tuple(PaneColumn(name, "timestamp") for name in WINDOW_COLUMNS) if self.windows else ()
        return self.key + windows

    @property
    def columns(self) -> tuple[PaneColumn, ...]:
        """All columns that an upsert writes."""
        return self.identity + self.values

    @property
    def schema(self) -> str | None:
        """The database schema of the table, if the name includes one."""
        return split_table_name("table", self.name)[0]

    @cached_property
    def table(self) -> sql.Table:
        """The target table as it would be created."""
        _, name = split_table_name("table", self.name)
        columns = [sql.Column(column.name, column.type) for column in self.columns]
        # not a primary key: keys may be null
        index = sql.Index(f"{name[:50]}_identity", *(column.name for column in self.identity), unique=True)
        return sql.Table(name, sql.MetaData(schema=self.schema), *columns, index)

    @property
    def limits(self) -> dict[str, ColumnLimits]:
        """What the columns of the table accept."""
        identity = {column.name for column in self.identity}
        return {
            column.name: replace(
                self.existing.get(column.name, ColumnLimits(is_json=column.family == "json")),
                is_identity=column.name in identity,
            )
            for column in self.columns
        }

    @cached_property
    def ledger(self) -> sql.Table:
        """The table with the last applied batch of every identity and target, and the query it belongs to."""
        return sql.Table(
            LEDGER, sql.MetaData(schema=self.schema),
            sql.Column("target", types.Text, primary_key=True),
            sql.Column("identity", types.Text, primary_key=True),
            sql.Column("batch", types.BigInteger, nullable=False),
            # null in rows of releases that did not record the owner
            sql.Column("query", types.Text),
            sql.Column("runs", types.Text),
            sql.Column("rejected", types.BigInteger),
            # microseconds since 1970; null while the completeness is unknown
            sql.Column("complete_until", types.BigInteger),
            sql.Column("final_until", types.BigInteger),
        )  # fmt: skip

    @cached_property
    def staging(self) -> sql.Table:
        """The staging table: ``c0, c1, …`` are the target's columns.

        Its name contains a digest of the columns, so a changed pipeline gets a staging table that fits.
        """
        shape = repr((self.name, self.columns)).encode()
        name = f"slackwater_staging_{hashlib.sha256(shape).hexdigest()[:16]}"
        columns: list[sql.Column[Any]] = [
            sql.Column("identity", types.Text, nullable=False),
            sql.Column("attempt", types.Text, nullable=False),
            sql.Column("position", types.BigInteger, nullable=False),
            sql.Column("nulls", types.Integer, nullable=False),
            sql.Column("pane_index", types.BigInteger),
            sql.Column("retraction", types.Boolean, nullable=False),
            *(sql.Column(f"c{index}", column.type) for index, column in enumerate(self.columns)),
        ]
        return staging_table(self.url, name, columns, schema=self.schema)

    def prepare(self, *, create: bool = False) -> PaneTable:
        """Check that the target table fits, and create the ledger, staging and dead letter tables.

        Args:
            create: create the target table if it does not exist.

        Returns:
            This description with the limits of the table's columns.

        Raises:
            TableDoesNotFit: the table does not exist, or its columns cannot store the panes.
        """
        with temporary_engine(self.url) as engine, engine.begin() as connection:
            lock_table(connection, self.name)
            inspector = sql.inspect(connection)
            if inspector.has_table(self.table.name, schema=self.schema):
                self._check_columns(inspector.get_columns(self.table.name, schema=self.schema))
            elif create:
                self.table.create(connection)
            else:
                raise TableDoesNotFit(
                    "table", self.name, f"does not exist in {redacted_url(self.url)}",
                    fix=f"pass create=True, or create it: {self._definition()}",
                )  # fmt: skip
            connection.execute(CreateTable(self.ledger, if_not_exists=True))
            self._add_owner_columns(connection)
            if not is_embedded(self.url):
                connection.execute(CreateTable(self.staging, if_not_exists=True))
            if self.on_error == "emit":
                create_dead_letter_table(connection, self.schema)
            return replace(self, existing=table_limits(connection, self.table.name, self.schema))

    def _add_owner_columns(self, connection: Connection) -> None:
        """Add the columns that the ledger of an earlier release lacks."""
        found = sql.inspect(connection).get_columns(self.ledger.name, schema=self.schema)
        present = {column["name"] for column in found}
        table = quote_table(self.ledger.fullname)
        # several processes may prepare different targets at once; SQLite has one writer
        unless = "" if is_embedded(self.url) else "IF NOT EXISTS "
        for column in self.ledger.c:
            if column.name not in present:
                kind = column.type.compile(connection.dialect)
                connection.exec_driver_sql(
                    f"ALTER TABLE {table} ADD COLUMN {unless}{quote_identifier(column.name)} {kind}"
                )

    def _definition(self) -> str:
        dialect = _dialect(self.url.get_backend_name())
        statements: list[Any] = [
            CreateTable(self.table),
            *(CreateIndex(index) for index in self.table.indexes),
        ]
        return "; ".join(
            " ".join(str(statement.compile(dialect=dialect)).split()) for statement in statements
        )

    def _check_columns(self, found: list[Any]) -> None:
        existing = {column["name"]: column for column in found}
        dialect = self.url.get_backend_name()
        missing = [
            f"{column.name} ({column.type.compile(_dialect(dialect))})"
            for column in self.columns
            if column.name not in existing
        ]
        wrong = [
            problem
            for column in self.columns
            if column.name in existing and (problem := column.problem(existing[column.name]["type"], dialect))
        ]
        written = {column.name for column in self.columns}
        unfilled = [
            name
            for name, column in existing.items()
            if name not in written and not column["nullable"] and column.get("default") is None
            and not column.get("identity") and not column.get("computed")
        ]  # fmt: skip
        reasons = [
            *([f"lacks {', '.join(missing)}"] if missing else []),
            *([f"has columns of another type: {', '.join(wrong)}"] if wrong else []),
            *([f"has NOT NULL columns that panes do not fill: {', '.join(unfilled)}"] if unfilled else []),
        ]
        if reasons:
            raise TableDoesNotFit(
                "table", self.name, "; it ".join(reasons),
                fix="alter the table, rename keys or values, or name another table",
            )  # fmt: skip


def _dialect(name: str) -> Any:
    return make_url(f"{DRIVERS[name]}://").get_dialect()()
