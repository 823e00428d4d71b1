"""`slackwater metrics`: print the metrics of a metadata store, or write them to a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from slackwater.cli.console import DEFAULT_STORE, Store
from slackwater.errors import InvalidArgument
from slackwater.ui.views import Views


def metrics(
    store: Store = DEFAULT_STORE,
    textfile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Replace FILE with the metrics, for the textfile collector of the Prometheus node exporter; "
            "its name ends with .prom.",
        ),
    ] = None,
    names: Annotated[
        Literal["slackwater", "flink"],
        typer.Option(help="Names of the metrics: those of Slackwater, or those of Apache Flink."),
    ] = "slackwater",
) -> None:
    """Print the metrics of queries, ingestion and streams in the text format of Prometheus."""
    with Views(store) as views:
        text = views.metrics(names)
    if textfile is None:
        sys.stdout.write(text)
        return
    draft = textfile.with_name(f".{textfile.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(textfile)  # a collector reads the old file or the new one, never a part
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        fix = "name a file in an existing folder that you have permission to write to"
        raise InvalidArgument("--textfile", str(textfile), reason, fix=fix) from None
