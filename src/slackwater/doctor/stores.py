"""Checks of a metadata store: access, migrations, clock, and what dead processes have left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.doctor.findings import Finding, Level
from slackwater.doctor.installation import check_disk
from slackwater.errors import SlackwaterError, UnknownStore
from slackwater.metadata import migrations
from slackwater.metadata import store_schema as schema
from slackwater.metadata.leases import Leases
from slackwater.metadata.store import MetadataStore, open_store, schema_version
from slackwater.streams.maintenance.controller import LEASE_PREFIX
from slackwater.time import HOUR, SECOND, format_duration, format_instant, now

_SKEW_WARNING: Final = 2 * SECOND
_SKEW_ERROR: Final = 60 * SECOND
_JOB_PREFIX: Final = "ingest "


def check_store(url: str, *, must_exist: bool) -> Iterator[Finding]:
    """The findings about a store; nothing in it is changed.

    Args:
        url: The address of the store.
        must_exist: Whether a missing store is an error, because its address was given.
    """
    try:
        store = open_store(url, upgrade=False)
    except UnknownStore as error:
        if must_exist:
            yield Finding("error", "store", str(error))
        else:
            yield Finding("ok", "store", "none is configured; set SLACKWATER_STORE to use one")
        return
    except SlackwaterError as error:
        yield Finding("error", "store", str(error))
        return
    with store:
        yield from _check_access(store)
        if store.read(schema_version) == schema.NEWEST:
            yield check_clock(store)
            yield from check_leases(store)
        if store.is_embedded:
            yield check_disk(Path(str(store.url.database)).parent, "the metadata store")


def _check_access(store: MetadataStore) -> Iterator[Finding]:
    found = store.read(schema_version)
    if store.is_embedded and not os.access(str(store.url.database), os.W_OK):
        fix = "run as a user who may write to it, or change its permissions"
        yield Finding("error", "store", f"{store!r} cannot be written to", fix)
    if found == schema.NEWEST:
        yield Finding("ok", "store", f"{store!r}, schema version {found}")
    elif found is None:
        yield Finding(
            "warning", "store", f"{store!r} has no tables yet", "the first command that writes makes them"
        )
    else:
        missing = [each for each in migrations.known() if each > found]
        text = f"{store!r} has schema version {found}; {len(missing)} migrations are missing"
        yield Finding(
            "warning", "store", text, "the next command that writes upgrades it; stop older releases first"
        )


def check_clock(store: MetadataStore) -> Finding:
    """How far the clock of the database is from that of this host."""
    before = now()
    began = time.monotonic()
    there = store.now()
    half = round((time.monotonic() - began) * SECOND / 2)
    skew = there - (before + half)
    text = f"the clock of the database differs from that of this host by {format_duration(abs(skew))}"
    if abs(skew) - half > _SKEW_WARNING:
        level: Level = "error" if abs(skew) > _SKEW_ERROR else "warning"
        return Finding(level, "clock", text, "synchronize both with NTP")
    return Finding("ok", "clock", text)


def check_leases(store: MetadataStore) -> Iterator[Finding]:
    """Controllers that are missing or dead, and runs whose process is gone."""
    held = Leases(store).held()
    controllers = [lease for lease in held if lease.name.startswith(LEASE_PREFIX)]
    jobs = {lease.name.removeprefix(_JOB_PREFIX) for lease in held if lease.name.startswith(_JOB_PREFIX)}

    def read(connection: Connection) -> tuple[list[tuple[str, int]], list[tuple[str, str, int]], int, int]:
        at = store.now(connection)
        leases, runs = schema.leases.c, schema.runs.c
        expired = connection.execute(
            sql.select(leases.name, leases.expires_at).where(leases.expires_at <= at).order_by(leases.name)
        )
        running = connection.execute(
            sql.select(runs.job, runs.id, runs.started_at).where(runs.state == "running").order_by(runs.job)
        )
        noted = connection.execute(sql.select(sql.func.count()).select_from(schema.writer_marks)).scalar_one()
        return [tuple(row) for row in expired], [tuple(row) for row in running], noted, at

    expired, running, noted, at = store.read(read)
    for name, ended in expired:
        if name.startswith(LEASE_PREFIX):
            dead, ago = name.removeprefix(LEASE_PREFIX), format_duration(at - ended)
            text = f"controller {dead} stopped without releasing its lease, {ago} ago"
            fix = None if controllers else "start one: slackwater controller"
            yield Finding("ok" if controllers else "warning", "controller", text, fix)
        elif at - ended > HOUR or name.startswith(_JOB_PREFIX):
            text = f"the lease {name!r} expired at {format_instant(ended)}: its process was killed or hangs"
            yield Finding(
                "warning", "lease", text, "the next run takes it over; check that no such process runs"
            )
    if controllers:
        yield Finding("ok", "controller", f"{len(controllers)} running")
    elif noted:
        text = f"no controller runs, so no marks are made from the times that {noted} writers noted"
        yield Finding("error", "controller", text, "start one: slackwater controller")
    for job, run, started in running:
        if job not in jobs:
            since = f"run {run} of job {job} is recorded as running since {format_instant(started)}"
            fix = "the next run of the job repeats its units"
            yield Finding("warning", "run", f"{since}, but no process has its lease", fix)
