"""The identity of a job: what it reads and what it writes, without credentials.

It is recorded with the history of the job. A second job file with the same name would otherwise find that
everything was read already.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from slackwater.errors import InvalidArgument
from slackwater.ingest.jobfile.job import Job
from slackwater.sql.database import database_url, redacted_url

_ACCOUNT: Final = re.compile(r"//[^/@]*@")
_OPTIONS: Final = re.compile(r"[?;#].*", re.DOTALL)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class IdentityPart:
    """One part of an identity: the text that messages show, and a digest of the whole to compare."""

    shown: str
    digest: str


def identity_of(job: Job) -> dict[str, IdentityPart]:
    """The source and the target of a job by key, for the keys that are set.

    A query is not part of it, because a query that selects one more column is still the same job.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> keys = {"ms.source.type": "sql", "ms.source.url": "postgresql://app:secret@db.example/shop"}
    >>> {key: part.shown for key, part in identity_of(parse_job(keys)).items()}
    {'ms.source.type': 'sql', 'ms.source.url': 'postgresql://db.example/shop'}
    """
    settings = job.settings
    given = {
        "ms.source.type": settings.source_type,
        "ms.source.url": _bare(settings.source_url),
        "ms.source.table": settings.source_table,
        "ms.source.path": _absolute(settings.source_path),
        "ms.target.type": settings.target_type,
        "ms.target.url": _bare(settings.target_url),
        "ms.target.table": settings.target_table,
        "ms.target.path": _absolute(settings.target_path),
        "ms.target.stream": settings.target_stream,
    }
    return {
        key: IdentityPart(job.secrets.mask(text), hashlib.sha256(text.encode()).hexdigest())
        for key, text in given.items()
        if text is not None
    }


def changes_between(recorded: Mapping[str, IdentityPart], found: Mapping[str, IdentityPart]) -> list[str]:
    """The keys whose values differ, in words; a key that only one of the two has is not a difference.

    >>> old, new = IdentityPart("orders", "1"), IdentityPart("returns", "2")
    >>> changes_between({"ms.source.table": old}, {"ms.source.table": new})
    ["ms.source.table = 'orders' (now 'returns')"]
    """
    return [
        f"{key} = {part.shown!r} (now {found[key].shown!r})"
        for key, part in recorded.items()
        if key in found and found[key].digest != part.digest
    ]


def _bare(given: SecretStr | None) -> str | None:
    """An address without its account and its options, so that credentials can change."""
    if given is None:
        return None
    address = given.get_secret_value()
    try:
        url = database_url(address)
    except InvalidArgument:
        return _ACCOUNT.sub("//", _OPTIONS.sub("", address), count=1)
    return redacted_url(url._replace(username=None))


def _absolute(path: str | None) -> str | None:
    if path is None or _SCHEME.match(path):
        return path
    return str(Path(path).absolute())
