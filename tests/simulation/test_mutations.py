"""The simulation can fail: one of a few seeds finds each defect that is put into the code on purpose."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import Connection

from slackwater import _durable_files
from slackwater.ingest.ledger.progress_ledger import record_success
from slackwater.ingest.ledger.run_ledger import Run
from slackwater.ingest.plan.plan_completeness import PlanCompleteness
from slackwater.ingest.plan.planner import WorkUnit
from slackwater.ingest.targets.delta_target import DeltaTarget
from slackwater.ingest.targets.folder_target import FolderTarget
from slackwater.ingest.targets.table_target import TableTarget
from slackwater.simulation import ingest_scenario
from slackwater.simulation.runs import Simulation
from slackwater.sql import pane_merge
from slackwater.streams.log import append, group_segments, reader_group, segment_files
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.writer import Writer
from slackwater.streams.maintenance import mark_cycle, retention
from slackwater.streams.settings import Retention
from slackwater.streams.time import marks

SEEDS = 40
"""Within how many seeds a defect is found."""

Mutation = Callable[[pytest.MonkeyPatch], None]


def without_fsync(patch: pytest.MonkeyPatch) -> None:
    def write(path: Path, content: Any) -> None:
        path.write_bytes(content)

    patch.setattr(segment_files, "write_durably", write)


def without_fsync_of_the_folder(patch: pytest.MonkeyPatch) -> None:
    def write(path: Path, content: Any) -> None:
        path.write_bytes(content)
        descriptor = writer_os().open(path, os.O_RDONLY)
        writer_os().fsync(descriptor)
        writer_os().close(descriptor)

    def writer_os() -> Any:
        return vars(_durable_files)["os"]

    patch.setattr(segment_files, "write_durably", write)


def acknowledging_what_is_queued(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writer, "acknowledged", property(lambda self: self._written))


def without_deduplication(patch: pytest.MonkeyPatch) -> None:
    checked = vars(append)["check_session"]
    patch.setattr(append, "check_session", lambda *given: replace(checked(*given), last_event_number=0))


def marks_that_ignore_a_writer(patch: pytest.MonkeyPatch) -> None:
    decide = marks.decide_cycle
    patch.setattr(
        mark_cycle,
        "decide_cycle",
        lambda writers, *rest, **options: decide(list(writers)[1:], *rest, **options),
    )


def readers_whose_lease_never_ends(patch: pytest.MonkeyPatch) -> None:
    alive = reader_group.Reader._alive
    patch.setattr(reader_group.Reader, "_alive", lambda self, connection, now: alive(self, connection, 0))


def successors_before_their_predecessors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group_segments, "_waits", lambda *given: False)


def retention_that_forgets_the_age(patch: pytest.MonkeyPatch) -> None:
    def now(connection: Connection, stream: Stream, settings: Retention) -> int | None:
        return None if settings.age is None else stream.store.now(connection)

    patch.setattr(retention, "_kept_since", now)


def high_watermarks_before_the_rows(patch: pytest.MonkeyPatch) -> None:
    begin = Run.begin

    def begun(self: Run, work: WorkUnit) -> None:
        begin(self, work)
        self._store.write(lambda connection: record_success(connection, "orders", "system", work))

    patch.setattr(Run, "begin", begun)


def folders_that_are_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FolderTarget, "_fsync_folders", lambda self, folder: None)


def slices_that_are_not_deleted_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableTarget, "_delete_slice", lambda *given: None)


def only(kind: str, patch: pytest.MonkeyPatch) -> None:
    """Let every seed of the ingestion scenario write to one kind of target."""
    for each in ("delta", "stream"):
        patch.setattr(ingest_scenario, f"_{each.upper()}_SHARE", float(each == kind))


def delta_files_that_are_not_flushed(patch: pytest.MonkeyPatch) -> None:
    only("delta", patch)
    patch.setattr(DeltaTarget, "_flush", lambda self, logged: None)


def delta_slices_that_are_not_replaced(patch: pytest.MonkeyPatch) -> None:
    only("delta", patch)
    patch.setattr(DeltaTarget, "_predicate", lambda self, slice_: "id < 0")


def streams_that_claim_units_of_others(patch: pytest.MonkeyPatch) -> None:
    only("stream", patch)
    patch.setattr(PlanCompleteness, "time_without", lambda self, start, unit: self._limit)


def batches_that_are_merged_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pane_merge, "_ledger_entry", lambda *given: None)
    patch.setattr(pane_merge, "_record_batch", lambda *given, **options: None)


MUTATIONS: dict[str, list[Mutation]] = {
    "log": [
        without_fsync,
        without_fsync_of_the_folder,
        acknowledging_what_is_queued,
        without_deduplication,
        marks_that_ignore_a_writer,
        readers_whose_lease_never_ends,
        successors_before_their_predecessors,
        retention_that_forgets_the_age,
    ],
    "pipeline": [batches_that_are_merged_again],
    "ingest": [
        high_watermarks_before_the_rows,
        folders_that_are_not_flushed,
        slices_that_are_not_deleted_before,
        delta_files_that_are_not_flushed,
        delta_slices_that_are_not_replaced,
        streams_that_claim_units_of_others,
    ],
}


@pytest.mark.proof
@pytest.mark.parametrize(
    ("scenario", "mutation"),
    [(scenario, mutation) for scenario, known in MUTATIONS.items() for mutation in known],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_defect_is_found(
    prepared: Simulation, monkeypatch: pytest.MonkeyPatch, scenario: str, mutation: Mutation
) -> None:
    mutation(monkeypatch)
    assert any(prepared.run(seed, scenario=scenario, minutes=1).violation for seed in range(SEEDS))
