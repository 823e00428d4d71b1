"""Glob patterns: which files they match, on any file system."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.ingest.sources.globs import escaped, expression_of, inside, root_of


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/in/*.csv", "/in/a.csv", True),
        ("/in/*.csv", "/in/b/a.csv", False),
        ("/in/**/*.csv", "/in/a.csv", True),
        ("/in/**/*.csv", "/in/b/c/a.csv", True),
        ("/in/**", "/in/b/c/a.csv", True),
        ("/in/a.csv", "/in/a.csv", True),
        ("/in", "/in/a.csv", True),
        ("/in", "/in/b/a.csv", False),
        ("/in/?.csv", "/in/ab.csv", False),
        ("/in/[a-c].csv", "/in/b.csv", True),
        ("/in/[!a-c].csv", "/in/b.csv", False),
        ("/in/{a,b}.csv", "/in/b.csv", True),
        ("/in/{a,b}.csv", "/in/c.csv", False),
        ("/in/a.csv", "/in/aXcsv", False),
        (r"/in/\*.csv", "/in/*.csv", True),
        (r"/in/\*.csv", "/in/a.csv", False),
        ("in/*.csv", "/shop/in/a.csv", True),
        ("./in/*.csv", "/shop/in/a.csv", True),
        ("../in/*.csv", "/shop/in/a.csv", True),
        ("in/*.csv", "/shop/within/a.csv", False),
        ("hdfs://h:1/in/*", "/in/a", True),
        ("file:///in/*", "/in/a", True),
        ("/in/a:/*.csv", "/in/a:/b.csv", True),
    ],
)
def test_patterns_match_the_expected_paths(pattern: str, path: str, matches: bool) -> None:
    assert bool(expression_of(pattern).fullmatch(path)) is matches


@given(st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1))
def test_an_escaped_name_matches_only_itself(name: str) -> None:
    if name not in (".", ".."):
        assert expression_of(f"/in/{escaped(name)}/x").fullmatch(f"/in/{name}/x")
        assert not expression_of(f"/in/{escaped(name)}/x").fullmatch(f"/in/{name}y/x")


@pytest.mark.parametrize(
    ("pattern", "root"),
    [
        ("/**/a", "/"),
        ("**/a", "."),
        ("a/b", "a/b"),
        ("x://h/in/*/**/b/**", "x://h/in/*"),
        ("file:///a/**", "file:///a"),
    ],
)
def test_the_root_that_the_file_system_lists(pattern: str, root: str) -> None:
    assert root_of(pattern) == root


def test_a_path_within_its_file_system() -> None:
    assert [inside(path) for path in ("viewfs://shop/in/a b", "file:/a:b", "s3a://b/c")] == [
        "/in/a b",
        "/a:b",
        "/c",
    ]
