"""The stateful processor that runs a bucket in Spark's `transformWithState`, with state in RocksDB.

One map variable contains the small state of the bucket and the large blobs of its windows. A call to the
state store is a round trip to the JVM, so their number depends on the windows that a batch touches, never on
the number of keys. A second variable for the small state would cost as much as all calls together, because
Spark sets up every variable anew in every batch.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own
import polars as pl
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from slackwater.spark.runtime.bucket import BucketOutput, OperatorPlan
from slackwater.spark.runtime.worker_gc import freeze_imports
from slackwater.spark.wire.buffers import NO_HEADER, pack, write_header
from slackwater.spark.wire.row_codec import RowCodec
from slackwater.windows.engine.pieces import Pieces

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

_BYTES: Final = StructType([StructField("bytes", BinaryType())])
_NAME: Final = StructType([StructField("name", StringType())])
STATE_VARIABLE: Final = "bucket"
"""The name of the map variable."""
_SMALL_STATE: Final = ("",)
"""The key of the small state in the map; blobs have names that are not empty."""


class StateBlobs(MutableMapping[str, bytes]):
    """A map variable of Spark's state store, as the blob store of an operator."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def __getitem__(self, name: str) -> bytes:
        found = self._state.getValue((name,))
        if found is None:
            raise KeyError(name)
        return bytes(found[0])

    def __setitem__(self, name: str, blob: bytes) -> None:
        self._state.updateValue((name,), (blob,))

    def __delitem__(self, name: str) -> None:
        self._state.removeKey((name,))

    def __iter__(self) -> Iterator[str]:
        return (str(name) for (name,) in self._state.keys() if (name,) != _SMALL_STATE)  # noqa: SIM118 - no mapping

    def __len__(self) -> int:
        return sum(1 for _ in self)


class BucketProcessor(StatefulProcessor):
    """Runs the plan of an operator for the buckets of a shuffle partition."""

    def __init__(self, plan: OperatorPlan, codec: RowCodec | None = None) -> None:
        self._plan = plan
        self._codec = codec

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variable; Spark also calls this on the driver."""
        self._state = handle.getMapState(STATE_VARIABLE, _NAME, _BYTES)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Process one bucket in one micro-batch; every frame that it yields becomes one Arrow batch."""
        (bucket,) = key
        buffers = [buffer for frame in rows for buffer in zip(frame["header"], frame["payload"], strict=True)]
        # Check before reading, because Spark logs a warning when a missing value is read.
        saved = self._state.getValue(_SMALL_STATE) if self._state.containsKey(_SMALL_STATE) else None
        emitted = Pieces(
            self._plan.pieces(
                int(bucket), None if saved is None else bytes(saved[0]), StateBlobs(self._state), buffers
            )
        )
        for piece in emitted:
            yield self._encoded(int(bucket), piece)
        output = emitted.result
        self._state.updateValue(_SMALL_STATE, (output.state,))
        yield self._encoded(int(bucket), output.rows, output)

    def _encoded(
        self, bucket: int, rows: pl.DataFrame | None, output: BucketOutput | None = None
    ) -> pd.DataFrame:
        """A piece of the rows of a bucket; the last one comes with the rest of the output."""
        report = None if output is None else msgspec.json.encode(output.report).decode()
        if self._codec is not None:
            return self._codec.encode(bucket, report, rows)
        return pd.DataFrame(
            {
                "bucket": pd.Series([bucket], dtype="int32"),
                "header": [NO_HEADER if output is None else write_header(output.header)],
                "payload": [None if rows is None else pack(rows)],
                "report": [report],
            }
        )

    def close(self) -> None:
        """Called by Spark after the last bucket of a task."""
        freeze_imports()
