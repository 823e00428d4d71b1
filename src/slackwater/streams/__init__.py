"""Streams: a durable, partitioned log whose writers note event time.

Folders depend on each other in this order: ``segments`` (pure values), ``time`` (noted times and marks),
``log`` (catalog, files, writers, readers), then ``maintenance`` (controllers) and ``spark``.
"""

from __future__ import annotations

from slackwater._extras import require_extra

require_extra("streams", "sqlalchemy", "alembic")
