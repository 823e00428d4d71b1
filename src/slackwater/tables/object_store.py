"""Objects below a URL: on S3 and stores like it, or files below ``file:``.

Credentials and endpoints come from the environment of each process, such as ``AWS_ACCESS_KEY_ID`` and
``AWS_ENDPOINT_URL``, or from the role of the machine. They are never part of a URL, so they are in no
message, job history or saved state.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit

from slackwater._durable_files import file_lock, fsync_path
from slackwater._extras import naming_extras
from slackwater.errors import InvalidArgument, SlackwaterError

SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss", "file")
"""The schemes of URLs. S3 is ``s3a`` for Spark with hadoop-aws, and ``s3`` for most other programs."""
_URL: Final = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
LOCK: Final = "_slackwater.lock"
"""The file below a ``file:`` URL that is locked while a file is replaced."""
_LONGEST_REASON: Final = 300
_SAFE: Final = "/=:@!$&()*+,;~"
"""Characters of a path that are not escaped in a URL."""

_KINDS: Final = ("csv", "delta", "iceberg", "json", "parquet", "stream")
"""The beginnings of addresses of tables."""
_ACCOUNT: Final = re.compile(
    rf"\A(\s*(?:(?:(?:{'|'.join((*_KINDS, *SCHEMES))}):|[A-Za-z][A-Za-z0-9+.-]*:(?=//))\s*)*/*).*@",
    re.DOTALL | re.IGNORECASE,
)
"""Everything before the last ``@`` except known schemes. A secret may contain any character, so whatever
follows a scheme may be an account."""

Result = TypeVar("Result")


class ObjectStoreFailed(SlackwaterError):
    """An object store refused a request, or cannot be reached.

    >>> print(ObjectStoreFailed("s3://shop/orders", "Access Denied"))
    s3://shop/orders cannot be used: Access Denied; check the bucket, and the credentials, region and \
endpoint in the environment of the driver and of the executors, as in AWS_ACCESS_KEY_ID, AWS_REGION and \
AWS_ENDPOINT_URL
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"{url} cannot be used: {reason}; check the bucket, and the credentials, region and endpoint in "
            "the environment of the driver and of the executors, as in AWS_ACCESS_KEY_ID, AWS_REGION and "
            "AWS_ENDPOINT_URL"
        )


class StoredObject(NamedTuple):
    """The content of an object, and the tag that identifies this content."""

    content: bytes
    tag: str


@dataclass(frozen=True)
class ObjectStore(ABC):
    """The objects below a URL; a key is a path relative to it. It can be sent to executors."""

    url: str
    """The URL, with escaped characters."""

    def url_of(self, key: str) -> str:
        """The URL of an object, with escaped characters."""
        return f"{self.url}/{quote(key, safe=_SAFE)}"

    @abstractmethod
    def read(self, key: str) -> StoredObject | None:
        """The content of an object; None if there is none."""

    @abstractmethod
    def write(self, key: str, content: bytes | Path) -> None:
        """Write an object, from memory or from a file; it appears when it is complete."""

    @abstractmethod
    def upload(self, file: BinaryIO, key: str) -> None:
        """Write an object from an open file, from its beginning."""

    @abstractmethod
    def replace(self, key: str, content: bytes, tag: str | None) -> bool:
        """Write an object if its content still has the tag, or, for None, if there is none yet.

        Returns:
            Whether it was written; if not, another process wrote it first.
        """

    @abstractmethod
    def size(self, key: str) -> int:
        """The size of an object in bytes.

        Raises:
            FileNotFoundError: There is none.
        """

    @abstractmethod
    def keys(self, folder: str) -> list[str]:
        """The keys of all objects in a folder and below, sorted."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that does not exist is ignored."""

    @abstractmethod
    def local_file(self, key: str, folder: Path) -> Path:
        """An object as a local file: a copy in a folder, unless it is one already."""


def object_store(url: str) -> ObjectStore:
    """The objects below a URL.

    Args:
        url: A URL without credentials.

    Returns:
        The store.

    Raises:
        InvalidArgument: It is not the URL of an object store, or contains credentials.

    >>> object_store("s3://shop/orders/").url
    's3://shop/orders'
    >>> object_store("s3://key:secret@shop/orders")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: url = 's3://…@shop/orders': contains credentials or options; remove \
them, and set them in the environment of the driver and of the executors, as in AWS_ACCESS_KEY_ID
    """
    found = _URL.match(url)
    if found is None or found[1].lower() not in SCHEMES:
        fix = f"use one of the schemes {', '.join(SCHEMES)}, as in s3://bucket/folder"
        raise InvalidArgument("url", shown_url(url), "is not the URL of an object store", fix=fix)
    parts = urlsplit(url)
    is_file = parts.scheme.lower() == "file"
    if not is_file and not parts.netloc:
        fix = "write it with two slashes and the bucket, as in s3://bucket/folder"
        raise InvalidArgument("url", shown_url(url), "has no bucket name", fix=fix)
    if is_file and parts.netloc.lower() not in ("", "localhost"):
        fix = "write a path of this machine with three slashes, as in file:///data/orders"
        raise InvalidArgument("url", shown_url(url), "has the name of a host", fix=fix)
    path = quote(unquote(parts.path.rstrip("/")), safe=_SAFE)
    names_account = parts.scheme in ("abfs", "abfss") and ":" not in parts.netloc  # container@account
    has_account = ("@" in parts.netloc and not names_account) or (":" in parts.netloc and not is_file)
    if parts.query or parts.fragment or has_account:
        fix = (
            "remove them, and set them in the environment of the driver and of the executors, as in "
            "AWS_ACCESS_KEY_ID"
        )
        raise InvalidArgument("url", shown_url(url), "contains credentials or options", fix=fix)
    if is_file:
        return FolderObjects(f"file://{path}")
    return RemoteObjects(f"{parts.scheme}://{parts.netloc}{path}")


def is_object_store(url: str) -> bool:
    """Whether a text is a URL that `object_store` accepts by its scheme; ``file:`` is one.

    >>> is_object_store("s3://shop/orders"), is_object_store("/data/orders"), is_object_store("hdfs://host/a")
    (True, False, False)
    """
    found = _URL.match(url)
    return found is not None and found[1].lower() in SCHEMES


def folder_url(location: str) -> str:
    """The URL of a path; a URL stays as it is.

    >>> folder_url("/data/all panes"), folder_url("s3://lake/panes")
    ('file:///data/all%20panes', 's3://lake/panes')
    """
    return location if is_object_store(location) else Path(location).absolute().as_uri()


def shown_url(url: str) -> str:
    """A URL or the address of a table as messages show it: without options, and nothing before an ``@``.

    >>> shown_url("s3://key:secret@bucket/a?token=x"), shown_url("parquet:s3://key:sec/ret@bucket/a")
    ('s3://…@bucket/a?…', 'parquet:s3://…@bucket/a')
    >>> shown_url("parquet:s3:key:secret@bucket/a"), shown_url("key:secret@bucket")
    ('parquet:s3:…@bucket/a', '…@bucket')
    """
    return re.sub(r"[?#].*", "?…", _ACCOUNT.sub(r"\1…@", url), flags=re.DOTALL)


def without_secret(url: str) -> str:
    """A URL without an account and its secret; the name of a container of Azure stays, before an account.

    >>> without_secret("s3://key:sec/ret@bucket/a"), without_secret("abfss://box@account.example/a")
    ('s3://…@bucket/a', 'abfss://box@account.example/a')
    """
    # A secret may contain slashes, which a URL does not allow there: redact up to the last "@".
    redacted = re.sub(r"(?<=:/)(/?)[^/@]*:.*@", r"\1…@", url, flags=re.DOTALL)
    return re.sub(r"\b((?:s3|s3a|gs|az):/{1,2})[^/]*@", r"\1…@", redacted, flags=re.IGNORECASE)


class FolderObjects(ObjectStore):
    """Files below a ``file:`` URL; every write survives a crash of the machine.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     store = object_store(f"file://{folder}/orders")
    ...     store.replace("a", b"1", None), store.replace("a", b"2", None), store.read("a").content
    (True, False, b'1')
    """

    @property
    def folder(self) -> Path:
        """The folder."""
        return Path(unquote(urlsplit(self.url).path))

    def read(self, key: str) -> StoredObject | None:
        """The content of a file; its tag is a digest of it."""
        try:
            content = (self.folder / key).read_bytes()
        except FileNotFoundError:
            return None
        return StoredObject(content, hashlib.sha256(content).hexdigest())

    def write(self, key: str, content: bytes | Path) -> None:
        """Write a file under another name, and rename it."""
        path = self.folder / key
        _make_folder(path.parent)
        fresh = path.with_name(f"_{path.name}-{uuid.uuid4().hex}")
        try:
            if isinstance(content, bytes):
                fresh.write_bytes(content)
            else:
                shutil.copyfile(content, fresh)
            fsync_path(fresh)
            fresh.replace(path)
        except OSError:  # a full disk, for example
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise
        fsync_path(path.parent)

    def upload(self, file: BinaryIO, key: str) -> None:
        """Copy the file."""
        file.seek(0)
        self.write(key, file.read())

    def rename(self, names: Mapping[str, str]) -> None:
        """Give files of the folder other names, except those that have them already.

        Args:
            names: The new names by the old ones.

        Raises:
            FileNotFoundError: A file has neither name.
        """
        for old, new in names.items():
            if not (self.folder / new).exists():
                (self.folder / old).rename(self.folder / new)
        if names:
            fsync_path(self.folder)  # once, which takes milliseconds

    def replace(self, key: str, content: bytes, tag: str | None) -> bool:
        """Compare and write under a lock."""
        _make_folder(self.folder)
        with file_lock(self.folder / LOCK):
            found = self.read(key)
            if (None if found is None else found.tag) != tag:
                return False
            self.write(key, content)
            return True

    def size(self, key: str) -> int:
        """The size of a file."""
        return (self.folder / key).stat().st_size

    def keys(self, folder: str) -> list[str]:
        """The paths of all files."""
        found = (path for path in (self.folder / folder).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove files."""
        for key in keys:
            (self.folder / key).unlink(missing_ok=True)

    def local_file(self, key: str, folder: Path) -> Path:
        """The path of the file."""
        return self.folder / key


def local_folder(store: ObjectStore) -> Path | None:
    """The folder of the objects; None if they are not files of this machine.

    >>> local_folder(object_store("file:///data/orders")), local_folder(object_store("s3://shop/orders"))
    (PosixPath('/data/orders'), None)
    """
    return store.folder if isinstance(store, FolderObjects) else None


class RemoteObjects(ObjectStore):
    """Objects on S3, Google Cloud Storage or Azure, with conditional requests."""

    def read(self, key: str) -> StoredObject | None:
        """The content of an object and its ETag."""

        def request(store: Any) -> StoredObject | None:
            try:
                found = _library().get(store, key)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None
            return StoredObject(found.bytes().to_bytes(), str(found.meta["e_tag"]))

        return self._ask(request)

    def write(self, key: str, content: bytes | Path) -> None:
        """Upload an object, in several parts if it is large."""
        self._ask(lambda store: _library().put(store, key, content))

    def upload(self, file: BinaryIO, key: str) -> None:
        """Upload the file, in several parts if it is large."""
        file.seek(0)
        self._ask(lambda store: _library().put(store, key, file))

    def replace(self, key: str, content: bytes, tag: str | None) -> bool:
        """Write with ``If-Match``, or ``If-None-Match``."""
        library = _library()

        def request(store: Any) -> bool:
            try:
                library.put(store, key, content, mode="create" if tag is None else {"e_tag": tag})
            except (library.exceptions.AlreadyExistsError, library.exceptions.PreconditionError):
                return False
            return True

        return self._ask(request)

    def size(self, key: str) -> int:
        """Ask for the metadata of an object."""

        def request(store: Any) -> int | None:
            try:
                return int(_library().head(store, key)["size"])
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

        found = self._ask(request)
        if found is None:
            raise FileNotFoundError(self.url_of(key))
        return found

    def keys(self, folder: str) -> list[str]:
        """List all objects."""
        return self._ask(
            lambda store: sorted(one["path"] for part in _library().list(store, folder) for one in part)
        )

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects in bulk."""
        wanted = list(keys)
        if wanted:
            self._ask(lambda store: _library().delete(store, wanted))

    def local_file(self, key: str, folder: Path) -> Path:
        """Download an object."""
        path = folder / uuid.uuid4().hex

        def request(store: Any) -> Path:
            with path.open("wb") as file:
                for part in _library().get(store, key):
                    file.write(part)
            return path

        return self._ask(request)

    def _ask(self, request: Callable[[Any], Result]) -> Result:
        library = _library()
        try:
            return request(library.store.from_url(self.url))
        except (library.exceptions.BaseError, OSError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            # the rest of the message lists requests
            raise ObjectStoreFailed(self.url, lines[0][:_LONGEST_REASON]) from None


def _make_folder(folder: Path) -> None:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        fsync_path(path.parent)


def _library() -> Any:
    with naming_extras():
        import obstore
        import obstore.exceptions
        import obstore.store
    return obstore
