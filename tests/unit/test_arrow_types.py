"""Every value of a nullable schema may be null, in each type that contains other values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from slackwater._arrow_types import nullable_schema

NUMBER = pa.field("item", pa.int64(), nullable=False)
OPTIONAL = NUMBER.with_nullable(True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pa.struct([NUMBER]), pa.struct([OPTIONAL])),
        (pa.list_(NUMBER), pa.list_(OPTIONAL)),
        (pa.large_list(NUMBER), pa.large_list(OPTIONAL)),
        (pa.list_(NUMBER, 3), pa.list_(OPTIONAL, 3)),
        (pa.large_list(pa.list_(NUMBER)), pa.large_list(pa.list_(OPTIONAL))),
        (pa.map_(pa.string(), NUMBER), pa.map_(pa.string(), OPTIONAL)),
        (pa.map_(pa.string(), NUMBER, keys_sorted=True), pa.map_(pa.string(), OPTIONAL, keys_sorted=True)),
    ],
    ids=str,
)
def test_values_inside_others_may_be_null(given: pa.DataType, expected: pa.DataType) -> None:
    (found,) = nullable_schema(pa.schema([pa.field("column", given, nullable=False)]))
    assert found.nullable
    assert found.type == expected
