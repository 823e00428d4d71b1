"""Files below a ``file:`` URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.tables.object_store import object_store


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    store = object_store(tmp_path.as_uri())
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        store.write("taken", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
