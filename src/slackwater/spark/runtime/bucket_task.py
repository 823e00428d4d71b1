"""One bucket in one micro-batch: from the rows that Spark passes to the rows that it gets back."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own

from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.local_copies import worker_copies
from slackwater.spark.runtime.task_output import TaskOutput
from slackwater.windows.engine.pieces import Pieces

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

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


@dataclass(frozen=True)
class BucketTask:
    """The plan of an operator, and where its output goes."""

    plan: OperatorPlan
    output: TaskOutput

    def run(self, bucket: int, rows: Iterator[pd.DataFrame], state: MapState) -> Iterator[pd.DataFrame]:
        """Process one bucket in one micro-batch; every frame that it yields becomes one Arrow batch."""
        with self._aborting():
            yield from self._frames(bucket, rows, state)

    def close(self) -> None:
        """Called after the last bucket of a task."""
        with self._aborting():
            self.output.close()

    def _frames(self, bucket: int, rows: Iterator[pd.DataFrame], state: MapState) -> Iterator[pd.DataFrame]:
        buffers = [buffer for frame in rows for buffer in zip(frame["header"], frame["payload"], strict=True)]
        # Check before reading, because Spark logs a warning when a missing value is read.
        saved = state.getValue(_SMALL_STATE) if state.containsKey(_SMALL_STATE) else None
        before = None if saved is None else bytes(saved[0])
        emitted = Pieces(self.plan.pieces(bucket, before, StateBlobs(state), buffers, worker_copies()))
        for piece in emitted:
            frame = self.output.encode(bucket, piece, None)
            if frame is not None:
                yield frame
        result = emitted.result
        state.updateValue(_SMALL_STATE, (result.state,))
        frame = self.output.encode(bucket, result.rows, result)
        if frame is not None:
            yield frame

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        """Abort the output if the task fails."""
        try:
            yield
        except Exception:
            self.output.abort()
            raise
