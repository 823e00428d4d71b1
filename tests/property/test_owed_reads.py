"""Runs whose reads fail or die anywhere: each such read is repeated over its whole range."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.ingest import WorkUnit, parse_job
from slackwater.ingest.runner import run_job
from slackwater.metadata.store import open_store
from slackwater.time import DAY, HOUR, instant
from tests.stores import new_store
from tests.support.unit_reads import Died, ScriptedReads

START = instant("2020-01-01T00:00:00Z")
KINDS = ("none", "daily", "weekly")
Runs = list[tuple[int, list[str]]]


def unfinished(reads: list[WorkUnit], good: list[WorkUnit]) -> list[WorkUnit]:
    """The reads that no good read of the same partition covers."""
    return [
        bad
        for bad in reads
        if not any(one.start == bad.start and one.low <= bad.low and one.high >= bad.high for one in good)
    ]


@settings(max_examples=min(30, settings.get_profile(settings.get_current_profile_name()).max_examples))
@given(
    kind=st.sampled_from(KINDS),
    grace=st.sampled_from([0, 10, 40]),
    abstinent=st.sampled_from([0, 5, 60]),
    mode=st.sampled_from(["reduce", "wait"]),
    runs=st.lists(
        st.tuples(
            st.integers(0, 60), st.lists(st.sampled_from(["well", "well", "fails", "dies"]), max_size=6)
        ),
        min_size=2,
        max_size=6,
    ),
)
def test_a_read_that_did_not_end_well_is_repeated(
    kind: str, grace: int, abstinent: int, mode: str, runs: Runs
) -> None:
    axis = {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0DT0H"}}
    job = parse_job(
        {
            "ms.watermark": [axis], "ms.work.unit.partition": kind, "ms.grace.period": f"PT{grace}H",
            "ms.abstinent.period": f"PT{abstinent}H", "ms.abstinent.mode": mode, "ms.run.concurrency": 1,
        }
    )  # fmt: skip
    now, owed = START + DAY, list[WorkUnit]()
    with TemporaryDirectory() as folder:
        url = new_store(Path(folder))
        for hours, ends in [*runs, (0, [])]:
            now += hours * HOUR
            reads = ScriptedReads(ends)
            with open_store(url) as store, suppress(Died):
                run_job(job, store, reads, now=now)
            owed = unfinished([*owed, *reads.bad], reads.good)
    assert owed == []
