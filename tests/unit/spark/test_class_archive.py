"""The archive of Java classes: when a JVM writes it, when it is used, and when it is left alone."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slackwater.spark.class_archive import VARIABLE, class_archive_options, operator_classes

COMPLETE = bytes.fromhex("a8ab0bf0") + b"classes"
LONG_AGO = (0, 0)


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the archives, for a Java with class data sharing."""
    home = tmp_path / "java"
    for name in ("bin/java", "lib/server/classes.jsa"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    folder = tmp_path / "archives"
    monkeypatch.setenv(VARIABLE, str(folder))
    before = os.umask(0o022)  # a JVM writes its archive without write permission for others
    yield folder
    os.umask(before)


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "spark-core.jar").write_bytes(b"1")
    return folder


def written_by(options: list[str]) -> Path:
    """The file that a JVM with these options writes at exit."""
    option, value = options[0].split("=")
    assert option == "-XX:ArchiveClassesAtExit"
    return Path(value)


def used_by(options: list[str]) -> Path:
    """The archive that a JVM with these options uses."""
    option, value = options[0].split("=")
    assert option == "-XX:SharedArchiveFile"
    return Path(value)


def test_the_first_jvm_writes_the_archive_and_the_next_one_uses_it(archives: Path, jars: Path) -> None:
    written_by(class_archive_options(jars)).write_bytes(COMPLETE)
    used = used_by(class_archive_options(jars))
    assert used.parent == archives
    assert used.read_bytes() == COMPLETE
    assert used_by(class_archive_options(jars)) == used


def test_two_jvms_at_the_same_time_write_two_files_of_which_one_is_kept(archives: Path, jars: Path) -> None:
    first, second = written_by(class_archive_options(jars)), written_by(class_archive_options(jars))
    assert first != second
    first.write_bytes(COMPLETE)
    second.write_bytes(COMPLETE)
    used_by(class_archive_options(jars))
    assert len(list(archives.glob("*.new"))) == 0
    assert len(list(archives.glob("*.jsa"))) == 1


def test_a_file_that_is_still_being_written_is_left_alone(jars: Path, archives: Path) -> None:
    unfinished = written_by(class_archive_options(jars))
    unfinished.write_bytes(bytes(64))
    assert written_by(class_archive_options(jars)) != unfinished
    assert unfinished.exists()
    os.utime(unfinished, LONG_AGO)
    written_by(class_archive_options(jars))
    assert list(archives.iterdir()) == []


def test_a_truncated_archive_is_not_used(archives: Path, jars: Path) -> None:
    written_by(class_archive_options(jars)).write_bytes(COMPLETE)
    used_by(class_archive_options(jars)).write_bytes(COMPLETE[:-1])
    written_by(class_archive_options(jars)).write_bytes(COMPLETE)
    assert used_by(class_archive_options(jars)).read_bytes() == COMPLETE


@pytest.mark.parametrize("bits", [0o620, 0o602])
@pytest.mark.parametrize("suffix", ["jsa", "size"])
def test_an_archive_that_another_user_could_have_written_is_replaced(
    archives: Path, jars: Path, suffix: str, bits: int
) -> None:
    written_by(class_archive_options(jars)).write_bytes(COMPLETE)
    used = used_by(class_archive_options(jars))
    used.with_suffix(f".{suffix}").chmod(bits)
    written_by(class_archive_options(jars)).write_bytes(COMPLETE)
    assert used_by(class_archive_options(jars)) == used
    assert {path.stat().st_mode & 0o777 for path in archives.iterdir()} == {0o600}


def test_a_new_archive_that_another_user_could_have_written_is_not_used(archives: Path, jars: Path) -> None:
    new = written_by(class_archive_options(jars))
    new.write_bytes(COMPLETE)
    new.chmod(0o666)
    assert written_by(class_archive_options(jars)) != new
    assert list(archives.iterdir()) == [new]


def test_another_jar_file_means_another_archive_and_unused_ones_are_removed(
    archives: Path, jars: Path
) -> None:
    written_by(class_archive_options(jars)).write_bytes(COMPLETE)
    old = used_by(class_archive_options(jars))
    (jars / "spark-core.jar").write_bytes(b"12")
    written_by(class_archive_options(jars)).write_bytes(COMPLETE)
    assert used_by(class_archive_options(jars)) != old
    assert old.exists()
    os.utime(old, LONG_AGO)
    class_archive_options(jars)
    assert not old.exists()
    assert len(list(archives.iterdir())) == 2


@pytest.mark.parametrize(
    "given", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa", "-Dx=1 -XX:ArchiveClassesAtExit=mine.jsa"]
)
@pytest.mark.usefixtures("archives")
def test_the_users_own_choice_wins(jars: Path, given: str) -> None:
    assert class_archive_options(jars, ["", given]) == []


@pytest.mark.usefixtures("archives")
def test_archives_can_be_switched_off(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert class_archive_options(jars) == []


def test_a_folder_in_which_others_can_write_is_not_used(archives: Path, jars: Path) -> None:
    archives.mkdir()
    archives.chmod(0o777)
    assert class_archive_options(jars) == []
    archives.chmod(0o700)
    assert class_archive_options(jars) != []


def test_a_java_without_class_data_sharing_gets_no_options(
    archives: Path, jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "java/lib/server/classes.jsa").unlink()
    assert class_archive_options(jars) == []
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert class_archive_options(jars) == []
    assert not archives.exists()


def test_the_classes_of_operators_are_found_in_the_jar_files(jars: Path) -> None:
    for jar in ("spark-sql.jar", "hive-exec.jar"):
        with zipfile.ZipFile(jars / jar, "w") as archive:
            for name in ("Runner$.class", "README.txt"):
                archive.writestr(f"org/apache/spark/sql/execution/python/{name}", b"")
            archive.writestr("org/apache/spark/sql/hive/Client.class", b"")
    (jars / "spark-core.jar").unlink()
    assert list(operator_classes(jars)) == ["org.apache.spark.sql.execution.python.Runner$"]


def test_the_archive_is_in_the_cache_folder_of_the_user(
    archives: Path, jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert written_by(class_archive_options(jars)).parent == tmp_path / "cache" / "slackwater"
    assert not archives.exists()
