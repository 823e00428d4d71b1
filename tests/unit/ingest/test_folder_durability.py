"""A folder target after a crash of the machine: what a high watermark covers has been flushed."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.ingest.targets import folder_target
from slackwater.ingest.targets.folder_target import FolderTarget


def test_a_replaced_link_and_its_version_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = FolderTarget(
        folder=tmp_path, format="parquet", time_column="at", watermark_column=None, zone="UTC"
    )
    version, area = tmp_path / "_versions" / "unit" / "1", tmp_path / "_staging"
    version.mkdir(parents=True)
    area.mkdir()
    flushed: list[tuple[Path, bool]] = []
    link = tmp_path / "site=7" / "rows"
    monkeypatch.setattr(folder_target, "fsync_path", lambda path: flushed.append((path, link.exists())))
    target._set_link(link, version, area)
    # the version and its name before the link refers to it, then the link
    assert [path for path, linked in flushed if not linked] == [version, *version.parents[:3]]
    assert [path for path, linked in flushed if linked] == [link.parent, tmp_path]
