"""An archive of Java classes, with which the JVM of a session starts with about half the work.

A new JVM spends most of its first seconds on reading and verifying classes. HotSpot can write the classes
that it has loaded to a file when it exits, and map that file into memory at the next start (class data
sharing). The first session of an installation writes the archive; all later ones use it.

The archive depends on the Java and on the jar files of Spark, so its name contains a digest of both. The JVM
itself checks them as well, and ignores an archive that does not fit. Set ``SLACKWATER_CLASS_ARCHIVE=off`` to
use no archive, or to the path of a folder to keep it elsewhere than in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slackwater.spark.private_files import is_private, read_private, write_private

VARIABLE: Final = "SLACKWATER_CLASS_ARCHIVE"
"""The environment variable with the folder of the archives, or ``off``."""
_OFF: Final = ("off", "false", "no", "0")
_OWN_CHOICE: Final = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare")
"""Options of a JVM with which the user has decided about class data sharing."""
_BASE: Final = ("lib/server/classes.jsa", "bin/server/classes.jsa")
"""The archive of Java's own classes, which the archive of a session extends."""
_MAGIC: Final = bytes.fromhex("a8ab0bf0")
"""How a complete archive begins: the JVM writes it after everything else."""
_QUIET: Final = "-Xlog:cds*=off"
"""The JVM lists the classes that it leaves out, and warns if an archive does not fit."""
_WRITES: Final = "-XX:ArchiveClassesAtExit="
_OPERATOR_PACKAGES: Final = (
    "org/apache/arrow/memory/",
    "org/apache/arrow/vector/",
    "org/apache/spark/api/python/",
    "org/apache/spark/sql/execution/arrow/",
    "org/apache/spark/sql/execution/datasources/v2/python/",
    "org/apache/spark/sql/execution/python/",
    "org/apache/spark/sql/execution/streaming/operators/stateful/transformwithstate/",
    "org/apache/spark/sql/execution/streaming/state/",
)
"""Packages that a program without operators does not use; folders in jar files."""
_UNUSED: Final = 30 * 24 * 3600
"""After so many seconds an archive that was not used is removed."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one Java and one Spark in a folder.

    >>> ClassArchive(Path("cache"), "4f1a").path.as_posix()
    'cache/4f1a.jsa'
    """

    folder: Path
    digest: str

    @property
    def path(self) -> Path:
        """The file of the archive."""
        return self.folder / f"{self.digest}.jsa"

    @property
    def _size(self) -> Path:
        """The file with the length of the archive: a JVM that maps a truncated one crashes."""
        return self.folder / f"{self.digest}.size"

    def options(self) -> list[str]:
        """The options for a JVM: to use the archive, or to write one at exit if there is none."""
        self._adopt()
        if self._is_whole():
            os.utime(self.path)
            return [f"-XX:SharedArchiveFile={self.path}", _QUIET]
        # A name of its own: two JVMs that write one file at the same time would spoil it.
        return [f"{_WRITES}{self.folder / f'{self.digest}-{uuid.uuid4().hex[:8]}.new'}", _QUIET]

    def _is_whole(self) -> bool:
        """Whether the archive exists with its full length, and no other user could have written it."""
        try:
            status = self.path.lstat()
            return is_private(status) and status.st_size == int(read_private(self._size))
        except (OSError, ValueError):
            return False

    def _adopt(self) -> None:
        """Use an archive that an earlier JVM has completed, and remove what is left of others."""
        for new in self.folder.glob("*.new"):
            if not _is_complete(new):
                if _age(new) > _UNUSED:
                    new.unlink(missing_ok=True)
            elif new.name.startswith(f"{self.digest}-") and not self._is_whole():
                write_private(self._size, str(new.stat().st_size).encode())
                new.chmod(0o600)
                new.replace(self.path)
            elif new.name.startswith(f"{self.digest}-"):
                new.unlink(missing_ok=True)
        for other in self.folder.glob("*.jsa"):
            if other != self.path and _age(other) > _UNUSED:
                other.unlink(missing_ok=True)
                other.with_suffix(".size").unlink(missing_ok=True)


def _is_complete(path: Path) -> bool:
    """Whether a JVM of this user has written a whole archive to this file."""
    try:
        with path.open("rb") as file:
            return is_private(path.lstat()) and file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def class_archive_options(jars: Path, given: Iterable[str] = ()) -> list[str]:
    """The options with which a JVM uses the archive of its classes, or writes it at exit.

    Args:
        jars: The folder with Spark's jar files.
        given: The other options of the JVM. If they choose a class archive, none is used here.

    Returns:
        Options for the command ``java``; none if the archive is switched off or cannot be used here.

    >>> class_archive_options(Path("jars"), ["-Xshare:off"])
    []
    """
    if os.name != "posix" or any(own in text for own in _OWN_CHOICE for text in given):
        return []
    home = _java_home()
    if home is None or not any((home / base).is_file() for base in _BASE):
        return []
    folder = _folder()
    if folder is None or any(sign in str(folder) for sign in " \"'\\"):
        return []
    try:
        return ClassArchive(folder, _digest(home, jars)).options()
    except OSError:
        return []  # the archive only saves time: a full disk must not keep a session from starting


def writes_archive(options: Iterable[str]) -> bool:
    """Whether a JVM with these options writes an archive when it exits.

    >>> writes_archive(["-XX:ArchiveClassesAtExit=cache/4f1a.new"])
    True
    """
    return any(option.startswith(_WRITES) for option in options)


def operator_classes(jars: Path) -> Iterator[str]:
    """The names of the classes that operators use, in the jar files of Spark and Arrow.

    A JVM that writes an archive loads them before it exits, because its program may not have used operators.
    """
    for jar in sorted([*jars.glob("spark-*.jar"), *jars.glob("arrow-*.jar")]):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith(_OPERATOR_PACKAGES) and name.endswith(".class"):
                    yield name.removesuffix(".class").replace("/", ".")


def _java_home() -> Path | None:
    """The home of the Java that Spark's scripts start."""
    given = os.environ.get("JAVA_HOME")
    java = str(Path(given) / "bin" / "java") if given else "java"
    found = shutil.which(java)
    return None if found is None else Path(found).resolve().parent.parent


def _folder() -> Path | None:
    """The folder of the archives; None if there is none, or archives are switched off."""
    chosen = os.environ.get(VARIABLE, "")
    return None if chosen.lower() in _OFF else cache_folder(chosen)


def cache_folder(chosen: str = "") -> Path | None:
    """A folder in which only this user can write; None if there is none.

    Args:
        chosen: The path of the folder; that in the user's cache folder if empty.

    >>> cache_folder("/proc/no/such/folder") is None
    True
    """
    try:
        if chosen:
            folder = Path(chosen)
        else:
            cache = "Library/Caches" if sys.platform == "darwin" else ".cache"
            parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / cache
            folder = Path(parent) / "slackwater"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):  # a read-only disk, or no home folder
        return None
    # The JVM runs the code in an archive, so no other user may be able to replace it.
    private = status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if private and os.access(folder, os.W_OK) else None


def _digest(home: Path, jars: Path) -> str:
    """What an archive depends on: the release of Java, and the jar files on the class path."""
    release = home / "release"
    known = [str(home), release.read_text("utf-8") if release.is_file() else ""]
    for jar in sorted(jars.glob("*.jar")):
        status = jar.stat()
        known.append(f"{jar} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
