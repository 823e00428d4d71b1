"""Job files: both formats, references, secrets, and all problems reported together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from slackwater.ingest import InvalidJob, Job, load_job, parse_job
from slackwater.ingest.jobfile.dil_keys import DIL_KEYS
from slackwater.ingest.jobfile.job_files import read_job_file
from slackwater.ingest.jobfile.job_keys import KEYS
from slackwater.time import DAY, HOUR

AXIS = '[{"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}]'
PROPERTIES = rf"""
# orders of the shop
ms.watermark = {AXIS}
ms.work.unit.partition = \
    daily
ms.grace.period.days : 3
job.class = somewhere.Else
"""
YAML = """
ms.watermark: [{name: system, type: datetime, range: {from: 2020-01-01, to: P0D}}]
ms.work.unit.partition: daily
ms.grace.period.days: 3
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def problems(keys: dict[str, Any], **options: Any) -> list[str]:
    with pytest.raises(InvalidJob) as caught:
        parse_job(keys, **{"environment": {}, **options})
    assert str(caught.value).count("\n") == len(caught.value.problems)
    return [problem.key for problem in caught.value.problems]


# ---- the two forms


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders.properties", PROPERTIES),
        ("orders.pull", PROPERTIES),
        ("orders.yaml", YAML),
        ("orders.yml", YAML),
    ],
)
def test_properties_and_yaml_give_the_same_job(tmp_path: Path, name: str, text: str) -> None:
    read = load_job(write(tmp_path, name, text)).settings
    assert read.name == "orders"
    assert read.partition.kind == "daily"
    assert read.grace == 3 * DAY
    assert read.axis.range == parse_job({"ms.watermark": AXIS}).settings.axis.range


def test_yaml_has_no_implicit_types_of_version_1_1(tmp_path: Path) -> None:
    text = "ms.watermark: [{name: id, type: unit, units: [NO, yes, on, 12:30, 2020-01-01, 0x10, 010]}]"
    units = load_job(write(tmp_path, "a.yaml", text)).units
    assert [unit.as_dict()["id"] for unit in units] == [
        "NO",
        "yes",
        "on",
        "12:30",
        "2020-01-01",
        "0x10",
        "010",
    ]


def test_keys_of_the_source_and_the_target_may_be_grouped_in_yaml(tmp_path: Path) -> None:
    flat = "ms.source.type: sql\nms.source.url: sqlite:///a.db\nms.source.table: prices"
    grouped = "ms.source: {type: sql, url: 'sqlite:///a.db', table: prices}"
    assert read_job_file(write(tmp_path, "b.yaml", grouped)) == read_job_file(write(tmp_path, "a.yaml", flat))


def test_an_empty_file_is_a_job(tmp_path: Path) -> None:
    assert load_job(write(tmp_path, "a.yaml", "")).settings.axis.name == "system"
    assert load_job(write(tmp_path, "a.properties", "# nothing")).settings.grace == 0


LAUGHS = "\n".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 10) if n else 1}]" for n in range(30))
"""Thirty lines that stand for 10³⁰ values."""
CHAIN = "k0: &k0 [1]\n" + "\n".join(f"k{n}: &k{n} [*k{n - 1}]" for n in range(1, 3000))
DOUBLED = "k0 = abcd\n" + "\n".join(f"k{n} = ${{k{n - 1}}}${{k{n - 1}}}" for n in range(1, 40))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.txt", "", "neither a properties nor a YAML file"),
        ("a.yaml", "ms.backfill: true\nms.backfill: false", "in line 2: duplicate key 'ms.backfill'"),
        ("a.yaml", "ms.backfill: true\n? [1, 2]\n: false", "in line 2: a key is not text"),
        ("a.properties", "ms.backfill=true\nms.backfill=false", "occurs 2 times"),
        ("a.yaml", "a: [", "is not YAML in line 1"),
        ("a.yaml", "- a", "mapping of keys to values"),
        ("a.yaml", "ms:\n  backfill: true", "flat"),
        ("a.yaml", "ms.source: {type: sql}\nms.source.type: http", "ms.source.type: occurs 2 times"),
        ("a.yaml", "ms.backfill: !!python/object/apply:os.getcwd []", "is not YAML"),
        ("a.properties", "ms.job.name=\\uzzzz", "hexadecimal"),
        ("a.yaml", "ms.backfill:", "is empty"),
        ("a.properties", "ms.grace.period.days=", "is empty"),
        ("a.yaml", f"a: {'[' * 60}{']' * 60}", "nested more than 50 levels deep"),
        ("a.yaml", f"a: {'{a: ' * 9999}", "nested more than 50 levels deep"),
        ("a.yaml", LAUGHS, "has more than 100000 values, aliases replaced"),
        ("a.yaml", "a: &a [*a]", "has more than 100000 values"),
        (
            "a.yaml",
            "\n".join(f"k{n}: &k{n} [*k{n - 1}]" if n else "k0: &k0 [1]" for n in range(3000)),
            "values",
        ),
        (
            "a.properties",
            "\n".join(f"k{n} = ${{k{n - 1}}}${{k{n - 1}}}" if n else "k0 = abcd" for n in range(40)),
            "has more than 1000000 characters",
        ),
        ("a.properties", "\n".join(f"k{n} = ${{k{n + 1}}}" for n in range(3000)), "a chain of more than 50"),
    ],
)
def test_an_unreadable_file_is_reported_with_the_reason(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(InvalidJob, match=said):
        load_job(write(tmp_path, name, text))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match="cannot be read"):
        load_job(tmp_path / "none.yaml")


# ---- references


def test_a_reference_is_a_key_a_setting_or_the_environment() -> None:
    job = parse_job(
        {"ms.job.name": "${team}-${ms.grace.period.days}-${what}-${env:PLACE}", "ms.grace.period.days": "3",
         "team": "shop"},
        settings={"what": "orders"}, environment={"PLACE": "north"},
    )  # fmt: skip
    assert job.settings.name == "shop-3-orders-north"


def test_a_setting_wins_over_a_key() -> None:
    assert (
        parse_job({"ms.grace.period.days": 3}, settings={"ms.grace.period.days": "5"}).settings.grace
        == 5 * DAY
    )


def test_a_reference_may_stand_for_a_whole_value() -> None:
    job = parse_job(
        {"ms.watermark": "${axis}", "axis": [{"name": "id", "type": "unit", "units": "${ids}"}], "ids": "a,b"}
    )
    assert [str(unit) for unit in job.units] == ["id=a", "id=b"]


def test_a_reference_may_stand_in_a_name() -> None:
    job = parse_job(
        {
            "ms.work.unit.partition": {"${kind}": ["2019-01-01", "-"]}, "kind": "daily", "field": "site",
            "ms.watermark": [{"name": "id", "type": "unit", "units": [{"${field}": "a"}]}],
        }
    )  # fmt: skip
    assert [part.kind for part in job.settings.partition.sub_ranges] == ["daily"]
    assert [str(unit) for unit in job.units] == ["site=a"]


def test_references_in_environment_values_are_not_replaced() -> None:
    assert parse_job({"ms.job.name": "${env:A}"}, environment={"A": "${b}"}).settings.name == "${b}"


@pytest.mark.parametrize(
    "keys",
    [
        {"ms.job.name": "${nothing}"},
        {"ms.job.name": "${}"},
        {"ms.job.name": "${env:NOTHING}"},
        {"ms.job.name": "${ms.job.name}"},
        {"ms.job.name": "${a}", "a": "x${b}", "b": "${a}"},
        {"ms.job.name": "x", "unused": "${nothing}"},
        {"ms.job.name": "${a${b}}", "a1": "x", "b": "1"},
        {"ms.watermark": [{"name": "id", "type": "unit", "units": [{"${nothing}": "a"}]}]},
        {"ms.watermark": [{"name": "id", "type": "unit", "units": [{"${a}": "a", "b": "b"}]}], "a": "b"},
    ],
)
def test_an_unknown_or_circular_reference_is_an_error(keys: dict[str, Any]) -> None:
    assert problems(keys)


def test_a_circular_reference_shows_its_path() -> None:
    with pytest.raises(InvalidJob, match="a → b → c → a"):
        parse_job({"a": "${b}", "b": "${c}", "c": "${a}"}, environment={})


# ---- secrets

SECRET = "p'ss \"w\\rd/9%"  # noqa: S105 - what is to be hidden, with all that quoting may change


def spellings(text: str) -> bool:
    return any(piece in text for piece in ("p'ss", "p\\'ss", "w\\rd", "w\\\\rd", "rd/9", "%22w"))


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_wrong_value_from_the_environment_is_not_shown(key: str) -> None:
    for value in ("${env:SECRET}", ["${env:SECRET}"], {"${env:SECRET}": "${env:SECRET}"}, "[${env:SECRET}"):
        with pytest.raises(InvalidJob) as caught:
            parse_job({key: value, "ms.nothing": value}, environment={"SECRET": SECRET})
        assert not spellings(str(caught.value))
        assert not any(spellings(repr(problem)) for problem in caught.value.problems)


def test_pieces_of_a_secret_are_not_shown_either() -> None:
    watermark = '[{"name": "s", "type": "datetime", "range": {"from": "${env:SECRET}", "to": "-"}}]'
    with pytest.raises(InvalidJob) as caught:
        parse_job({"ms.watermark": watermark}, environment={"SECRET": "2020-01-01 10:00:00Mars/Olympus"})
    assert "Olympus" not in str(caught.value)


def test_a_job_shows_no_value_of_a_key() -> None:
    url = "postgresql://reader:hunter2@example/shop"
    job: Job = parse_job(
        {"ms.source.url": url, "ms.source.http.headers": {"Key": "hunter2"}, "ms.source.query": "${env:Q}"},
        environment={"Q": "select 'hunter2'"},
    )
    for text in (
        repr(job),
        str(job),
        repr(job.settings),
        str(job.settings),
        repr(job.secrets),
        f"{job.settings}",
    ):
        assert "hunter2" not in text
    assert job.settings.source_url is not None
    assert job.settings.source_url.get_secret_value() == url


def test_addresses_and_headers_are_not_shown_when_wrong() -> None:
    with pytest.raises(InvalidJob) as caught:
        parse_job({"ms.source.url": ["hunter2"], "ms.source.http.headers": {"Authorization": ["hunter2"]}})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ms.source.jdbc.pasword", "hunter2"),
        ("ms.source.http.autentication", {"method": "bearer", "token": "hunter2"}),
        ("ms.sorce.url", "postgresql://app:hunter2@db.example/shop"),
        ("ms.source.url", "postgresql://app:hunter2@${hots}/shop"),
        ("ms.source.option", {"user": "app", "password": "hunter2"}),
        ("ms.source.option", '{"user": "app", "passwd": "hunter2"}'),
        ("ms.source.option", "user=app;pwd=hunter2"),
        ("ms.apiKey", "hunter2"),
        ("ms.header", "Authorization: Bearer hunter2-abc"),
        ("ms.backfill", "hunter2"),
    ],
)
def test_a_secret_under_a_wrong_key_is_not_shown(key: str, value: object) -> None:
    with pytest.raises(InvalidJob) as caught:
        parse_job({key: value, "ms.source.jdbc.password": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert not any("hunter2" in repr(problem) for problem in caught.value.problems)
    assert key in str(caught.value)


def test_other_values_are_still_shown() -> None:
    with pytest.raises(InvalidJob) as caught:
        parse_job({"ms.target.keys": "id", "ms.backfill": "maybe", "ms.source.jdbc.password": "hunter2"})
    assert "ms.target.keys = 'id': unknown key" in str(caught.value)
    assert "ms.backfill = 'maybe': is not a boolean" in str(caught.value)


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "SLACKWATER_TEST_NAME", "orders")
    assert parse_job({"ms.job.name": "${env:SLACKWATER_TEST_NAME}"}).settings.name == "orders"


# ---- mistakes


def test_all_problems_are_reported_together() -> None:
    found = problems(
        {
            "ms.watermark": [{"name": "s", "type": "datetime", "range": {"from": "2020-02-30", "to": "P1M"}}],
            "ms.grace.period.days": "-1",
            "ms.work.unit.partition": "lovely",
            "ms.secondary.input": [{"path": "no-such-file"}],
            "ms.backfil": "true",
            "ms.job.name": "${nothing}",
        }
    )
    assert found == [
        "ms.job.name",
        "ms.backfil",
        "ms.watermark[0].range.from",
        "ms.watermark[0].range.to",
        "ms.grace.period.days",
        "ms.work.unit.partition",
        "ms.secondary.input[0].path",
    ]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("ms.watermarks", "ms.watermark"),
        ("ms.grace.days", "ms.grace.period.days"),
        ("ms.work.units.parallelism.max", "ms.work.unit.parallelism.max"),
        ("ms.WATERMARK", "ms.watermark"),
    ],
)
def test_an_unknown_key_names_the_nearest_one(key: str, meant: str) -> None:
    with pytest.raises(InvalidJob, match=f"did you mean {meant}\\?"):
        parse_job({key: "x"})


def test_a_key_of_dil_names_its_key_here() -> None:
    with pytest.raises(
        InvalidJob, match=r"ms\.jdbc\.statement = 'select 1': unknown key; write ms\.source\.query"
    ):
        parse_job({"ms.jdbc.statement": "select 1"})
    guide = (Path(__file__).parents[3] / "docs/guides/moving-a-dil-job.md").read_text(encoding="utf-8")
    table = guide.partition("## Renamed keys")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    for key, here in DIL_KEYS.items():
        [row] = [row for row in rows if f"`{key}`" in row[0]]
        assert all(f"`{name}`" in row[1] for name in here.split(" and "))
    assert all(name in KEYS for here in DIL_KEYS.values() for name in here.split(" and "))


@pytest.mark.parametrize("name", ["..", ".", "...", " orders", "a\nb", "a\0b", "x" * 81, "Ä" * 41])
def test_invalid_names_of_jobs_are_rejected(name: str) -> None:
    assert problems({"ms.job.name": name}) == ["ms.job.name"]


@pytest.mark.parametrize("name", ["orders", "shop/orders daily", "v1.2", "x" * 80, "Ä" * 40])
def test_valid_names_of_jobs_are_kept(name: str) -> None:
    assert parse_job({"ms.job.name": name}).settings.name == name


def test_keys_without_the_prefix_are_ignored() -> None:
    assert parse_job({"job.name": "x", "extract.table.name": "y", "msx": "z"}).settings.name == "job"


@pytest.mark.parametrize("period", ["grace", "abstinent"])
def test_a_period_has_one_form(period: str) -> None:
    assert problems({f"ms.{period}.period": "P3D", f"ms.{period}.period.days": 3}) == [f"ms.{period}.period"]
    assert getattr(parse_job({f"ms.{period}.period": "P1DT12H"}).settings, period) == 36 * HOUR


@pytest.mark.parametrize(
    "text", ["P", "PT", "P1DT", "P1W", "P1M", "-P1D", "+P1D", "p1d", "1 day", "P1.5D", "3"]
)
def test_invalid_periods_are_rejected(text: str) -> None:
    assert problems({"ms.grace.period": text}) == ["ms.grace.period"]


@pytest.mark.parametrize("text", ["1.0", "0L", "٣", "1e3", "", " ", "--1", "9" * 30, True, 1.0, [1]])
def test_invalid_integers_are_rejected(text: object) -> None:
    assert problems({"ms.work.unit.min.units": text}) == ["ms.work.unit.min.units"]


@pytest.mark.parametrize("text", ["True", "FALSE", " true ", True])
def test_words_in_any_case(text: object) -> None:
    parse_job({"ms.backfill": text, "ms.abstinent.mode": "WAIT", "ms.watermark.rounding": "Partition"})


@pytest.mark.parametrize(
    "units",
    ["", " ", ",", "a,,b", "a,", [], "[]", [""], ["a", 1], ["a", {"id": "b"}], [1, 2], [{}], [{"a": []}],
     {"a": "b"}, '{"a": "b"}', "[a", 5, None, True],
)  # fmt: skip
def test_invalid_lists_of_units_are_rejected(units: object) -> None:
    found = problems({"ms.watermark": [{"name": "id", "type": "unit", "units": units}]})
    assert found == ["ms.watermark[0].units"]


def test_units_are_the_same_in_every_notation() -> None:
    notations: list[Any] = [
        "a,b",
        " a , b ",
        ["a", "b"],
        '["a", "b"]',
        [{"id": "a"}, {"id": "b"}],
        '[{"id": "a"}, {"id": "b"}]',
    ]
    found = {
        tuple(
            unit.key
            for unit in parse_job({"ms.watermark": [{"name": "id", "type": "unit", "units": units}]}).units
        )
        for units in notations
    }
    assert found == {('{"id":"a"}', '{"id":"b"}')}


def test_the_order_of_the_fields_of_a_unit_does_not_matter() -> None:
    units = [{"site": "x", "table": "t"}, {"table": "t", "site": "x"}]
    assert len(parse_job({"ms.watermark": [{"name": "id", "type": "unit", "units": units}]}).units) == 1


@pytest.mark.parametrize(
    "partition",
    ["", "composite", "hourly,daily", {}, [], 5, {"daily": "2020-01-01"}, {"daily": ["2020-01-01", "P1D"]},
     {"daily": ["-", "2020-01-01"]}, {"daily": ["2020-01-01", None]}, '{"daily": ["2020-01-01", "-"]', "null",
     {"daily": ["2020-01-01", "-"], "Daily": ["2020-02-01", "-"]},
     '{"daily": ["2020-01-01", "2020-02-01"], "daily": ["2020-02-01", "-"]}'],
)  # fmt: skip
def test_invalid_partitions_are_rejected(partition: object) -> None:
    assert problems({"ms.work.unit.partition": partition}) == ["ms.work.unit.partition"]
