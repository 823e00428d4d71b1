"""Incremental ingestion by watermark: each run reads only the ranges of units that are missing.

`load_job` loads a job file and `plan` computes what a run reads and why; both need neither Spark nor a
database. The names are imported on first use: a Python worker that reads and writes rows needs none of them,
and validating job files takes longer to import than a small unit takes to read.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from slackwater._extras import require_extra
from slackwater._lazy_exports import lazy_exports

require_extra("ingest", "sqlalchemy", "alembic", "pydantic")

if TYPE_CHECKING:
    from slackwater.ingest.job_errors import InvalidJob as InvalidJob
    from slackwater.ingest.job_errors import Problem as Problem
    from slackwater.ingest.job_errors import TooFewUnits as TooFewUnits
    from slackwater.ingest.jobfile.job import Job as Job
    from slackwater.ingest.jobfile.job import load_job as load_job
    from slackwater.ingest.jobfile.job import parse_job as parse_job
    from slackwater.ingest.plan.history import History as History
    from slackwater.ingest.plan.planner import Plan as Plan
    from slackwater.ingest.plan.planner import SkippedUnit as SkippedUnit
    from slackwater.ingest.plan.planner import WorkUnit as WorkUnit
    from slackwater.ingest.plan.planner import plan as plan
    from slackwater.ingest.units import WHOLE as WHOLE
    from slackwater.ingest.units import Unit as Unit
    from slackwater.ingest.units import unit_of as unit_of
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__)

    class _Package(ModuleType):
        """Keeps ``plan`` the function, although the import system sets it to the package of that name."""

        @property
        def plan(self) -> Any:
            return __getattr__("plan")

        @plan.setter
        def plan(self, value: Any) -> None:
            pass

    sys.modules[__name__].__class__ = _Package
