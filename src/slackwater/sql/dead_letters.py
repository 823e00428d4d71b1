"""Dead letters: rows that a table cannot store, kept in a table of their own with the reason.

The table ``slackwater_dead_letters`` is in the database and the schema of the target. A dead letter is stored
in the transaction that stores the other rows of its batch, so that it is stored exactly once. The row is kept
as JSON text, in which every character has a form that every database stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal

import polars as pl
import sqlalchemy as sql
from sqlalchemy import types
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from slackwater.errors import InvalidArgument, SlackwaterError
from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.identifiers import split_table_name
from slackwater.sql.letters import as_letters
from slackwater.sql.merge import lock_table
from slackwater.sql.row_checks import ColumnLimits, rejection_reasons
from slackwater.sql.staging_table import load_batches

OnError = Literal["fail", "emit"]
"""What happens to rows that a table cannot store: they fail the batch, or become dead letters."""

DEAD_LETTERS: Final = "slackwater_dead_letters"
_MOST_SEARCHED: Final = 1_000
"""The maximum number of rows that are searched for after the database has rejected some."""
REJECTIONS: Final = (IntegrityError, DataError)
"""The errors with which a database rejects a row, as opposed to errors of the connection."""


class RowsRejected(SlackwaterError):
    """Rows cannot be stored in a table."""

    def __init__(self, table: str, rows: int, reason: str) -> None:
        self.table = table
        self.rows = rows
        self.reason = reason
        counted = "1 row" if rows == 1 else f"{rows} rows"
        super().__init__(
            f"table {table} cannot store {counted}: {reason}; change such rows before the sink, or pass "
            f'on_error="emit" to put them into the table {DEAD_LETTERS}'
        )


def check_on_error(value: str) -> None:
    """Reject a value that is not one of `OnError`.

    >>> check_on_error("drop")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: on_error = 'drop': is not a valid choice; use one of fail, emit
    """
    if value not in ("fail", "emit"):
        raise InvalidArgument("on_error", value, "is not a valid choice", fix="use one of fail, emit")


def dead_letter_table(schema: str | None = None) -> sql.Table:
    """Describe the table of dead letters in a schema.

    >>> dead_letter_table().c.keys()
    ['target', 'identity', 'batch', 'unit', 'partition', 'low', 'high', 'time', 'reason', 'content', 'at']
    """
    return sql.Table(
        DEAD_LETTERS, sql.MetaData(schema=schema),
        sql.Column("target", types.Text, nullable=False),
        sql.Column("identity", types.Text, nullable=False),
        sql.Column("batch", types.BigInteger),
        sql.Column("unit", types.Text),
        *(sql.Column(name, types.BigInteger) for name in ("partition", "low", "high", "time")),
        sql.Column("reason", types.Text, nullable=False),
        sql.Column("content", types.Text, nullable=False),
        sql.Column("at", types.DateTime(timezone=True), server_default=sql.func.current_timestamp()),
        sql.Index(f"{DEAD_LETTERS}_by_target", "target", "identity"),
    )  # fmt: skip


def create_dead_letter_table(connection: Connection, schema: str | None = None) -> None:
    """Create the table of dead letters unless it exists.

    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     for _ in range(2):
    ...         create_dead_letter_table(connection)
    """
    table = dead_letter_table(schema)
    connection.execute(sql.schema.CreateTable(table, if_not_exists=True))
    for index in table.indexes:
        connection.execute(sql.schema.CreateIndex(index, if_not_exists=True))


def split_rejected(
    frame: pl.DataFrame, limits: Mapping[str, ColumnLimits], backend: str
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    r"""Split rows into those that a table can store and dead letters.

    Args:
        frame: The rows.
        limits: The limits of the table's columns; see `table_limits`.
        backend: ``postgresql`` or ``sqlite``.

    Returns:
        The accepted rows, and the dead letters with the columns ``reason`` and ``content``, or None if all
        rows are accepted.

    >>> rows = pl.DataFrame({"name": ["a", "b\0"], "price": [1, 2]})
    >>> accepted, letters = split_rejected(rows, {}, "postgresql")
    >>> accepted.rows(), letters["content"].to_list()
    ([('a', 1)], ['{"name":"b\\u0000","price":2}'])
    """
    reasons = rejection_reasons(frame, limits, backend)
    if reasons is None:
        return frame, None
    rejected = reasons.is_not_null()
    return frame.filter(~rejected), as_letters(frame.filter(rejected), reasons.drop_nulls())


@dataclass(frozen=True, slots=True)
class LetterRange:
    """What a job read when it found dead letters: the unit, its partition, and the range ``[low, high)``.

    >>> LetterRange("{}", 0, 5, 10).high
    10
    """

    unit: str
    partition: int
    low: int
    high: int


def record_dead_letters(
    connection: Connection,
    letters: pl.DataFrame,
    *,
    target: str,
    identity: str,
    batch: int | None = None,
    found_in: LetterRange | None = None,
) -> None:
    """Store dead letters in the transaction of ``connection``.

    Args:
        connection: A connection with an open transaction.
        letters: The letters, as `split_rejected` or `as_letters` returns them.
        target: The table that rejected the rows, as ``table`` or ``schema.table``.
        identity: The query or the job that wrote them.
        batch: The number of the batch, if there is one.
        found_in: What a job read; ``letters`` may then have a column ``time``.

    >>> letters = as_letters(pl.DataFrame({"price": [1]}), pl.Series(["is negative"]))
    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     create_dead_letter_table(connection)
    ...     record_dead_letters(connection, letters, target="orders", identity="job")
    ...     connection.exec_driver_sql("SELECT target, reason, content FROM slackwater_dead_letters").all()
    [('orders', 'is negative', '{"price":1}')]
    """
    rows = letters.select(
        pl.lit(target).alias("target"),
        pl.lit(identity).alias("identity"),
        pl.lit(batch, pl.Int64).alias("batch"),
        *(
            []
            if found_in is None
            else [pl.lit(value).alias(name) for name, value in asdict(found_in).items()]
        ),
        *(["time"] if "time" in letters.columns else []),
        "reason",
        "content",
    )
    table = dead_letter_table(split_table_name("table", target)[0])
    load_batches(connection, table, rows.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches())


def replace_dead_letters(
    connection: Connection,
    letters: pl.DataFrame,
    *,
    target: str,
    identity: str,
    found_in: LetterRange,
    by_time: bool,
) -> None:
    """Store the dead letters of a range that a job has read, instead of those of earlier reads.

    Args:
        connection: A connection with an open transaction.
        letters: The letters, with a column ``time``: the event time in microseconds, null if it is unknown.
        target: The table that rejected the rows.
        identity: The job.
        found_in: What the job has read.
        by_time: Whether the job reads ranges by time; otherwise it reads whole partitions.

    >>> letters = pl.DataFrame({"reason": ["is negative"], "content": ["{}"], "time": [7]})
    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     for low in (0, 5):
    ...         found = LetterRange("{}", 0, low, 10)
    ...         replace_dead_letters(
    ...             connection, letters, target="orders", identity="job", found_in=found, by_time=True
    ...         )
    ...     connection.exec_driver_sql("SELECT low, high, time FROM slackwater_dead_letters").all()
    [(5, 10, 7)]
    """
    table = dead_letter_table(split_table_name("table", target)[0])
    if letters.is_empty() and not sql.inspect(connection).has_table(table.name, schema=table.schema):
        return
    lock_table(connection, DEAD_LETTERS)
    create_dead_letter_table(connection, table.schema)
    mine = (table.c.target == target, table.c.identity == identity, table.c.unit == found_in.unit)
    if not by_time:
        connection.execute(table.delete().where(*mine, table.c.partition == found_in.partition))
    else:
        timed = table.c.time.is_not(None)
        again = (table.c.time >= found_in.low, table.c.time < found_in.high)
        within = (table.c.low >= found_in.low, table.c.high <= found_in.high)
        connection.execute(table.delete().where(*mine, timed, *again))
        connection.execute(table.delete().where(*mine, ~timed, *within))
        known = connection.execute(sql.select(table.c.content).where(*mine, ~timed)).scalars().all()
        letters = letters.filter(pl.col("time").is_not_null() | ~pl.col("content").is_in(known))
    if not letters.is_empty():
        record_dead_letters(connection, letters, target=target, identity=identity, found_in=found_in)


def find_rejected(
    connection: Connection, store: Callable[[int, int], object], count: int, table: str
) -> dict[int, str]:
    """Store numbered rows, and find those that the database rejects.

    Args:
        connection: A connection with an open transaction.
        store: Stores the rows from one number to another one, both included.
        count: The number of rows; the first one has the number 1.
        table: The name of the table, for errors.

    Returns:
        The reason for each number of a rejected row; all other rows are stored.

    Raises:
        RowsRejected: The database rejects more rows than can be found one by one.

    >>> engine = sql.create_engine("sqlite://")
    >>> with engine.begin() as connection:
    ...     _ = connection.exec_driver_sql("CREATE TABLE t (a CHECK (a <> 2))")
    ...
    ...     def store(first, last):
    ...         for number in range(first, last + 1):
    ...             connection.exec_driver_sql("INSERT INTO t VALUES (?)", (number,))
    ...
    ...     find_rejected(connection, store, 3, "t")
    {2: 'CHECK constraint failed: a <> 2'}
    """
    reasons: dict[int, str] = {}

    def search(first: int, last: int) -> None:
        try:
            with connection.begin_nested():
                store(first, last)
        except REJECTIONS as error:
            if first < last:
                middle = (first + last) // 2
                search(first, middle)
                search(middle + 1, last)
                return
            reasons[first] = rejection_text(error)
            if len(reasons) > _MOST_SEARCHED:
                raise RowsRejected(table, len(reasons), rejection_text(error)) from error

    if count:
        search(1, count)
    return reasons


def rejection_text(error: DBAPIError) -> str:
    """The message with which a database rejected a row, without the values that the row contains."""
    diagnosis = getattr(error.orig, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    return str(primary or error.orig)


def dead_letters(url: str, table: str) -> pl.DataFrame:
    """Read the rows that a table could not store.

    Args:
        url: The database, as in `upsert_to`.
        table: The table, as in `upsert_to`.

    Returns:
        A Polars DataFrame with the columns ``identity`` (the query or job), ``batch`` (of a query), ``unit``,
        ``low`` and ``high`` (the range that a job has read), ``reason``, ``content`` (the row as JSON) and
        ``at``; empty if there are none.

    Raises:
        InvalidArgument: The address is not valid.

    >>> import slackwater as sw
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     sw.dead_letters(f"sqlite:///{folder}/shop.db", "orders").height
    0
    """
    letters = dead_letter_table(split_table_name("table", table)[0])
    columns = [column for column in letters.c if column.name not in ("target", "partition", "time")]
    with temporary_engine(database_url(url), read_only=True) as engine, engine.begin() as connection:
        if not sql.inspect(connection).has_table(letters.name, schema=letters.schema):
            found = []
        else:
            chosen = sql.select(*columns).where(letters.c.target == table).order_by(letters.c.at)
            found = [tuple(row) for row in connection.execute(chosen)]
    schema = {
        "identity": pl.String, "batch": pl.Int64, "unit": pl.String, "low": pl.Int64, "high": pl.Int64,
        "reason": pl.String, "content": pl.String, "at": pl.Datetime,
    }  # fmt: skip
    frame = pl.DataFrame(found, schema=schema, orient="row")
    return frame.with_columns(pl.col("low", "high").cast(pl.Datetime("us", "UTC")))
