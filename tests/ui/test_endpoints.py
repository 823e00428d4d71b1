"""The console's endpoints against a store that the real code has filled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from slackwater.metadata.store import open_store
from slackwater.time import DAY, MINUTE, SECOND, instant
from slackwater.ui.views import MOST_CELLS
from tests.stores import new_store
from tests.support.console_load import LoadedStore
from tests.support.console_store import ERROR, MARKUP, fill
from tests.ui.requests import app_of, request

NOW = instant("2024-03-20T12:00:00Z")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("console")
    url = new_store(folder)
    return url, fill(url, folder, NOW)


@pytest.fixture
def app(filled: tuple[str, Path]) -> Any:
    url, job = filled
    return app_of(url, job, now=NOW)


def get(app: Any, path: str, **options: Any) -> Any:
    response = request(app, path, **options)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_job_is_summed_up_in_a_sentence(app: Any) -> None:
    (job,) = get(app, "/api/ingestion")["jobs"]
    assert job["sentence"] == "4 failed, 3 owed, 4 to read again, 16 done"
    assert (job["planned"], job["problem"]) == (True, None)


def test_a_failed_cell_has_its_reason_attempts_error_and_command(app: Any, filled: tuple[str, Path]) -> None:
    url, file = filled
    cells = get(app, "/api/job?name=orders")["cells"]
    owed, *_, new = [cell for cell in cells if cell["state"] == "failed"]
    assert owed["reason"] == "a read failed after its last success: read again from where that read began"
    assert (owed["unit"], owed["last"]["attempts"], owed["last"]["error"]) == ('{"country":"SE"}', 3, ERROR)
    assert (new["reason"], new["high_watermark"], new["last"]["attempts"]) == (
        "never read successfully",
        None,
        1,
    )
    assert owed["command"] == new["command"] == f"slackwater ingest {file} --state {url} --only-failed"


def test_the_states_of_the_calendar_are_those_of_the_plan(app: Any) -> None:
    cells = get(app, "/api/job?name=orders")["cells"]
    newest = {cell["unit"]: cell["state"] for cell in cells if cell["end"] == NOW - NOW % DAY}
    assert set(newest.values()) == {"owed"}
    grace = {(cell["unit"], cell["start"]) for cell in cells if cell["state"] == "grace"}
    assert {start for _, start in grace} == {NOW - NOW % DAY - 3 * DAY, NOW - NOW % DAY - 2 * DAY}
    done = next(cell for cell in cells if cell["state"] == "done")
    assert (done["reason"], done["command"]) == ("read to its end, and behind the overall cut-off", None)


def test_a_time_range_limits_the_cells(app: Any) -> None:
    since, until = NOW - NOW % DAY - 2 * DAY, NOW - NOW % DAY - DAY
    found = get(app, f"/api/job?name=orders&since={since}&until={until}")
    assert {cell["start"] for cell in found["cells"]} == {since}
    assert found["total_cells"] == len(found["cells"]) == 3 <= MOST_CELLS


def test_without_the_job_file_the_ledger_is_shown_and_said_so(filled: tuple[str, Path]) -> None:
    url, _ = filled
    found = get(app_of(url, now=NOW), "/api/job?name=orders")
    assert found["summary"]["sentence"].endswith(
        "(from the ledger; give the job file with --job for the plan)"
    )
    assert {cell["state"] for cell in found["cells"]} == {"done", "failed"}
    assert {cell["command"] for cell in found["cells"]} == {None}


def test_a_job_file_that_cannot_be_loaded_is_a_problem_of_its_job_only(
    filled: tuple[str, Path], tmp_path: Path
) -> None:
    url, file = filled
    broken = tmp_path / "broken.yaml"
    broken.write_text("ms.watermark: nonsense", encoding="utf-8")
    jobs = get(app_of(url, file, broken, now=NOW), "/api/ingestion")["jobs"]
    assert [(job["job"], job["problem"] is None) for job in jobs] == [("orders", True), ("broken", False)]


def test_a_stalled_writer_is_named_as_the_holder(app: Any) -> None:
    stream = get(app, "/api/stream?name=shop/bids")
    assert "held back by writer 'gateway-2'" in stream["sentence"]
    (stalled, ahead) = stream["writers"]
    assert (stalled["writer"], stalled["state"]) == ("gateway-2", "holds")
    assert stalled["dropped_at"] == stalled["behind_since"] + 20 * MINUTE
    assert (ahead["writer"], ahead["state"]) == ("gateway-1", "ahead")
    assert stream["mark"] == stalled["time"] == NOW - 6 * MINUTE - 3 * SECOND


def test_segments_name_those_that_they_replaced(app: Any) -> None:
    segments = get(app, "/api/stream?name=shop/bids")["segments"]
    first, *split, merged = segments
    assert [each["predecessors"] for each in split] == [[first["id"]]] * 3
    assert merged["predecessors"] == [split[0]["id"], split[1]["id"]]
    assert first["sealed_at"] == split[0]["created_at"] == NOW - 20 * MINUTE


def test_a_reader_group_has_its_time_window_and_backlog(app: Any) -> None:
    (group,) = get(app, "/api/stream?name=shop/bids")["groups"]
    assert group["lower"] < group["upper"] < NOW
    assert (group["group"], group["behind"], group["removed"]) == ("totals", 240, 0)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/api/job?name=none", "job = 'none': is not known; known: orders"),
        ("/api/stream?name=shop/none", "stream 'shop/none' does not exist"),
        ("/api/stream?name=" + "x" * 10_000, "stream"),
    ],
)
def test_an_unknown_name_is_explained(app: Any, path: str, problem: str) -> None:
    response = request(app, path)
    assert response.status_code == 404
    assert problem in response.json()["error"]


def test_a_store_that_is_gone_is_explained_and_found_again(tmp_path: Path) -> None:
    url = new_store(tmp_path)
    app, file = app_of(url, now=NOW), tmp_path / "store.db"
    assert get(app, "/api/status")["problem"] is None
    file.rename(tmp_path / "moved.db")
    assert "removed while it was open" in get(app, "/api/status")["problem"]
    response = request(app, "/api/streams")
    assert (response.status_code, "there is no metadata store" in response.json()["error"]) == (503, True)
    (tmp_path / "moved.db").rename(file)
    assert get(app, "/api/streams")["streams"] == []


def test_a_password_is_never_shown() -> None:
    app = app_of("postgresql://app:hunter2@127.0.0.1:1/shop", now=NOW)
    response = request(app, "/api/status")
    assert "hunter2" not in response.text
    assert response.json()["problem"] is not None


# ---- no route changes anything, and no other page can read one


def test_every_route_only_reads(app: Any) -> None:
    paths = get(app, "/api/openapi.json")["paths"]
    assert {method for path in paths.values() for method in path} == {"get"}
    for path in paths:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert request(app, path, method=method).status_code == 405


def test_every_answer_is_documented(app: Any) -> None:
    document = get(app, "/api/openapi.json")
    cell = document["components"]["schemas"]["CellAnswer"]
    assert cell["description"] == "One unit in one partition of a job."
    assert cell["properties"]["reason"]["description"] == "Why it is in this state, in words."
    assert set(document["paths"]["/api/job"]["get"]["responses"]) == {"200", "404", "422", "503"}


def test_the_policy_allows_only_the_page_itself(app: Any) -> None:
    response = request(app, "/")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("base", ["http://attacker.example:7373", "http://10.0.0.1:7373"])
def test_another_host_name_is_refused(app: Any, base: str) -> None:
    assert request(app, "/api/status", base=base).status_code == 403


@pytest.mark.parametrize("base", ["http://localhost:7373", "http://[::1]:7373"])
def test_loopback_names_are_served(app: Any, base: str) -> None:
    assert request(app, "/api/status", base=base).status_code == 200


def test_a_token_is_required_and_kept_as_a_cookie(filled: tuple[str, Path]) -> None:
    token = "a-long-random-token"  # noqa: S105 - a test
    app = app_of(filled[0], now=NOW, token=token)
    base = "http://console.example"
    assert request(app, "/api/status", base=base).status_code == 401
    assert request(app, "/static/console.js", base=base).status_code == 401
    wrong = request(app, f"/?token={token}x", base=base)
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
    opened = request(app, f"/?token={token}", base=base)
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    cookie = opened.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    for headers in ({"cookie": cookie.split(";")[0]}, {"authorization": f"Bearer {token}"}):
        assert request(app, "/api/status", base=base, headers=headers).status_code == 200


def test_names_with_markup_come_back_as_they_are(tmp_path: Path) -> None:
    url = new_store(tmp_path)
    file = tmp_path / "job.yaml"
    name = '<script>alert("1")</script>'
    file.write_text(f"ms.job.name: {json.dumps(name)}\n", encoding="utf-8")
    response: httpx.Response = request(app_of(url, file, now=NOW), "/api/ingestion")
    assert response.headers["content-type"] == "application/json"
    assert response.json()["jobs"][0]["job"] == name


# ---- queries


def test_the_sentence_of_a_query_names_the_silent_origin(app: Any) -> None:
    running, failed = get(app, "/api/now")["queries"]
    assert "held by partition '7'" in running["sentence"]
    assert (failed["title"], failed["error"]) == ("clicks", "ValueError: <i>price</i> is negative")


def test_an_origin_is_listed_with_its_state_and_since_when(app: Any) -> None:
    source = get(app, "/api/query?name=orders")["operators"][1]
    assert source["origins"] == {"active": 7, "gap": 1, "idle": 1, "silent": 1}
    answer = get(app, "/api/origins?name=orders")
    assert (answer["operator"], answer["total"], answer["matching"]) == ("0.0", 10, 10)
    silent = next(origin for origin in answer["origins"] if origin["status"] == "silent")
    assert (silent["name"], silent["watermark"]) == ("7", source["watermark"])
    assert {origin["name"] for origin in answer["origins"]} > {MARKUP, "x" * 10_000}
    assert (answer["lowest"], answer["highest"]) == (source["watermark"], source["now"] - SECOND)


@pytest.mark.search
def test_all_of_ten_thousand_origins_are_reached_by_filter_order_and_page(tmp_path: Path) -> None:
    url = new_store(tmp_path)
    with open_store(url) as store:
        LoadedStore(store, NOW).write_batch()
    app = app_of(url, now=NOW)

    def names(**options: object) -> list[str]:
        found = get(app, f"/api/origins?{urlencode({'name': 'q0', **options})}")
        return [origin["name"] for origin in found["origins"]]

    every = [f"topic-{number % 7}/partition-{number:05}" for number in range(10_000)]
    for offset in (0, 5_000, 9_000):
        assert names(offset=offset, limit=1_000) == every[offset : offset + 1_000]
    assert names(order="name", limit=3) == sorted(every)[:3]
    assert names(text="PARTITION-04321") == ["topic-2/partition-04321"]
    assert names(text="silent") == ["topic-3/partition-00003"]
    assert names(order="state", offset=9_999) == ["topic-3/partition-00003"]
    assert names(text="no such origin") == names(offset=10_000) == []
    assert len(names()) == 100
    assert request(app, "/api/origins?name=q0&limit=1001").status_code == 422


def test_the_log_of_holders_says_for_how_long(app: Any) -> None:
    newest, before = get(app, "/api/query?name=5f0c&operator=0.0")["holders"]
    assert (newest["held_by"], newest["lasted"]) == ("partition '7'", 5 * MINUTE)
    assert (before["held_by"], before["until"]) == ("partition '2'", newest["at"])


def test_sampled_values_are_redacted_unless_they_were_kept(app: Any) -> None:
    samples = get(app, "/api/late?name=orders")["samples"]
    assert [row["values"] for row in samples[:2]] == [None, {"shop": "<img src=x onerror=alert(1)>"}]
