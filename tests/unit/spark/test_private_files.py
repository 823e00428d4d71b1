"""Files with code are for their owner only, and not used if another user could have written them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from slackwater.spark.private_files import read_private, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
@pytest.mark.parametrize("bits", [0o600, 0o700])
def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path, umask: int, bits: int) -> None:
    before = os.umask(umask)
    try:
        write_private(tmp_path / "file", b"content", bits)
    finally:
        os.umask(before)
    assert mode(tmp_path / "file") == bits
    assert read_private(tmp_path / "file") == b"content"


def test_a_file_is_replaced_with_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(0o666)
    write_private(file, b"new")
    assert read_private(file) == b"new"
    assert mode(file) == 0o600
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(("bits", "readable"), [(0o644, True), (0o400, True), (0o620, False), (0o602, False)])
def test_only_a_file_that_no_other_user_may_write_is_read(tmp_path: Path, bits: int, readable: bool) -> None:
    file = tmp_path / "file"
    write_private(file, b"content")
    file.chmod(bits)
    if readable:
        assert read_private(file) == b"content"
    else:
        with pytest.raises(PermissionError, match="only its owner"):
            read_private(file)


def test_a_file_of_another_user_is_not_read(tmp_path: Path) -> None:
    if os.getuid() == 0:
        file = tmp_path / "file"
        write_private(file, b"content")
        os.chown(file, 12345, -1)
    else:
        file = Path("/etc/passwd")  # of root
    with pytest.raises(PermissionError, match="only its owner"):
        read_private(file)


def test_a_link_a_folder_and_a_pipe_are_not_read(tmp_path: Path) -> None:
    write_private(tmp_path / "file", b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("link", "pipe", "."):
        with pytest.raises(OSError, match=r"symbolic link|only its owner|directory"):
            read_private(tmp_path / name)


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path / "file", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
