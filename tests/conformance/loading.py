"""Reads a folder of case files into cases to run, and into problems that must fail.

Nothing in the folder is skipped silently: what cannot be read, names no known suite or uses an
id twice becomes a problem with the file in its name, and each problem becomes a failing test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.conformance import suites
from tests.conformance.framework import BrokenCase, Case, Difference, Fields, check_case

TRANSCRIPTS = "transcripts"
_FILE = Fields(required={"suite", "cases"})


@dataclass(frozen=True)
class Loaded:
    """One test: a case with its suite, or the problem that keeps it from being run."""

    name: str
    case: Case | None = None
    suite: suites.Suite | None = None
    subject: str = ""
    problem: str = ""

    def run(self) -> None:
        """Run the case, or fail with the problem."""
        if self.case is None or self.suite is None:
            raise Difference(self.problem)
        try:
            check_case(self.case, self.suite.fields, self.suite.steps)
            self.suite.subjects[self.subject](self.case)
        except AssertionError as difference:
            subject = f" ({self.subject})" if self.subject else ""
            source = f"\nfrom {self.case['from']}" if "from" in self.case else ""
            raise Difference(
                f"{self.suite.name} / {self.case.get('id')}{subject}{source}\n{difference}"
            ) from difference


@dataclass
class Folder:
    """All tests of a folder, and how many cases wait for a suite that is not built."""

    tests: list[Loaded] = field(default_factory=list)
    not_built: Counter[str] = field(default_factory=Counter)


_TIME = "tag:yaml.org,2002:timestamp"
"""Dates stay as they are written, as in a job file."""


class _Strict(yaml.constructor.SafeConstructor):
    """YAML in which a key written twice is an error; PyYAML would silently keep the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = Counter(self.construct_object(key, deep=True) for key, _ in node.value)
        if twice := [key for key, count in keys.items() if count > 1]:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {twice[0]!r} is written twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


class _StrictLoader(_Strict, yaml.SafeLoader):
    """Reads every case file, ten times as slowly as the other."""


_StrictLoader.add_constructor(_TIME, lambda _, node: node.value)


class _QuickLoader(_Strict, yaml.CSafeLoader):
    """Reads what libyaml reads, which refuses a colon within a plain word, as in ``[a:b]``."""


_QuickLoader.add_constructor(_TIME, lambda _, node: node.value)


@cache
def shipped_cases() -> Folder:
    """The tests of the cases in this repository."""
    return load_folder(Path(__file__).parent / "cases")


def load_folder(folder: Path) -> Folder:
    """The tests of every ``*.yaml`` and ``*.yml`` file in ``folder``, in the order of the file names."""
    loaded = Folder()
    files = (
        sorted(path for path in folder.iterdir() if path.suffix in {".yaml", ".yml"})
        if folder.is_dir()
        else []
    )
    if not files:
        loaded.tests.append(Loaded(name=folder.name, problem=f"no case files in {folder}"))
    for path in files:
        try:
            _load_file(path, loaded)
        except (BrokenCase, suites.UnknownSuite, yaml.YAMLError) as error:
            loaded.tests.append(Loaded(name=path.name, problem=f"{path.name}: {error}"))
    _refuse_duplicates(loaded)
    return loaded


def _load_file(path: Path, loaded: Folder) -> None:
    documents = _documents(path.read_text(encoding="utf-8"))
    if not documents:
        raise BrokenCase("holds no case")
    if any(isinstance(document, dict) and "suite" in document for document in documents):
        if len(documents) != 1:
            raise BrokenCase("a file with `suite` must be one document")
        _FILE.check(documents[0], "file")
        name, cases = documents[0]["suite"], documents[0]["cases"]
        if not isinstance(cases, list) or not cases:
            raise BrokenCase(f"`cases` must be a list with at least one case, got {cases!r}")
    else:
        name, cases = TRANSCRIPTS, [_named(document) for document in documents]
    if name in suites.NOT_BUILT:
        loaded.not_built[name] += len(cases)
        return
    suite = suites.load(str(name))
    for number, case in enumerate(cases, 1):
        if not isinstance(case, dict) or not isinstance(case.get("id"), str):
            problem = f"{path.name}: case {number} has no id (for a transcript: no name)"
            loaded.tests.append(Loaded(name=f"{path.name}-{number}", problem=problem))
            continue
        for subject in suite.subjects:
            marker = f"{subject}-" if subject else ""
            loaded.tests.append(Loaded(f"{suite.name}-{marker}{case['id']}", case, suite, subject))


def _documents(text: str) -> list[Any]:
    try:
        read = list(yaml.load_all(text, Loader=_QuickLoader))
    except yaml.YAMLError:
        read = list(yaml.load_all(text, Loader=_StrictLoader))
    return [document for document in read if document is not None]


def _named(document: object) -> object:
    """A transcript calls its id `name`."""
    if not isinstance(document, dict) or "name" not in document:
        return document
    if "id" in document:
        raise BrokenCase("a transcript has a `name`, not an `id`")
    return {"id": document["name"]} | {key: value for key, value in document.items() if key != "name"}


def _refuse_duplicates(loaded: Folder) -> None:
    uses = Counter((test.case["id"], test.subject) for test in loaded.tests if test.case is not None)
    for (name, _), count in uses.items():
        if count > 1:
            problem = f"the id {name!r} is used {count} times; ids are unique over the whole folder"
            loaded.tests.append(Loaded(name=f"duplicate-{name}", problem=problem))
