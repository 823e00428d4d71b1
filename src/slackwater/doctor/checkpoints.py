"""Checks of checkpoints: the number of shuffle partitions with which their queries were started."""

from __future__ import annotations

import json
from pathlib import Path

from slackwater.doctor.findings import Finding
from slackwater.spark.session import PARTITIONS, settings


def check_checkpoint(folder: Path, partitions: int | None = None) -> Finding:
    """Whether a checkpoint has the number of partitions that a new session has.

    Spark uses the number of the checkpoint, whatever the session says; Slackwater's buckets follow the
    session unless ``buckets=`` is given.

    Args:
        folder: The checkpoint in a local folder.
        partitions: The shuffle partitions of the session; by default those of `settings`.

    >>> str(check_checkpoint(Path("no-such-checkpoint")))
    'checkpoint: no-such-checkpoint has no offsets; name the folder of option("checkpointLocation", …)'
    """
    wanted = int(settings(partitions)[PARTITIONS])
    offsets = folder / "offsets"
    numbers = (
        [int(path.name) for path in offsets.glob("*") if path.name.isdigit()] if offsets.is_dir() else []
    )
    if not numbers:
        fix = 'name the folder of option("checkpointLocation", …)'
        return Finding("error", "checkpoint", f"{folder} has no offsets", fix)
    found = recorded_partitions((offsets / str(max(numbers))).read_text(encoding="utf-8"))
    if found is None:
        return Finding("warning", "checkpoint", f"{folder} does not record its number of shuffle partitions")
    text = f"{folder} was started with {found} shuffle partitions"
    if found != wanted:
        fix = (
            f"create the session with partitions={found}, or move the state: "
            f"slackwater rescale {folder} --partitions {wanted}"
        )
        return Finding("warning", "checkpoint", f"{text}, but a session here has {wanted}", fix)
    return Finding("ok", "checkpoint", text)


def recorded_partitions(offsets: str) -> int | None:
    r"""The number of shuffle partitions in a file of the folder ``offsets`` of a checkpoint.

    >>> recorded_partitions('v1\n{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"4"}}\n{}')
    4
    """
    for line in offsets.splitlines()[1:]:
        try:
            metadata = json.loads(line)
        except ValueError:
            continue
        if isinstance(metadata, dict) and PARTITIONS in metadata.get("conf", {}):
            return int(metadata["conf"][PARTITIONS])
    return None
