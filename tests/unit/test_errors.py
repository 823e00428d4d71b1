"""Errors have attributes, and keep them when they are pickled."""

from __future__ import annotations

import pickle

import pytest

from slackwater.errors import (
    AfterDone,
    AsyncItemFailed,
    CorruptState,
    FunctionFailed,
    InvalidArgument,
    InvalidDuration,
    SequenceConflict,
    SlackwaterError,
    SumOverflow,
    UnknownSource,
    UnsupportedStateVersion,
    WatermarkRegression,
)

EXAMPLES: list[SlackwaterError] = [
    InvalidArgument("size", 0, "must be greater than zero", fix="write more"),
    InvalidDuration("gap", "x", "cannot be read"),
    WatermarkRegression("input 1", "order_time", 500, 499),
    AfterDone("origin 'a'", "IDLE"),
    UnknownSource("origin 'x'", range(20), fix="declare it"),
    SequenceConflict("a", 3, 2, "is greater than the last chunk, 1"),
    CorruptState("coalescer", "it has only 3 bytes"),
    UnsupportedStateVersion("coalescer", 9, (1,)),
    AsyncItemFailed(4711, 3, "timed out"),
    FunctionFailed("spread() failed"),
    SumOverflow({"total": "price"}, 3),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_keep_their_attributes_when_pickled(error: SlackwaterError) -> None:
    there = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(there) is type(error)
    assert str(there) == str(error)
    assert vars(there) == vars(error)


def test_a_regression_names_input_key_and_both_values() -> None:
    error = WatermarkRegression("input 'orders'", "order_time", 500, 499)
    for part in ("input 'orders'", "'order_time'", "500", "499"):
        assert part in str(error)
    assert (error.source, error.key, error.previous, error.value) == (
        "input 'orders'",
        "order_time",
        500,
        499,
    )


def test_the_message_distinguishes_equal_from_lower_watermarks() -> None:
    assert "equals" in str(WatermarkRegression("input 0", "default", 5, 5))
    assert "is lower than the previous watermark 5" in str(WatermarkRegression("input 0", "default", 5, 4))


def test_a_long_list_of_known_names_is_truncated() -> None:
    assert "and 10 more" in str(UnknownSource("origin 'x'", range(20), fix="declare it"))


def test_invalid_arguments_are_value_errors_too() -> None:
    with pytest.raises(ValueError, match="size = 0"):
        raise EXAMPLES[0]
