"""The recorded error of a unit: its innermost cause, without the secrets of the job file."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from slackwater.ingest import parse_job
from slackwater.ingest.job_errors import TooFewRecords
from slackwater.ingest.ledger.run_ledger import outcomes_of
from slackwater.ingest.runner import error_text, run_job
from slackwater.metadata.store import open_store
from tests.stores import new_store

WORKER = """
  An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/a/worker.py", line 3, in main
    process()
    ^^^^^^^^^
pyarrow.lib.ArrowInvalid: Could not convert 'x' with type str
"""
JVM = """An error occurred while calling o1033.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.Scheduler.abort(Scheduler.scala:1)
Caused by: java.sql.BatchUpdateException: Batch entry 0 was aborted:
\tat org.postgresql.Driver.run(Driver.java:2)
Caused by: org.postgresql.util.PSQLException: ERROR: duplicate key
  Detail: Key (id)=(1) already exists.
\t... 9 more
"""
CRASHED = """An error occurred while calling o7.collect.
: org.apache.spark.SparkException: Job aborted
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.Reader.read(Reader.scala:1)
Caused by: java.io.EOFException
\tat java.io.DataInputStream.readInt(DataInputStream.java:1)
"""
IN_BOTH = f"""An error occurred while calling o8.collect.
: org.apache.spark.SparkException: Job aborted
Caused by: org.apache.spark.api.python.PythonException: {WORKER}
\tat org.apache.spark.Reader.read(Reader.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WORKER, "ArrowInvalid: Could not convert 'x' with type str"),
        (JVM, "PSQLException: ERROR: duplicate key Detail: Key (id)=(1) already exists."),
        (CRASHED, "SparkException: Python worker exited unexpectedly (crashed)"),
        (IN_BOTH, "ArrowInvalid: Could not convert 'x' with type str"),
        ("calling o1.open\n: java.io.FileNotFoundException: /a (gone)", "FileNotFoundException: /a (gone)"),
        ("Traceback (most recent call last):\n  File x\nKeyboardInterrupt", "KeyboardInterrupt"),
        ("[CAST_INVALID_INPUT] no number\n== DataFrame ==", "OSError: [CAST_INVALID_INPUT] no number"),
        ("", "OSError: "),
    ],
)  # fmt: skip
def test_the_innermost_cause_is_recorded(text: str, said: str) -> None:
    assert error_text(OSError(text), parse_job({})) == said


def test_errors_of_slackwater_are_recorded_as_they_are() -> None:
    assert error_text(TooFewRecords(1, 2), parse_job({})) == f"TooFewRecords: {TooFewRecords(1, 2)}"


ACCOUNT = {"method": "basic", "user": "shop-77", "password": "hunter-22"}
BOTH = base64.b64encode(b"shop-77:hunter-22").decode()


@pytest.mark.parametrize(
    ("keys", "secrets"),
    [
        ({"http.authentication": {"method": "bearer", "token": "to/ken-1"}}, ["to/ken-1", "to%2Fken-1"]),
        ({"http.authentication": ACCOUNT}, ["shop-77", "hunter-22", BOTH]),
        ({"http.authentication": {"method": "query", "name": "key", "value": "k-123"}}, ["k-123"]),
        ({"http.headers": {"X-Key": "Token abc-123"}}, ["Token abc-123", "abc-123"]),
        ({"http.headers": {"Cookie": "a=b; session=5e55"}}, ["5e55"]),
        ({"jdbc.password": "hunter-22"}, ["hunter-22"]),
        ({"url": "postgresql://app:hunter-22@db/shop"}, ["hunter-22"]),
    ],
)
def test_secrets_of_the_job_file_are_neither_reported_nor_recorded(
    tmp_path: Path, keys: dict[str, Any], secrets: list[str]
) -> None:
    job = parse_job({f"ms.source.{name}": value for name, value in keys.items()})

    def refusing(*_: object) -> Any:
        raise ValueError(f"the server repeats {' and '.join(secrets)} to us")

    with open_store(new_store(tmp_path)) as store:
        report = run_job(job, store, refusing)
        (kept,) = outcomes_of(store, report.run)
    assert report.outcomes == (kept,)
    assert str(kept.error).startswith("ValueError: the server repeats ")
    assert [secret for secret in secrets if secret in str(kept.error)] == []
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert [secret for secret in secrets if secret.encode() in written] == []


def test_no_part_of_a_secret_is_left_where_a_long_text_is_cut() -> None:
    job = parse_job({"ms.source.jdbc.password": "hunter-22"})
    assert "hunt" not in error_text(ValueError("x" * 1980 + " hunter-22"), job)


def test_a_secret_among_the_options_of_a_reader_is_not_reported() -> None:
    job = parse_job({"ms.source.options": {"fs.s3a.secret.key": "hunter-22", "header": "true"}})
    text = error_text(RuntimeError("403 for hunter-22, header true"), job)
    assert "hunter-22" not in text
    assert "header true" in text
