"""Arrow types of rows in which every value may be null.

Spark marks the fields of a struct as not nullable if no expression can make them null, as in
``struct(array(1) AS list)``. The struct itself may still be null, as in the unmatched rows of a left join.
Arrow stores nulls in the fields of a null struct, and refuses them if the fields are not nullable.
"""

from __future__ import annotations

import pyarrow as pa


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with columns that may be null, and so may all values in them.

    >>> z = pa.field("z", pa.int64(), nullable=False)
    >>> nullable_schema(pa.schema([pa.field("s", pa.struct([z]), nullable=False)]))
    s: struct<z: int64>
      child 0, z: int64
    """
    return pa.schema([_nullable(one) for one in schema], metadata=schema.metadata)


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_type(_nullable_type(field.type)).with_nullable(nullable=True)


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(one) for one in kind.fields])
    if pa.types.is_map(kind):
        key = kind.key_field.with_type(_nullable_type(kind.key_type))
        return pa.map_(key, _nullable(kind.item_field), keys_sorted=kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_nullable(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_nullable(kind.value_field), kind.list_size)
    return kind
