"""Sends OpenLineage events in the background; an error of lineage never fails a run.

The transport is that of OpenLineage's own configuration: ``OPENLINEAGE_URL``, ``OPENLINEAGE_CONFIG``, or
variables such as ``OPENLINEAGE__TRANSPORT__TYPE``.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from slackwater.errors import MissingExtra
from slackwater.ingest.redaction import without_credentials
from slackwater.lineage.datasets import DatasetName
from slackwater.time import format_instant

State = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]

PRODUCER: Final = "urn:slackwater"
_VARIABLES: Final = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_PREFIX: Final = "OPENLINEAGE__TRANSPORT"
_WAITING: Final = 10_000
"""Events that wait for the transport; further ones are dropped and counted."""
_LAST_SECONDS: Final = 10.0
"""How long a process waits at its end for events that are not sent yet."""
_log: Final = logging.getLogger(__name__)


def is_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment has a transport for events.

    >>> is_configured({"OPENLINEAGE_URL": "http://localhost:5000"}), is_configured({})
    (True, False)
    >>> is_configured({"OPENLINEAGE_URL": "http://localhost:5000", "OPENLINEAGE_DISABLED": "true"})
    False
    """
    if environment.get("OPENLINEAGE_DISABLED", "").lower() == "true":
        return False
    return any(environment.get(name) for name in _VARIABLES) or any(
        name.startswith(_PREFIX) for name in environment
    )


@dataclass(frozen=True, slots=True)
class LineageRun:
    """A run of a job: its id, and the slice of event time that it is about."""

    job: str
    id: str
    low: int | None = None
    high: int | None = None
    parent: LineageRun | None = None


def new_run_id() -> str:
    """A new id of a run."""
    return str(uuid.uuid4())


class LineageEmitter:
    """Sends events from a thread of its own.

    ``failures`` counts events that were not delivered. The first failure is logged as a warning.
    """

    def __init__(self, client: Any, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self.failures = 0
        self._queue: queue.Queue[Any] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._send_all, name="slackwater-lineage", daemon=True)
        self._thread.start()

    @classmethod
    def from_environment(cls) -> LineageEmitter | None:
        """The emitter that the environment configures; None if there is none, or it cannot be made."""
        if not is_configured():
            return None
        try:
            from openlineage.client import OpenLineageClient
        except ModuleNotFoundError:
            _log.warning("no OpenLineage events are sent: %s", MissingExtra("lineage", "openlineage"))
            return None
        try:
            client = OpenLineageClient()
        except Exception as error:  # whatever is wrong with the configuration
            _log.warning("no OpenLineage events are sent: %s", without_credentials(str(error)))
            return None
        return cls(client, os.environ.get("OPENLINEAGE_NAMESPACE", "slackwater"))

    def emit(
        self,
        state: State,
        run: LineageRun,
        *,
        at: int,
        inputs: Iterable[DatasetName] = (),
        outputs: Iterable[DatasetName] = (),
        rows: int | None = None,
        size: int | None = None,
        error: str | None = None,
    ) -> None:
        """Send an event later; never raises, and never waits.

        Args:
            state: What happened to the run.
            run: The run.
            at: When it happened.
            inputs: The datasets that it reads.
            outputs: The datasets that it writes.
            rows: The rows that it wrote.
            size: Their size in bytes.
            error: Why it failed, without credentials.
        """
        try:
            self._queue.put_nowait((state, run, at, tuple(inputs), tuple(outputs), rows, size, error))
        except queue.Full:
            self._failed("the transport is too slow, and events are dropped")

    def close(self, seconds: float = _LAST_SECONDS) -> None:
        """Wait until all events are sent, but not for longer than some seconds."""
        end = time.monotonic() + seconds
        with suppress(queue.Full):
            self._queue.put(None, timeout=seconds)
        self._thread.join(max(0.0, end - time.monotonic()))
        if self._thread.is_alive():
            self._failed(f"{self._queue.qsize() or 'some'} events were not sent before the end of the run")

    def _send_all(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._client.emit(self._event(*item))
            except Exception as error:  # any error: a receiver that is down must not stop what it watches
                self._failed(f"{type(error).__name__}: {without_credentials(str(error))}")
        try:
            self._client.close(1.0)
        except Exception as error:
            self._failed(without_credentials(str(error)))

    def _failed(self, reason: str) -> None:
        self.failures += 1
        if self.failures == 1:
            _log.warning("an OpenLineage event was not sent (further ones are only counted): %s", reason)

    def _event(
        self,
        state: State,
        run: LineageRun,
        at: int,
        inputs: tuple[DatasetName, ...],
        outputs: tuple[DatasetName, ...],
        rows: int | None,
        size: int | None,
        error: str | None,
    ) -> Any:
        from openlineage.client import event_v2, facet_v2

        facets: dict[str, Any] = {}
        if run.low is not None:
            facets["nominalTime"] = facet_v2.nominal_time_run.NominalTimeRunFacet(
                format_instant(run.low), format_instant(run.high) or None, producer=PRODUCER
            )
        if run.parent is not None:
            facets["parent"] = facet_v2.parent_run.ParentRunFacet(
                run=facet_v2.parent_run.Run(runId=run.parent.id),
                job=facet_v2.parent_run.Job(namespace=self.namespace, name=run.parent.job),
                producer=PRODUCER,
            )
        if error is not None:
            facets["errorMessage"] = facet_v2.error_message_run.ErrorMessageRunFacet(
                message=error, programmingLanguage="python", producer=PRODUCER
            )
        written: dict[str, Any] = {}
        if rows is not None:
            written["outputStatistics"] = (
                facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                    rowCount=rows, size=size, producer=PRODUCER
                )
            )
        return event_v2.RunEvent(
            eventType=event_v2.RunState(state),
            eventTime=format_instant(at),
            run=event_v2.Run(runId=run.id, facets=facets),
            job=event_v2.Job(namespace=self.namespace, name=run.job),
            inputs=[event_v2.InputDataset(one.namespace, one.name) for one in inputs],
            outputs=[
                event_v2.OutputDataset(one.namespace, one.name, outputFacets=written) for one in outputs
            ],
            producer=PRODUCER,
        )
