"""Schema drift: which source columns fit a target, and which are added, cast or rejected."""

from __future__ import annotations

import pyarrow as pa
import pytest

from slackwater.ingest.sources.arrow_types import INSTANTS
from slackwater.ingest.targets.column_types import accepted_type
from slackwater.ingest.targets.schema_drift import SchemaDrift, fit, holds

DECIMAL = pa.decimal128(9, 2)


@pytest.mark.parametrize(
    ("known", "found", "does"),
    [
        (pa.int64(), pa.int8(), True),
        (pa.int8(), pa.int16(), False),
        (pa.float64(), pa.int32(), True),
        (pa.float64(), pa.int64(), False),
        (pa.float32(), pa.float64(), False),
        (pa.float64(), pa.float32(), True),
        (pa.decimal128(19, 0), pa.int64(), True),
        (pa.decimal128(18, 0), pa.int64(), False),
        (pa.decimal128(10, 3), DECIMAL, True),
        (pa.decimal128(10, 4), DECIMAL, False),
        (pa.string(), pa.int64(), False),
        (pa.date32(), pa.null(), True),
        (INSTANTS, pa.timestamp("us"), False),
    ],
)
def test_a_type_holds_another_if_no_value_is_lost(known: pa.DataType, found: pa.DataType, does: bool) -> None:
    assert holds(known, found) is does


def test_each_policy_and_each_kind_of_difference() -> None:
    known = {"id": pa.int64(), "gone": pa.string(), "changed": pa.int64()}
    found = {"changed": pa.string(), "id": pa.int32(), "new": pa.bool_()}
    with pytest.raises(SchemaDrift) as raised:
        fit(found, known, "fail")
    assert (raised.value.new, raised.value.missing) == (["new"], ["gone"])
    assert raised.value.changed == ["changed from int64 to string"]
    with pytest.raises(SchemaDrift):
        fit(found, known, "add")  # nothing that was kept so far is made something else
    del found["changed"]
    added = fit(found, known, "add")
    assert added.all_columns == {**known, "new": pa.bool_()}
    assert (added.new, added.missing, added.cast) == (("new",), ("gone", "changed"), ("id",))
    found["changed"] = pa.string()
    ignored = fit(found, known, "ignore")
    assert (ignored.all_columns, ignored.new, ignored.missing) == (known, (), ("gone",))
    assert ignored.cast == ("id", "changed")
    assert list(ignored.written) == ["id", "changed"]


def test_columns_of_an_existing_table_accept_the_types_that_they_can_store() -> None:
    for declared in ("text", "character varying(9)", "character(9)", "uuid", "jsonb", "inet"):
        assert accepted_type(declared, pa.string(), "postgresql") == pa.string()
    for declared in ("smallint", "integer", "bigint", "numeric", "numeric(9,0)"):
        assert accepted_type(declared, pa.int64(), "postgresql") == pa.int64()
    assert accepted_type("numeric(9,2)", DECIMAL, "postgresql") == DECIMAL
    assert accepted_type("numeric(9,1)", DECIMAL, "postgresql") == pa.decimal128(9, 1)
    assert accepted_type("timestamp(3) with time zone", INSTANTS, "postgresql") == INSTANTS
    assert accepted_type("double precision", DECIMAL, "postgresql") == pa.float64()
    for declared in ("", "NUMERIC", "DATETIME", "VARCHAR(20)"):
        assert accepted_type(declared, INSTANTS, "sqlite") == INSTANTS
    assert accepted_type("BIGINT", pa.bool_(), "sqlite") == pa.bool_()
    assert accepted_type("REAL", pa.string(), "sqlite") == pa.float64()
