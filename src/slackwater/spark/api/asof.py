"""As-of joins of two streams: each row with the row of the other stream that is closest in time."""

from __future__ import annotations

from dataclasses import replace

from slackwater.spark.api.dataflow import Keep
from slackwater.spark.api.joins import JoinDataflow, check_sides, further_keys, join_dataflow
from slackwater.spark.api.stream_inputs import StreamInputs
from slackwater.spark.wire.wire_columns import RETRACTION
from slackwater.windows import AsofSpec


def asof_joined(
    left: StreamInputs, right: StreamInputs, spec: AsofSpec, *, invalid: Keep = "count"
) -> JoinDataflow:
    """Join each row of a stream with the closest one of another; the implementation of `Stream.join_asof`.

    Retractions, the lateness of rows and the further watermark keys of the left side follow from the streams.
    """
    check_sides(left, right, keyed=bool(spec.on))
    return join_dataflow(
        left,
        right,
        replace(
            spec,
            left_retractions=RETRACTION if left.retracts else None,
            right_retractions=RETRACTION if right.retracts else None,
            left_lateness=left.lateness,
            right_lateness=right.lateness,
            left_keys=further_keys(left),
        ),
        invalid=invalid,
    )
