"""Keys of LinkedIn's Data Integration Library that have another name here, for the hints of unknown keys."""

from __future__ import annotations

from typing import Final

DIL_KEYS: Final = {
    "ms.source.uri": "ms.source.url and ms.source.type",
    "ms.jdbc.statement": "ms.source.query",
    "ms.http.request.method": "ms.source.http.method",
    "ms.http.request.headers": "ms.source.http.headers",
    "ms.pagination": "ms.source.http.pagination",
    "ms.session.key.field": "ms.source.http.pagination",
    "ms.authentication": "ms.source.http.authentication",
    "ms.data.field": "ms.source.http.records",
    "ms.output.schema": "ms.schema",
}
"""The name here by the name there; the guide "Moving a DIL job" has the same table."""
