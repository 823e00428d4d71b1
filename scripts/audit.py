"""`python scripts/audit.py [--index URL]`: known security advisories for the packages in requirements.lock.

Without an index, the packages are compared with the record in security/advisories.json, which needs no
network. With one (the address of the JSON API of a package index, such as https://index.example/pypi), the
advisories are looked up and the record is renewed. Ends with 1 if a package has an advisory that is not
accepted in the record, or a version that the record does not contain.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx

ROOT: Final = Path(__file__).parents[1]
LOCK: Final = ROOT / "requirements.lock"
RECORD: Final = ROOT / "security" / "advisories.json"
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
Fetch = Callable[[str], Mapping[str, Any] | None]
"""The JSON document at a path of the index; None if there is none."""


@dataclass(frozen=True)
class Package:
    """A pinned package and what is known about it."""

    name: str
    version: str
    checked: str = ""
    """The day of the look-up."""
    advisories: tuple[str, ...] | None = None
    """The ids; None if the index says nothing about this version."""

    @property
    def pin(self) -> str:
        """The name and the version, as in the lock."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Record:
    """What was looked up, and which advisories are accepted with which reason."""

    packages: Mapping[str, Package]
    """By pin."""
    accepted: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Record:
        """The record of a file; an empty one if there is none."""
        if not path.exists():
            return cls({})
        saved = json.loads(path.read_text(encoding="utf-8"))
        packages = {
            f"{name}=={version}": Package(
                name, version, checked, None if advisories is None else tuple(advisories)
            )
            for name, version, checked, advisories in saved["packages"]
        }
        return cls(packages, saved["accepted"])

    def save(self, path: Path) -> None:
        """Write the record to a file."""
        lines = ",\n".join(json.dumps(astuple(package)) for package in self.packages.values())
        accepted = json.dumps(dict(self.accepted))
        path.write_text(f'{{"accepted": {accepted}, "packages": [\n{lines}\n]}}\n', encoding="utf-8")


def pinned(lock: str) -> list[Package]:
    """The packages of a lock file."""
    return [Package(name, version) for name, version in _PINNED.findall(lock)]


def look_up(package: Package, fetch: Fetch, day: str) -> Package:
    """The package with the advisories of its version.

    Not every index answers for a single version; then the entry of the newest one is used if it is pinned.
    """
    found = fetch(f"{package.name}/{package.version}/json")
    if found is None:
        newest = fetch(f"{package.name}/json")
        found = newest if newest and newest["info"]["version"] == package.version else None
    known = None if found is None else found.get("vulnerabilities")
    ids = None if known is None else tuple(sorted(entry["id"] for entry in known if not entry["withdrawn"]))
    return Package(package.name, package.version, day, ids)


def findings(packages: Iterable[Package], record: Record) -> list[str]:
    """What has to be done, a sentence for each package."""
    problems: list[str] = []
    for package in packages:
        known = record.packages.get(package.pin)
        if known is None:
            problems.append(f"{package.pin} is not in the record: look it up with make audit INDEX=URL")
            continue
        problems += [
            f"{package.pin} has the advisory {advisory}: choose another version, or "
            f"accept it with a reason in {RECORD.relative_to(ROOT)}"
            for advisory in known.advisories or ()
            if advisory not in record.accepted
        ]
    return problems


def summary(packages: Iterable[Package], record: Record) -> str:
    """What was checked, and what was not."""
    known = [record.packages[package.pin] for package in packages if package.pin in record.packages]
    checked = [package for package in known if package.advisories is not None]
    unknown = sorted(package.pin for package in known if package.advisories is None)
    days = sorted({package.checked for package in checked}) or ["never"]
    between = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    packages_were = "package of {} was" if len(checked) == 1 else "packages of {} were"
    text = f"{len(checked)} {packages_were.format(LOCK.name)} looked up ({between})"
    return text + (f"; not known to the index: {', '.join(unknown)}" if unknown else "")


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--index", metavar="URL", help="the JSON API of a package index: renew the record")
    index = parser.parse_args(arguments).index
    packages = pinned(LOCK.read_text(encoding="utf-8"))
    record = Record.load(RECORD)
    if index is not None:
        day = datetime.now(UTC).date().isoformat()
        with httpx.Client(timeout=30, follow_redirects=True) as client, ThreadPoolExecutor(8) as pool:

            def fetch(path: str) -> Mapping[str, Any] | None:
                answer = client.get(f"{index.rstrip('/')}/{path}")
                return (
                    None if answer.status_code == httpx.codes.NOT_FOUND else answer.raise_for_status().json()
                )

            looked_up = pool.map(lambda package: look_up(package, fetch, day), packages)
            record = Record({package.pin: package for package in looked_up}, record.accepted)
        record.save(RECORD)
    sys.stdout.write(f"{summary(packages, record)}\n")
    problems = findings(packages, record)
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
