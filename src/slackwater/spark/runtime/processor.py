"""The stateful processor that runs a bucket in Spark's `transformWithState`, with state in RocksDB.

One map variable contains the small state of the bucket and the large blobs of its windows. A call to the
state store is a round trip to the JVM, so their number depends on the windows that a batch touches, never on
the number of keys. A second variable for the small state would cost as much as all calls together, because
Spark sets up every variable anew in every batch.

Whenever a query starts, Spark creates the processor in a new process on the driver as well, which only asks
for its state variables. So this module imports neither Polars nor pandas, and what the workers run is
pickled separately: importing it takes longer than all the rest that this process does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from slackwater.spark.runtime.worker_gc import freeze_imports

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own

    from slackwater.spark.runtime.bucket_task import BucketTask

_BYTES: Final = StructType([StructField("bytes", BinaryType())])
_NAME: Final = StructType([StructField("name", StringType())])
STATE_VARIABLE: Final = "bucket"
"""The name of the map variable."""
_PICKLE: Final = cast(Any, CloudPickleSerializer)()
"""How Spark itself pickles what it sends to its workers."""


class BucketProcessor(StatefulProcessor):
    """Runs the task of an operator for the buckets of a shuffle partition."""

    def __init__(self, task: BucketTask) -> None:
        self._pickled = _PICKLE.dumps(task)
        self._task: BucketTask | None = None

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
        if self._task is None:
            self._task = _PICKLE.loads(self._pickled)
        (bucket,) = key
        return cast("BucketTask", self._task).run(int(bucket), rows, self._state)

    def close(self) -> None:
        """Called by Spark after the last bucket of a task."""
        if self._task is not None:
            self._task.close()
        freeze_imports()
