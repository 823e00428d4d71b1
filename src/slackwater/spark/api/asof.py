"""As-of joins of two streams: each row with the row of the other stream that is closest in time."""

from __future__ import annotations

from dataclasses import replace

from slackwater.errors import InvalidArgument
from slackwater.spark.api.joins import JoinDataflow, check_sides, further_keys, join_dataflow
from slackwater.spark.api.stream_inputs import StreamInputs
from slackwater.windows import AsofSpec
from slackwater.windows.spec.operator_spec import SIDES


def asof_joined(left: StreamInputs, right: StreamInputs, spec: AsofSpec) -> JoinDataflow:
    """Join each row of a stream with the closest one of another; the implementation of `Stream.join_asof`.

    The lateness of rows and the further watermark keys of the left side follow from the streams.
    """
    check_sides(left, right, keyed=bool(spec.on))
    for side, one in zip(SIDES, (left, right), strict=True):
        if one.retracts:
            raise InvalidArgument(
                side,
                one.key,
                "contains retractions, which an as-of join cannot process",
                fix="use the mode accumulating() or discarding() upstream, or a time-bounded join",
            )
    return join_dataflow(
        left,
        right,
        replace(
            spec,
            left_lateness=left.lateness,
            right_lateness=right.lateness,
            left_keys=further_keys(left),
        ),
    )
