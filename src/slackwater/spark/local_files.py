"""Local files that Hadoop creates without starting a program for each.

Hadoop starts the program ``chmod`` for every file that it creates on a local disk, unless its native library
is installed. A micro-batch creates 10 to 16 files. Starting the program takes 1.5 ms in an idle JVM, and 2 to
5 ms in a busy one. The class in ``DirectLocalFileSystem.java`` sets the same permissions with a call of Java.
The compiler that Spark contains for its generated code compiles it, once for each build of Hadoop.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Final

from slackwater.spark.internals import (
    UNSUPPORTED,
    compile_java,
    define_classes,
    hadoop_build,
    hadoop_setting,
    load_classes,
)
from slackwater.spark.private_files import read_private, write_private

_HADOOP_SETTING: Final = "fs.file.impl"
FILE_SYSTEM: Final = f"spark.hadoop.{_HADOOP_SETTING}"
"""The setting with the class for local files."""
CLASS: Final = "org.apache.hadoop.fs.DirectLocalFileSystem"
_HADOOP_CLASS: Final = "org.apache.hadoop.fs.RawLocalFileSystem"
_SOURCE: Final = "DirectLocalFileSystem.java"
_CLASSES: Final = {CLASS, f"{CLASS}$Raw"}
"""The classes in it."""


def local_file_settings(chosen: Mapping[str, str], folder: Path | None) -> dict[str, str]:
    """The Spark setting that makes a session on a local master create files without starting programs.

    Needs a running JVM.

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
            define_classes(_HADOOP_CLASS, bytecode(folder))
    except UNSUPPORTED:  # another Spark, Hadoop or Java: the class only saves time
        return {}
    return {FILE_SYSTEM: CLASS}


def bytecode(folder: Path | None) -> dict[str, bytes]:
    """The compiled classes of ``DirectLocalFileSystem.java`` by name, from an archive in a folder.

    Args:
        folder: Where the archive is. It is written if it is missing or damaged, or if another user could
            have written it. None to use no archive.
    """
    source = resources.files(__package__).joinpath(_SOURCE).read_text("utf-8")
    if folder is None:
        return compile_java(source)
    path = folder / f"files-{_digest(source, hadoop_build())}.jar"
    known = _stored(path)
    if known is not None:
        return known
    compiled = compile_java(source)
    with suppress(OSError):  # a full disk must not keep a session from starting
        write_private(path, _archived(compiled))
    return compiled


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _archived(classes: Mapping[str, bytes]) -> bytes:
    """The content of an archive with these classes."""
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, code in classes.items():
            archive.writestr(name, code)
    return content.getvalue()


def _stored(path: Path) -> dict[str, bytes] | None:
    """The classes in an archive; None if it is missing, damaged, incomplete or not private to this user."""
    # What zipfile raises for a damaged archive is not documented.
    with suppress(Exception), zipfile.ZipFile(BytesIO(read_private(path))) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
        if found.keys() == _CLASSES:
            return found
    return None
