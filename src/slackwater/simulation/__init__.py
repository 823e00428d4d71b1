"""A deterministic simulation of the whole: streams, pipelines and ingestion, under faults, from one seed.

The simulation runs the code of the library itself. It replaces what the library asks of its surroundings:
the clock, sleeping, threads and locks, random ids, the calls that write files, and the connection to the
database. `scheduler` runs one thread at a time and advances the simulated clock, `interposition` replaces the
modules of the standard library, `disk` and `database` inject faults, and each scenario has an oracle that
checks every committed transaction. `runs` runs a seed.
"""

from __future__ import annotations

from slackwater._extras import require_extra

require_extra("ingest", "sqlalchemy", "alembic", "pydantic", "adbc_driver_manager")
