"""`slackwater doctor`: check the installation, the metadata store and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from slackwater.cli.console import (
    DEFAULT_STORE,
    FAILURE,
    STORE_URLS,
    STORE_VARIABLE,
    AsJson,
    counted,
    print_json,
    print_line,
)
from slackwater.doctor.checkpoints import check_checkpoint
from slackwater.doctor.findings import Finding
from slackwater.doctor.installation import (
    check_disk,
    check_java,
    check_packages,
    check_python,
    check_spark_defaults,
    spark_scratch,
)
from slackwater.doctor.stores import check_store

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(
    store: Annotated[
        str | None,
        typer.Option(
            envvar=STORE_VARIABLE,
            show_envvar=True,
            help=f"URL of the metadata store: {STORE_URLS}. By default {DEFAULT_STORE}, if it exists.",
        ),
    ] = None,
    checkpoint: Annotated[
        list[Path] | None, typer.Option(help="Folder of a checkpoint to check; may be repeated.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Shuffle partitions of the sessions. Default: the number of CPU cores."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings, too.")] = False,
    json: AsJson = False,
) -> None:
    """Check Java, Spark, Python, the metadata store, leases, disks and checkpoints; nothing is changed.

    The exit code is 1 if something is wrong: an error, or with --strict also a warning.
    """
    found = list(_findings(store, checkpoint or [], partitions))
    if json:
        print_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            line = Text.assemble((f"{finding.level:8}", _COLOURS[finding.level]), str(finding))
            Console().print(line, soft_wrap=True)
        problems = sum(finding.level != "ok" for finding in found)
        print_line(counted(problems, "problem") if problems else "no problem found")
    bad = {"error", "warning"} if strict else {"error"}
    if any(finding.level in bad for finding in found):
        raise typer.Exit(FAILURE)


def _findings(store: str | None, checkpoints: list[Path], partitions: int | None) -> Iterator[Finding]:
    yield check_python()
    yield from check_packages()
    yield check_java()
    yield check_spark_defaults()
    yield from check_store(store or DEFAULT_STORE, must_exist=store is not None)
    yield check_disk(spark_scratch(), "Spark's files")
    for folder in checkpoints:
        yield check_checkpoint(folder, partitions)
