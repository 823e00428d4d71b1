"""Incremental ingestion by watermark: each run reads only the ranges of units that are missing.

`load_job` loads a job file and `plan` computes what a run reads and why; both need neither Spark nor a
database.
"""

from __future__ import annotations

from slackwater.ingest.job_errors import InvalidJob, Problem, TooFewUnits
from slackwater.ingest.jobfile.job import Job, load_job, parse_job
from slackwater.ingest.plan.history import History
from slackwater.ingest.plan.planner import Plan, SkippedUnit, WorkUnit, plan
from slackwater.ingest.units import WHOLE, Unit, unit_of

__all__ = [
    "WHOLE",
    "History",
    "InvalidJob",
    "Job",
    "Plan",
    "Problem",
    "SkippedUnit",
    "TooFewUnits",
    "Unit",
    "WorkUnit",
    "load_job",
    "parse_job",
    "plan",
    "unit_of",
]
