"""Sessions on a local master create files without a program for each, with the permissions of Hadoop."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from slackwater.spark import local_files
from slackwater.spark.internals import spark_home
from slackwater.spark.local_files import CLASS, FILE_SYSTEM, bytecode, local_file_settings

pytestmark = pytest.mark.spark

HADOOP_CLASS = "org.apache.hadoop.fs.LocalFileSystem"
PROGRAM = """
import slackwater as sw

config = {{"spark.ui.enabled": "false", **{settings!r}}}
spark = sw.session(master="local[1]", partitions=1, config=config)
spark.range(3).write.parquet({rows!r})
"""


def file_system(spark: SparkSession, name: str) -> Any:
    """A new file system of a class, with a local folder as its root."""
    jvm: Any = spark.sparkContext._jvm
    system = getattr(jvm.org.apache.hadoop.fs, name.rpartition(".")[2])()
    system.initialize(jvm.java.net.URI("file:///"), jvm.org.apache.hadoop.conf.Configuration())
    return system


def hadoop_path(spark: SparkSession, path: Path) -> Any:
    return spark.sparkContext._jvm.org.apache.hadoop.fs.Path(str(path))  # type: ignore[union-attr]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_local_files_of_a_session_are_those_of_the_class(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    found = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), hadoop)
    assert found.getClass().getName() == CLASS
    assert found.getScheme() == "file"


@pytest.mark.parametrize("before", [0o2700, 0o4755, 0o1777])
def test_special_bits_stay_as_with_hadoop(spark: SparkSession, tmp_path: Path, before: int) -> None:
    permission = spark.sparkContext._jvm.org.apache.hadoop.fs.permission.FsPermission("755")  # type: ignore[union-attr]
    for name in (HADOOP_CLASS, CLASS):
        folder = tmp_path / name
        folder.mkdir()
        folder.chmod(before)
        file_system(spark, name).setPermission(hadoop_path(spark, folder), permission)
    assert mode(tmp_path / CLASS) == mode(tmp_path / HADOOP_CLASS)


@pytest.mark.parametrize("bits", [0o000, 0o400, 0o644, 0o600, 0o755, 0o721, 0o777, 0o1777, 0o1750])
def test_permissions_are_those_that_hadoop_sets(spark: SparkSession, tmp_path: Path, bits: int) -> None:
    permission = spark.sparkContext._jvm.org.apache.hadoop.fs.permission.FsPermission(f"{bits:03o}")  # type: ignore[union-attr]
    for name in (HADOOP_CLASS, CLASS):
        folder = tmp_path / name
        folder.mkdir()
        file_system(spark, name).setPermission(hadoop_path(spark, folder), permission)
    assert mode(tmp_path / CLASS) == mode(tmp_path / HADOOP_CLASS) == bits


@pytest.mark.parametrize("parent", [0o755, 0o2775])
def test_new_files_and_folders_are_those_of_hadoop(spark: SparkSession, tmp_path: Path, parent: int) -> None:
    tmp_path.chmod(parent)  # 02775 passes on its group and itself to new folders
    for name in (HADOOP_CLASS, CLASS):
        root, system = tmp_path / name, file_system(spark, name)
        system.mkdirs(hadoop_path(spark, root / "a" / "b"))
        stream = system.create(hadoop_path(spark, root / "a" / "rows"))
        stream.writeBytes("rows")
        stream.close()
    one, two = (
        {str(path.relative_to(tmp_path / name)): mode(path) for path in (tmp_path / name).rglob("*")}
        for name in (HADOOP_CLASS, CLASS)
    )
    assert one == two
    assert {"a/rows", "a/.rows.crc"} <= one.keys(), "with checksums"
    assert one["a/b"] & 0o2000 == parent & 0o2000


def test_permissions_of_a_missing_file_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    permission = spark.sparkContext._jvm.org.apache.hadoop.fs.permission.FsPermission("644")  # type: ignore[union-attr]
    with pytest.raises(Exception, match="NoSuchFileException"):
        file_system(spark, CLASS).setPermission(hadoop_path(spark, tmp_path / "missing"), permission)


def test_the_compiled_class_is_stored_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = bytecode(tmp_path)
    assert set(compiled) == {CLASS, f"{CLASS}$Raw"}
    (archive,) = tmp_path.iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(local_files, "compile_java", lambda _: {})
        assert bytecode(tmp_path) == compiled
    whole = archive.read_bytes()
    encrypted = bytearray(whole)
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[whole.index(signature) + flags] |= 1
    for damaged in (whole[:-100], bytes(encrypted), b""):
        archive.write_bytes(damaged)
        assert bytecode(tmp_path) == compiled
        assert archive.read_bytes() != damaged, "a damaged archive is replaced"
    with zipfile.ZipFile(archive, "w") as incomplete:
        incomplete.writestr(CLASS, compiled[CLASS])
    assert bytecode(tmp_path) == compiled, "so is one without all classes"
    assert bytecode(tmp_path) == compiled == bytecode(None)
    assert bytecode(tmp_path / "missing") == compiled, "a folder that cannot be written"


@pytest.mark.parametrize("bits", [0o620, 0o602])
def test_an_archive_that_another_user_could_have_written_is_replaced(
    spark: SparkSession, tmp_path: Path, bits: int
) -> None:
    compiled = bytecode(tmp_path)
    (archive,) = tmp_path.iterdir()
    assert mode(archive) == 0o600
    with zipfile.ZipFile(archive, "w") as other:
        for name in compiled:
            other.writestr(name, b"the code of another user")
    archive.chmod(bits)
    assert bytecode(tmp_path) == compiled
    assert mode(archive) == 0o600
    assert bytecode(tmp_path) == compiled


def test_another_hadoop_has_an_archive_of_its_own(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = bytecode(tmp_path)
    monkeypatch.setattr(local_files, "hadoop_build", lambda: "9.0.0 from 12ab")
    assert bytecode(tmp_path) == compiled
    assert len(list(tmp_path.iterdir())) == 2


def test_a_spark_without_the_compiler_uses_the_class_of_hadoop(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_files, "load_classes", lambda _: 0)

    def missing(_: str) -> dict[str, bytes]:
        return spark.sparkContext._jvm.org.codehaus.janino.NoSuchCompiler()  # type: ignore[union-attr, no-any-return]

    monkeypatch.setattr(local_files, "compile_java", missing)
    assert local_file_settings({}, None) == {}


@pytest.mark.proof
def test_a_program_of_spark_submit_has_a_session_on_a_local_master(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(PROGRAM.format(settings={}, rows=str(tmp_path / "rows")))
    environment = {**os.environ, "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable}
    submit = spark_home() / "bin" / "spark-submit"
    done = subprocess.run([submit, program], env=environment, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert list((tmp_path / "rows").glob("*.parquet"))


def test_a_class_of_the_user_is_left_alone(spark: SparkSession) -> None:
    assert local_file_settings({}, None) == {FILE_SYSTEM: CLASS}
    assert local_file_settings({FILE_SYSTEM: HADOOP_CLASS}, None) == {}


@pytest.mark.proof
def test_executors_with_a_jvm_of_their_own_read_and_write_local_files(tmp_path: Path) -> None:
    program = PROGRAM.format(settings={}, rows=str(tmp_path / "rows"))
    program = program.replace("local[1]", "local-cluster[1,1,1024]")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert list((tmp_path / "rows").glob("*.parquet"))


@pytest.mark.proof
@pytest.mark.parametrize("settings", [{}, {FILE_SYSTEM: HADOOP_CLASS}])
def test_no_program_is_started_for_a_file(tmp_path: Path, settings: dict[str, str]) -> None:
    calls, programs, rows = tmp_path / "calls", tmp_path / "programs", tmp_path / "rows"
    programs.mkdir()
    recorder = programs / "chmod"
    recorder.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {shutil.which("chmod")} "$@"\n')
    recorder.chmod(0o755)
    subprocess.run(
        [sys.executable, "-c", PROGRAM.format(settings=settings, rows=str(rows))],
        env={**os.environ, "PATH": os.pathsep.join([str(programs), os.environ["PATH"]])},
        capture_output=True, check=True,
    )  # fmt: skip
    assert list(rows.glob("*.parquet"))
    assert calls.exists() == bool(settings), "only Hadoop's own class starts programs"
