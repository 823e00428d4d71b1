"""The tables an upsert needs in the user's database, and whether the one that is there fits.

Three tables take part: the *target*, which belongs to the user and shows the current truth; the *ledger*,
which remembers the last batch of every query, in the same transaction that applies it; and the *staging*
table, into which a batch is loaded in bulk before a few statements fold it. A target that does not fit is
found before the first row is written, with every wrong column named at once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import sqlalchemy as sql
from sqlalchemy import types
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateIndex, CreateTable

from slackwater.errors import InvalidArgument
from slackwater.sql.database import DRIVERS, engine_of, shown

Fold = Literal["sum", "min", "max"]
"""How a delta is folded into the value that stands."""

WINDOW_COLUMNS: Final = ("window_start", "window_end")
_LEDGER: Final = "slackwater_upserts"
_LONGEST_NAME: Final = 63
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


class TableDoesNotFit(InvalidArgument):
    """The target table is missing, or its columns cannot hold the panes."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the target: its name, and the kind of its values.

    Kinds are ``boolean``, ``integer``, ``long``, ``float``, ``double``, ``decimal(p,s)``, ``text``,
    ``binary``, ``date``, ``timestamp``, ``local timestamp`` and ``json``.

    >>> Column("price", "decimal(10,2)").family
    'decimal'
    """

    name: str
    kind: str

    @property
    def family(self) -> str:
        """The kind without its numbers."""
        return self.kind.partition("(")[0]

    @property
    def type(self) -> types.TypeEngine[Any]:
        """The type of the column in a database."""
        if numbers := _DECIMAL.fullmatch(self.kind):
            # SQLite has no decimals; text keeps every digit
            exact = types.Numeric(int(numbers[1]), int(numbers[2]))
            return exact.with_variant(types.Text(), "sqlite")
        return _KINDS[self.kind]

    def problem(self, found: types.TypeEngine[Any], dialect: str) -> str | None:
        """Why a column of type ``found`` cannot hold these values, or None."""
        holds = self._holds(found, dialect)
        return None if holds else f"{self.name} is {found}, needs {self.type.compile(_dialect(dialect))}"

    def _holds(self, found: types.TypeEngine[Any], dialect: str) -> bool:
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


@dataclass(frozen=True)
class Target:
    """Which table is kept, by which columns a row is known, and how a pane changes it.

    ``fold`` is empty where a pane states the whole truth of its key and window; it has every value column
    where a pane is a delta. The address is never part of the representation.

    >>> from slackwater.sql.database import database
    >>> url = database("sqlite:////data/a.db")
    >>> target = Target(url, "totals", (Column("auction", "long"),), (Column("bids", "long"),))
    >>> target
    Target(table='totals', key=(Column(name='auction', kind='long'),), \
values=(Column(name='bids', kind='long'),), windows=True, fold={})
    >>> [column.name for column in target.identity]
    ['auction', 'window_start', 'window_end']
    """

    url: URL = field(repr=False)
    table: str
    key: tuple[Column, ...]
    values: tuple[Column, ...]
    windows: bool = True
    fold: Mapping[str, Fold] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in self.table.split("."):
            _check_name("table", part)
        if self.table.count(".") > 1:
            raise InvalidArgument("table", self.table, "has more than one dot", fix="write schema.table")
        names = [column.name for column in self.columns]
        for name in names:
            _check_name("column", name)
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidArgument("column", twice[0], "is used twice", fix="rename the key or the value")
        if not self.identity:
            raise InvalidArgument(
                "key", (), "and no windows: nothing tells rows apart", fix="name the key columns"
            )
        for column in self.key:
            if column.family == "json":
                raise InvalidArgument("key", column.name, "is nested", fix="key by plain columns")
        self._check_fold()

    def _check_fold(self) -> None:
        if not self.fold:
            return
        for column in self.values:
            how = self.fold.get(column.name)
            if how is None:
                raise InvalidArgument(
                    "fold", dict(self.fold), f"does not say how {column.name} is folded",
                    fix=f'add "{column.name}": "sum", "min" or "max"; a value that none of them fits '
                    f"(a mean, a list) needs accumulating panes and no fold",
                )  # fmt: skip
            if how not in _FOLDABLE:
                raise InvalidArgument("fold", how, "is not a way to fold", fix='write "sum", "min" or "max"')
            exact = column.family == "decimal" and self.url.get_backend_name() == "sqlite"
            if column.family not in _FOLDABLE[how] or exact:
                where = " in SQLite, which would round it" if exact else ""
                raise InvalidArgument(
                    "fold", {column.name: how}, f"cannot be applied to {column.kind}{where}",
                    fix="use accumulating panes and no fold",
                )  # fmt: skip
        if unknown := sorted(self.fold.keys() - {column.name for column in self.values}):
            known = ", ".join(column.name for column in self.values)
            raise InvalidArgument("fold", unknown[0], "is not a value column", fix=f"the values are {known}")

    @property
    def identity(self) -> tuple[Column, ...]:
        """The columns that tell rows apart: the key, and the window if it is kept."""
        windows = tuple(Column(name, "timestamp") for name in WINDOW_COLUMNS) if self.windows else ()
        return self.key + windows

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns of the target that are written."""
        return self.identity + self.values

    @property
    def schema(self) -> str | None:
        """The database schema of the target, if it is named."""
        return self.table.split(".")[0] if "." in self.table else None

    @cached_property
    def target(self) -> sql.Table:
        """The target as it would be created."""
        name = self.table.split(".")[-1]
        columns = [sql.Column(column.name, column.type) for column in self.columns]
        # not a primary key: keys may be null
        index = sql.Index(f"{name[:50]}_identity", *(column.name for column in self.identity), unique=True)
        return sql.Table(name, sql.MetaData(schema=self.schema), *columns, index)

    @cached_property
    def ledger(self) -> sql.Table:
        """The last batch of every query, for every target."""
        return sql.Table(
            _LEDGER, sql.MetaData(schema=self.schema),
            sql.Column("target", types.Text, primary_key=True),
            sql.Column("identity", types.Text, primary_key=True),
            sql.Column("batch", types.BigInteger, nullable=False),
        )  # fmt: skip

    @cached_property
    def staging(self) -> sql.Table:
        """Where rows wait to be folded: ``c0, c1, …`` are the target's columns.

        In PostgreSQL many tasks fill it before the driver folds it, so it is a real table, but without a log:
        what a crash takes from it is loaded again. Its name holds a digest of the shape, so that a changed
        pipeline finds a staging table that fits. SQLite's lives and dies with the connection.
        """
        shape = repr((self.table, self.columns)).encode()
        name = f"slackwater_staging_{hashlib.sha256(shape).hexdigest()[:16]}"
        embedded = self.url.get_backend_name() == "sqlite"
        return sql.Table(
            name, sql.MetaData(schema=None if embedded else self.schema),
            sql.Column("identity", types.Text, nullable=False),
            sql.Column("attempt", types.Text, nullable=False),
            sql.Column("position", types.BigInteger, nullable=False),
            sql.Column("nulls", types.Integer, nullable=False),
            sql.Column("pane_index", types.BigInteger),
            sql.Column("retraction", types.Boolean, nullable=False),
            *(sql.Column(f"c{place}", column.type) for place, column in enumerate(self.columns)),
            prefixes=["TEMPORARY" if embedded else "UNLOGGED"],
        )  # fmt: skip

    def prepare(self, *, create: bool = False) -> None:
        """Makes sure that the target is there and fits, and that the other two tables exist."""
        with connected(self.url) as engine, engine.begin() as connection:
            lock(connection, self.table)
            inspector = sql.inspect(connection)
            if inspector.has_table(self.target.name, schema=self.schema):
                self._check_columns(inspector.get_columns(self.target.name, schema=self.schema))
            elif create:
                self.target.create(connection)
            else:
                raise TableDoesNotFit(
                    "table", self.table, f"does not exist in {shown(self.url)}",
                    fix=f"pass create=True, or create it: {self._definition()}",
                )  # fmt: skip
            connection.execute(CreateTable(self.ledger, if_not_exists=True))
            if self.url.get_backend_name() != "sqlite":
                connection.execute(CreateTable(self.staging, if_not_exists=True))

    def _definition(self) -> str:
        dialect = _dialect(self.url.get_backend_name())
        statements: list[Any] = [
            CreateTable(self.target),
            *(CreateIndex(index) for index in self.target.indexes),
        ]
        return "; ".join(" ".join(str(one.compile(dialect=dialect)).split()) for one in statements)

    def _check_columns(self, found: list[Any]) -> None:
        there = {column["name"]: column for column in found}
        dialect = self.url.get_backend_name()
        missing = [
            f"{column.name} ({column.type.compile(_dialect(dialect))})"
            for column in self.columns
            if column.name not in there
        ]
        wrong = [
            problem
            for column in self.columns
            if column.name in there and (problem := column.problem(there[column.name]["type"], dialect))
        ]
        written = {column.name for column in self.columns}
        unfilled = [
            name
            for name, column in there.items()
            if name not in written and not column["nullable"] and column.get("default") is None
            and not column.get("identity") and not column.get("computed")
        ]  # fmt: skip
        reasons = [
            *([f"lacks {', '.join(missing)}"] if missing else []),
            *([f"has columns of another type: {', '.join(wrong)}"] if wrong else []),
            *([f"needs values that panes do not have: {', '.join(unfilled)}"] if unfilled else []),
        ]
        if reasons:
            raise TableDoesNotFit(
                "table", self.table, "; it ".join(reasons),
                fix="alter it, rename keys or values, or name another table",
            )  # fmt: skip


@contextmanager
def connected(url: URL) -> Iterator[Engine]:
    """An engine for one piece of work: no connection outlives it, and no parameter is ever shown.

    >>> from slackwater.sql.database import database
    >>> with connected(database("sqlite:////dev/null")) as engine:
    ...     engine.hide_parameters
    True
    """
    # rows whose whole key is null are matched without naming the batch's columns, which looks like a slip
    engine = engine_of(url, poolclass=NullPool, enable_from_linting=False)
    try:
        yield engine
    finally:
        engine.dispose()


def lock(connection: Connection, table: str) -> None:
    """Waits until no other transaction folds into ``table``, and keeps them out until this one ends.

    SQLite has one writer at a time anyway.

    >>> from slackwater.sql.database import database
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, connected(database(f"sqlite:///{folder}/a.db")) as engine:
    ...     with engine.begin() as connection:
    ...         lock(connection, "totals")
    """
    if connection.dialect.name == "postgresql":
        number = sql.func.hashtextextended(f"slackwater {table}", 0)
        connection.execute(sql.select(sql.func.pg_advisory_xact_lock(number)))


def _dialect(name: str) -> Any:
    return make_url(f"{DRIVERS[name]}://").get_dialect()()


def _check_name(what: str, name: str) -> None:
    if not name.isidentifier() or len(name.encode()) > _LONGEST_NAME:
        raise InvalidArgument(
            what, name, f"is not a plain name of at most {_LONGEST_NAME} bytes",
            fix="use letters, digits and underscores",
        )  # fmt: skip
