"""The metadata store: state shared by several processes, in a SQLite file or on a PostgreSQL server.

`store` opens it and runs transactions, `store_schema` defines its tables, `migrations` upgrade the tables of
earlier versions, and `leases` assign work to one process at a time.
"""

from __future__ import annotations

from slackwater._extras import require_extra

require_extra("sql", "sqlalchemy", "alembic")
