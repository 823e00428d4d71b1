"""Files below a ``file:`` URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slackwater.errors import InvalidArgument
from slackwater.table_progress.completeness_reader import complete_until
from slackwater.tables.object_store import object_store


@pytest.mark.parametrize("read", [object_store, lambda url: complete_until(f"json:{url}")])
def test_a_file_on_another_host_is_refused(read: Callable[[str], object], tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="has the name of a host; write a path of this machine"):
        read(f"file://data{tmp_path}")
    read(f"file://localhost{tmp_path}")


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    store = object_store(tmp_path.as_uri())
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        store.write("taken", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
