"""A Parquet table without symbolic links: one object, the manifest, lists the files that belong to the table.

Files are never changed, and the manifest is replaced by one conditional request, so readers see the table
before or after a commit. Two processes that commit at the same time cannot overwrite each other: the second
one finds another manifest than the one that it has read, and makes its change again.

The files are in a folder that readers of folders skip. Spark finds them by a copy of the list in the format
of the log of its own file sink, ``_spark_metadata``; ``spark.read.parquet`` reads one version of the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from slackwater.errors import CorruptState, InvalidArgument, SlackwaterError
from slackwater.progress.completeness import Completeness
from slackwater.tables.object_store import ObjectStore, is_object_store, object_store
from slackwater.tables.spark_file_log import FOLDER as SPARK_LOG
from slackwater.tables.spark_file_log import check_no_file_log, log_content, log_file, log_key, log_versions

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

MANIFEST: Final = "_slackwater_manifest.json"
DATA: Final = "_data"
"""The folder of all files; its name begins with _ because a listing may contain replaced files."""
_SPARK_LOGS_KEPT: Final = 10
"""How many copies of the list are kept, for Spark drivers that have listed the folder of the log."""
_FORMAT: Final = 1
_MAX_ATTEMPTS: Final = 100


class CommitsTooFrequent(SlackwaterError):
    """Other processes committed to a table in every attempt to change it.

    >>> print(CommitsTooFrequent("s3://shop/orders"))
    100 attempts to commit to s3://shop/orders failed because other processes committed first; run fewer \
jobs that write to it at the same time, then run this one again
    """

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{_MAX_ATTEMPTS} attempts to commit to {url} failed because other processes committed first; "
            "run fewer jobs that write to it at the same time, then run this one again"
        )


class TableFile(msgspec.Struct, frozen=True):
    """A file of the table, and the slice of the unit that its rows belong to."""

    key: str
    size: int
    unit: str
    start: int
    low: int
    high: int
    columns: int
    """The position of its columns in the list of the manifest."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a table.

    >>> Manifest.decode(Manifest(version=3, fences={"orders": 7}).encode()).fences
    {'orders': 7}
    """

    format: int = _FORMAT
    version: int = 0
    files: tuple[TableFile, ...] = ()
    schemas: tuple[bytes, ...] = ()
    """The columns that the table has had, as serialized Arrow schemas; the last one is that of the table."""
    letters: dict[str, str] = {}
    """The key of the object with the dead letters of each unit that has some."""
    fences: dict[str, int] = {}
    """The highest fencing token of each job."""
    complete_until: dict[str, int] = {}
    """The time up to which each job has read everything."""

    @property
    def columns(self) -> dict[str, pa.DataType] | None:
        """The columns of the table; None before the first rows."""
        if not self.schemas:
            return None
        return {one.name: one.type for one in pa.ipc.read_schema(pa.py_buffer(self.schemas[-1]))}

    def with_columns(self, columns: Mapping[str, pa.DataType]) -> Manifest:
        """The manifest with these columns as those of the table."""
        if not columns or self.columns == dict(columns):
            return self
        schema = pa.schema(list(columns.items())).serialize().to_pybytes()
        return msgspec.structs.replace(self, schemas=(*self.schemas, schema))

    def encode(self) -> bytes:
        """The manifest as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        """Read what `encode` returned."""
        try:
            found = msgspec.json.decode(content, type=cls)
        except msgspec.DecodeError as error:
            raise CorruptState("manifest of a table", str(error)) from error
        if found.format != _FORMAT:
            raise CorruptState("manifest of a table", f"format {found.format} was written by a newer release")
        return found


@dataclass(frozen=True)
class ManifestTable:
    """A table at a URL.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     table = ManifestTable(object_store(f"file://{folder}/orders"))
    ...     _ = table.commit(lambda found: msgspec.structs.replace(found, fences={"orders": 7}))
    ...     table.read().version, table.read().fences
    (1, {'orders': 7})
    """

    store: ObjectStore

    def read(self) -> Manifest:
        """The current version; an empty one if the table does not exist."""
        found = self.store.read(MANIFEST)
        return Manifest() if found is None else Manifest.decode(found.content)

    def commit(self, change: Callable[[Manifest], Manifest | None]) -> Manifest | None:
        """Change the current version; ``change`` is called again if another process committed first.

        Args:
            change: Returns the new version. It may raise, or return None; then nothing is changed.

        Returns:
            The new version, or None if ``change`` returned None.
        """
        for _ in range(_MAX_ATTEMPTS):
            found = self.store.read(MANIFEST)
            before = Manifest() if found is None else Manifest.decode(found.content)
            if found is None:
                check_no_file_log(self.store, f"parquet:{self.store.url}")
            changed = change(before)
            if changed is None or changed == before:
                return changed
            after = msgspec.structs.replace(changed, version=before.version + 1)
            if self.store.replace(MANIFEST, after.encode(), None if found is None else found.tag):
                return after
        raise CommitsTooFrequent(self.store.url)

    def publish(self, manifest: Manifest) -> None:
        """Write the copy of a version for Spark. A version that was published already stays as it is.

        Spark derives from the two newest names how often a complete list is written, so both of them have to
        be there and consecutive; the one before has the same list if its process ended before it wrote it.
        """
        known = log_versions(self.store.keys(SPARK_LOG))
        content = log_content(log_file(self.store.url_of(file.key), file.size) for file in manifest.files)
        for version in (manifest.version - 1, manifest.version):
            if version not in known:
                self.store.replace(log_key(version, complete=True), content, None)
        old = [version for version in known if version < manifest.version - _SPARK_LOGS_KEPT]
        self.store.delete(log_key(version, complete=True) for version in old)


def manifest_completeness(location: str) -> dict[str, Completeness] | None:
    """The completeness that each job states in the manifest of a table.

    Args:
        location: A path or a URL.

    Returns:
        The completeness by identity; None if a local folder has no manifest.

    >>> manifest_completeness("/no/such/table") is None
    True
    """
    if not is_object_store(location):
        location = Path(location).absolute().as_uri()
    manifest = ManifestTable(object_store(location)).read()
    if not manifest.version and location.startswith("file:"):
        return None
    return {f"ingest:{job}": Completeness(until) for job, until in manifest.complete_until.items()}


def parquet_dataset(url: str) -> Dataset:
    """The current version of a Parquet table with a manifest, as a PyArrow dataset.

    The dataset contains the files of one version, whatever is written later, until a later run of a job that
    writes to the table removes files that it has replaced. Its ``files`` can be passed to other readers.

    Args:
        url: The URL of the table, ``ms.target.path`` of the job that writes it.

    Returns:
        The dataset, with the fields of the units as columns of text.

    Raises:
        InvalidArgument: There is no table with a manifest at the URL, or it has no rows yet.
        MissingExtra: The package that reads the object store is not installed.
        ObjectStoreFailed: The object store cannot be used.

    >>> parquet_dataset("file:///no/such/table")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: url = 'file:///no/such/table': is not a table with a manifest; use \
ms.target.path of a job with a parquet target and ms.target.layout: manifest, after its first run
    """
    from pyarrow import dataset, fs

    store = object_store(url)
    manifest = ManifestTable(store).read()
    if manifest.columns is None:
        fix = (
            "use ms.target.path of a job with a parquet target and ms.target.layout: manifest, after its "
            "first run"
        )
        raise InvalidArgument("url", store.url, "is not a table with a manifest", fix=fix)
    parts = urlsplit(store.url)
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    filesystem, root = fs.FileSystem.from_uri(f"{scheme}://{parts.netloc}{parts.path}")
    units = [name for file in manifest.files[:1] for name in json.loads(file.unit)]
    partitions = pa.schema([(name, pa.string()) for name in units])
    schema = pa.schema([*manifest.columns.items(), *zip(partitions.names, partitions.types, strict=True)])
    return dataset.dataset(
        [f"{root}/{file.key}" for file in manifest.files],
        schema=schema,
        format="parquet",
        filesystem=filesystem,
        partitioning=dataset.partitioning(partitions, flavor="hive"),
        partition_base_dir=f"{root}/{DATA}",
    )
