"""Runs that append and die anywhere: each unit is read exactly as far as the target has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.ingest import Plan, WorkUnit, parse_job
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.runner import Approve, run_job
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.time import DAY, instant
from tests.stores import new_store
from tests.support.unit_reads import Amount, Died

START = instant("2020-01-01T00:00:00Z")
JOB = parse_job(
    {
        "ms.watermark": [
            {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}
        ],
        "ms.work.unit.partition": "daily",
        "ms.run.concurrency": 1,
    }
)


@dataclass
class Log:
    """A target that only appends, and keeps the number of its last commit."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    number: int = 0


@dataclass
class Appended:
    """Appends units to a log; each of them goes well, fails or dies, before or after the commit."""

    log: Log
    fates: list[str]

    def last_number(self) -> int:
        return self.log.number

    def expect(self, made: Plan) -> None:
        """No time is noted here."""

    def __call__(self, work: WorkUnit, approve: Approve, /) -> Amount:
        fate = self.fates.pop(0) if self.fates else "well"
        approve(Amount(), self.log.number + 1)
        if fate == "dies before":
            raise Died
        if fate == "fails":
            raise ValueError(fate)
        self.log.ranges.append((work.low, work.high))
        self.log.number += 1
        if fate == "dies after":
            raise Died
        return Amount()


def highs(store: MetadataStore) -> dict[int, int]:
    history = store.read(lambda connection: read_history(connection, "job", "system"))
    return {start: high for start, _, high in history.rows()}


@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2 * 24),
            st.lists(st.sampled_from(["well", "fails", "dies before", "dies after"]), max_size=4),
        ),
        max_size=6,
    )
)
def test_every_range_is_appended_once(runs: list[tuple[int, list[str]]]) -> None:
    log, now = Log(), START + DAY
    with TemporaryDirectory() as folder, open_store(new_store(folder)) as store:
        for hours, fates in [*runs, (0, [])]:
            now += hours * DAY // 24
            try:
                run_job(JOB, store, Appended(log, list(fates)), now=now)
            except Died:
                continue
        # every day once, and all of it, whatever happened
        days = (now - START) // DAY
        assert sorted(log.ranges) == [(START + day * DAY, START + (day + 1) * DAY) for day in range(days)]
        assert highs(store) == {START + day * DAY: START + (day + 1) * DAY for day in range(days)}
