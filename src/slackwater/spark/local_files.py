"""Local files without a program for each of them.

Hadoop starts the program ``chmod`` for every file that it creates on a local disk, unless its native library
is installed. A micro-batch creates some fifteen files one after the other, and a program takes 2 to 4 ms to
start in a JVM. The class in ``DirectLocalFileSystem.java`` sets the same permissions by a call of Java. The
compiler that Spark contains for its generated code compiles it, once for each installation.
"""

from __future__ import annotations

import hashlib
import uuid
import zipfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from slackwater.spark.internals import JavaError, compile_java, define_classes, hadoop_setting, load_classes

_HADOOP_SETTING: Final = "fs.file.impl"
FILE_SYSTEM: Final = f"spark.hadoop.{_HADOOP_SETTING}"
"""The setting with the class for local files."""
CLASS: Final = "org.apache.hadoop.fs.DirectLocalFileSystem"
_HADOOP_CLASS: Final = "org.apache.hadoop.fs.RawLocalFileSystem"
_SOURCE: Final = "DirectLocalFileSystem.java"


def local_file_settings(chosen: Mapping[str, str], folder: Path | None) -> dict[str, str]:
    """The setting with which a session on a local master creates files, after its JVM has started.

    Args:
        chosen: The Spark settings of the session. If these, or the configuration of Spark or Hadoop, choose a
            class for local files, it is used.
        folder: A private folder for the compiled class; None if there is none.

    Returns:
        The setting; empty if the class cannot be used, so that Hadoop's own class is used.

    >>> local_file_settings({"spark.hadoop.fs.file.impl": "shop.EncryptedFiles"}, None)
    {}
    """
    try:
        if FILE_SYSTEM in chosen or hadoop_setting(_HADOOP_SETTING) is not None:
            return {}
        if not load_classes([CLASS]):
            define_classes(_HADOOP_CLASS, bytecode(folder).values())
    except JavaError:  # another Hadoop or Java: the class only saves time
        return {}
    return {FILE_SYSTEM: CLASS}


def bytecode(folder: Path | None) -> dict[str, bytes]:
    """The compiled classes of ``DirectLocalFileSystem.java`` by name, from an archive in a folder.

    Args:
        folder: Where the archive is, and is stored if it is missing or damaged; None to store none.
    """
    source = resources.files(__package__).joinpath(_SOURCE).read_text("utf-8")
    if folder is None:
        return compile_java(source)
    path = folder / f"files-{hashlib.sha256(source.encode()).hexdigest()[:16]}.jar"
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile):
        compiled = compile_java(source)
    fresh = folder / f"{path.stem}-{uuid.uuid4().hex[:8]}.new"
    try:
        with zipfile.ZipFile(fresh, "w") as archive:
            for name, code in compiled.items():
                archive.writestr(name, code)
        fresh.replace(path)
    except OSError:  # a full disk must not keep a session from starting
        fresh.unlink(missing_ok=True)
    return compiled
