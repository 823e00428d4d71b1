"""The cost of a micro-batch as a sum of terms, fitted by least squares with no negative coefficients.

    seconds = fixed + tasks + (map tasks + rows + groups + windows · buckets + buckets + headers) / p

Each count is multiplied by a coefficient of its own. ``p`` is the number of executors that work at the same
time: at most as many as there are processors. Tasks are scheduled by the driver, one after the other; what
that costs is measured apart, by tasks that do nothing. Map tasks also start their Python function, next to
each other. Groups are the pairs of a key and a window that a batch touches. Windows are those that a bucket
has open. A header is what the progress of a map task to a bucket costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

TERMS: Final = {
    "fixed": "a batch",
    "tasks": "a task that the driver schedules",
    "map_tasks": "a map task on its executor",
    "rows": "a row",
    "groups": "a key and window that the batch touches",
    "windows": "an open window of a bucket",
    "buckets": "a bucket",
    "headers": "a header from a map task to a bucket",
}
"""The terms of the model, and what one unit of each is."""

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """What a micro-batch consists of, and where it runs."""

    rows: int
    groups: int
    """Pairs of a key and a window in the batch."""
    windows: int
    """Open windows."""
    buckets: int
    partitions: int
    """Stateful tasks."""
    map_tasks: int
    """Tasks that read the rows."""
    executors: int
    """Executors of one core."""

    def features(self, processors: int) -> Vector:
        """How often each term of the model counts, on this many processors.

        >>> Shape(100, 10, windows=2, buckets=4, partitions=2, map_tasks=8, executors=2).features(2)
        array([ 1., 10.,  4., 50.,  5.,  4.,  2., 16.])
        """
        parallel = min(self.executors, processors)
        shared = (
            self.map_tasks,
            self.rows,
            self.groups,
            self.windows * self.buckets,
            self.buckets,
            self.map_tasks * self.buckets,
        )
        tasks = self.map_tasks + self.partitions
        return np.array([1.0, tasks, *(count / parallel for count in shared)])


@dataclass(frozen=True)
class Model:
    """Seconds for one unit of each term."""

    coefficients: Mapping[str, float]

    def parts(self, shape: Shape, processors: int) -> dict[str, float]:
        """The seconds of a batch by term."""
        counts = shape.features(processors)
        return {name: self.coefficients[name] * count for name, count in zip(TERMS, counts, strict=True)}

    def seconds(self, shape: Shape, processors: int) -> float:
        """The seconds of a batch.

        >>> model = Model(dict.fromkeys(TERMS, 1.0))
        >>> model.seconds(Shape(4, 2, windows=1, buckets=1, partitions=1, map_tasks=1, executors=1), 2)
        13.0
        """
        return float(sum(self.parts(shape, processors).values()))


def fit(shapes: Sequence[Shape], seconds: Sequence[float], processors: int, *, task: float = 0.0) -> Model:
    """The model whose relative errors have the smallest sum of squares, without negative coefficients.

    Args:
        shapes: The batches that were measured.
        seconds: What each of them took.
        processors: The number of processors of the machine.
        task: The seconds in which the driver schedules a task, which were measured apart.

    >>> shapes = [Shape(n, 1, 1, 1, 1, 1, 1) for n in (1, 2, 3)]
    >>> model = fit(shapes, [1.0, 2.0, 3.0], 1)
    >>> round(model.seconds(Shape(4, 1, 1, 1, 1, 1, 1), 1), 6)
    4.0
    """
    measured = np.array(seconds)
    known = list(TERMS).index("tasks")
    # Dividing by what was measured makes an error of a tenth count the same for short and for long batches.
    matrix = np.array([shape.features(processors) for shape in shapes]) / measured[:, None]
    target = 1 - task * matrix[:, known]
    scale = np.linalg.norm(matrix, axis=0)
    used = [index for index in range(len(TERMS)) if index != known]
    while True:
        solution, *_ = np.linalg.lstsq(matrix[:, used] / scale[used], target, rcond=None)
        if (solution >= 0).all():
            break
        # The measurements do not distinguish the most negative term from the others.
        used.pop(int(np.argmin(solution)))
    found = dict.fromkeys(TERMS, 0.0) | {"tasks": task}
    for index, value in zip(used, solution, strict=True):
        found[list(TERMS)[index]] = float(value / scale[index])
    return Model(found)
