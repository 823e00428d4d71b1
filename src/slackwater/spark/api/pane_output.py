"""How panes leave: as a DataFrame, or folded into a table that shows the current truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.dataflow import Operated
from slackwater.spark.runtime.hosts import ApplyHost
from slackwater.spark.wire.pane_codec import FlatRows, Words
from slackwater.spark.wire.pane_rows import NUMBERS, STRUCTURES, UNBOUNDED, WORDS, PaneReader
from slackwater.windows import Fixed, Global, Inherited, Sliding, Window

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from slackwater.spark.api.upsert import Folding


@dataclass(frozen=True)
class EmittedPanes(Operated):
    """The panes of an operator on their way out; `Panes` are these, and a stream again.

    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> from slackwater.spark.api.stream import stream
    >>> from slackwater.windows import count, fixed
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> windowed = stream(bids, event_time="at", watermark=lag("5 seconds")).window(fixed("10 seconds"))
    >>> windowed.agg(bids=count()).to_df().select("bids").collect()
    [Row(bids=1)]
    """

    schema: StructType
    """Key columns, ``window{start,end}``, values, ``pane{timing, index, …, kind}``."""

    @property
    def watermark_key(self) -> str:
        """The key of the watermark that goes on with the panes: the one that drove the windows."""
        key: str = self.host.options["watermark_key"]
        return key

    @property
    def retracts(self) -> bool:
        """Whether panes are taken back."""
        return self.host.options.get("mode") == "accumulating_and_retracting"

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows that panes are in: that of the operator, or those that it keeps."""
        mine = self.host.options["window"]
        if not isinstance(mine, Inherited):
            return (mine,)
        return tuple(window for source in self.sources for window in source.windows)

    def to_df(self, *, flush: bool = False) -> DataFrame:
        """The panes as a DataFrame: streaming if the input is, else everything fires at once.

        With ``flush`` a streaming query ends: after the rows of the first batch of the run every window
        fires. Rows of a later batch stop the query, and a source that is limited per batch is refused, since
        it has rows left by then: run it to its end without ``flush``, then once more with ``flush`` and
        without the limit. The times of a clock of `Ticks` say which batch is the last; they need neither.
        """
        return self.finished(self.schema, PaneReader(self.schema), self.flat, flush=flush)

    @property
    def flat(self) -> FlatRows | None:
        """How the rows of panes leave as plain columns; None if a value is nested."""
        sizes = {window.size if isinstance(window, Fixed | Sliding) else None for window in self.windows}
        size = sizes.pop()
        lengths = {} if size is None or sizes else {"window_end": ("window_start", size)}
        return FlatRows.of(self.schema, STRUCTURES, UNBOUNDED, self._words, lengths)

    @property
    def _words(self) -> Mapping[str, Words]:
        """What panes can say of themselves; where nothing fires twice, they all have one number."""
        options = self.host.options
        chosen = any(name in options for name in ("trigger", "allowed_lateness", "on_time", "closing"))
        is_once = isinstance(options["window"], Fixed | Sliding) and not chosen
        return {**WORDS, **NUMBERS} if is_once else WORDS

    def upsert_to(
        self,
        url: str,
        table: str,
        *,
        fold: Folding | None = None,
        create: bool = False,
        identity: str | None = None,
        flush: bool = False,
    ) -> DataStreamWriter:
        """A writer that keeps a table of PostgreSQL or SQLite at the current truth; give it a checkpoint.

        One row for each key and window, or for each key where the window is global. See `upsert_to` of
        `slackwater.spark.api.upsert` for ``fold``, ``create`` and ``identity``, and `to_df` for ``flush``.
        """
        from slackwater.spark.api.upsert import upsert_to  # and with it all that databases need

        options = self._upserting(fold, create, identity)
        return upsert_to(self.to_df(flush=flush), url, table, **options)

    def upsert_once(
        self,
        url: str,
        table: str,
        *,
        fold: Folding | None = None,
        create: bool = False,
        identity: str | None = None,
    ) -> None:
        """Fold the panes of a batch into a table; as `upsert_to`, in one transaction."""
        from slackwater.spark.api.upsert import upsert_once

        upsert_once(self.to_df(), url, table, **self._upserting(fold, create, identity))

    def _upserting(self, fold: Folding | None, create: bool, identity: str | None) -> dict[str, Any]:
        how = "apply" if isinstance(self.host, ApplyHost) else self.host.options.get("how", "cogroup")
        if how != "cogroup":
            raise InvalidArgument(
                "how",
                how,
                "gives several rows for a key and window, of which a table would keep the last",
                fix='use agg, or how="cogroup"; or write to_df() elsewhere',
            )
        return {
            "key": self.key,
            "windows": not all(isinstance(window, Global) for window in self.windows),
            "mode": self.host.options.get("mode", "accumulating"),
            "fold": fold,
            "create": create,
            "identity": identity,
        }
