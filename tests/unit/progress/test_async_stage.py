"""The async stage on asyncio: capacity, timeouts, retries with backoff (A3, A4), in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from slackwater.errors import AsyncItemFailed, InvalidArgument
from slackwater.progress.async_stage import AsyncStage, BoundedRunner, Retry
from slackwater.progress.values import Watermark
from tests.support.virtual_time import VirtualTimeLoop, run


async def _source(*items: Any) -> AsyncIterator[Any]:
    for item in items:
        yield item


def _run(stage: AsyncStage[Any, Any], *items: Any) -> tuple[list[Any], float]:
    async def main() -> list[Any]:
        return [leaving async for leaving in stage.run(_source(*items))]

    return run(main())


def _sleeper(answer: Callable[[float], Any] = lambda seconds: seconds) -> Callable[[float], Awaitable[Any]]:
    async def call(seconds: float) -> Any:
        await asyncio.sleep(seconds)
        return answer(seconds)

    return call


def test_ordered_results_wait_for_the_head() -> None:
    output, seconds = _run(AsyncStage(_sleeper()), 3, 1, Watermark(10), 2)
    assert output == [3, 1, Watermark(10), 2]
    assert seconds == pytest.approx(3)


def test_unordered_results_are_emitted_as_they_complete_and_the_watermark_waits() -> None:
    output, seconds = _run(AsyncStage(_sleeper(), ordered=False), 3, 1, Watermark(10), 2)
    assert output == [1, 2, 3, Watermark(10)]
    assert seconds == pytest.approx(3)


def test_capacity_limits_how_many_calls_run_at_once() -> None:
    under_way = most = 0

    async def call(item: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(1)
        under_way -= 1
        return item

    output, seconds = _run(AsyncStage(call, capacity=3), *range(9))
    assert output == list(range(9))
    assert most == 3
    assert seconds == pytest.approx(3)


def test_the_source_is_not_read_without_capacity() -> None:
    pulled: list[int] = []

    async def source() -> AsyncIterator[int]:
        for number in range(10):
            pulled.append(number)
            yield number

    async def main() -> int:
        stage = AsyncStage(_sleeper(lambda item: item), capacity=2)
        results = stage.run(source())
        await anext(results)
        waiting = len(pulled)
        await results.aclose()  # type: ignore[attr-defined]  # run() is an async generator
        return waiting

    pulled_by_then, _ = run(main())
    assert pulled_by_then <= 4


def test_none_filters_the_item_and_releases_the_next_watermark() -> None:
    output, _ = _run(AsyncStage(_sleeper(lambda _: None)), 1, Watermark(5))
    assert output == [Watermark(5)]


def test_retries_back_off_and_then_succeed() -> None:
    attempts = 0

    async def flaky(item: str) -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise ConnectionError("refused")
        return item

    output, seconds = _run(AsyncStage(flaky, retry=Retry(3, first_delay=1, longest_delay=3)), "a")
    assert output == ["a"]
    assert attempts == 4
    assert seconds == pytest.approx(1 + 2 + 3)


def test_an_exception_fails_the_stage_and_names_the_items_key() -> None:
    async def broken(item: dict[str, int]) -> None:
        raise ConnectionError("refused")

    stage: AsyncStage[dict[str, int], None] = AsyncStage(broken, retry=Retry(2), key=lambda item: item["id"])
    with pytest.raises(
        AsyncItemFailed, match="key 4711 failed after 3 attempts: ConnectionError: refused"
    ) as caught:
        _run(stage, {"id": 4711})
    assert caught.value.key == 4711
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_a_result_that_is_rejected_is_retried() -> None:
    answers = iter(["pending", "pending", "done"])

    async def polled(item: str) -> str:
        return f"{item} {next(answers)}"

    retry = Retry(2, first_delay=1, when_result=lambda answer: answer.endswith("pending"))
    output, seconds = _run(AsyncStage(polled, retry=retry), "a")
    assert output == ["a done"]
    assert seconds == pytest.approx(1 + 2)


def test_a_result_that_is_always_rejected_fails_the_item() -> None:
    retry = Retry(1, first_delay=1, when_result=lambda _: True)
    with pytest.raises(AsyncItemFailed, match="after 2 attempts: when_result rejected its last result"):
        _run(AsyncStage(_sleeper(), retry=retry), 1)


@pytest.mark.parametrize(
    "options",
    [
        {"retry": Retry(1, first_delay=0.1)},
        {"timeout": 2.5},
        {"attempt_timeout": 2.5},
        {"retry": Retry(0, when_result=lambda seconds: seconds == 3)},
    ],
    ids=["failed", "timed out", "attempt timed out", "rejected"],
)
def test_a_fallback_replaces_the_result_of_a_failed_item_in_its_place(options: dict[str, Any]) -> None:
    def answer(seconds: float) -> float:
        if seconds == 3 and "retry" in options and options["retry"].when_result is None:
            raise ConnectionError("refused")
        return seconds

    stage = AsyncStage(_sleeper(answer), fallback=lambda seconds: f"no {seconds}", **options)
    assert _run(stage, 3, 1, Watermark(10), 2)[0] == ["no 3", 1, Watermark(10), 2]


def test_a_fallback_of_none_filters_the_item() -> None:
    async def broken(item: int) -> int:
        raise ConnectionError("refused")

    assert _run(AsyncStage(broken, fallback=lambda _: None), 1, Watermark(5))[0] == [Watermark(5)]


def test_a_fallback_that_fails_fails_the_stage_and_both_reasons_are_named() -> None:
    async def broken(item: int) -> int:
        raise ConnectionError("refused")

    stage: AsyncStage[int, int] = AsyncStage(broken, fallback=lambda item: item // 0)
    with pytest.raises(AsyncItemFailed, match="refused; its fallback failed too: ZeroDivisionError"):
        _run(stage, 1)


def test_an_item_whose_fallback_failed_gets_the_result_of_on_failure() -> None:
    async def broken(item: int) -> str:
        raise ConnectionError("refused")

    stage = AsyncStage(
        broken, fallback=lambda item: str(6 // item), on_failure=lambda item, error: f"{item}: {error.reason}"
    )
    found = _run(stage, 2, 0)[0]
    assert found[0] == "3"
    assert str(found[1]).startswith("0: ConnectionError: refused; its fallback failed too: ZeroDivisionError")


def test_timeout_is_for_the_whole_item() -> None:
    stage = AsyncStage(_sleeper(), timeout=5, retry=Retry(3))
    with pytest.raises(AsyncItemFailed, match="no result within its timeout of 5 s"):
        _run(stage, 6)


def test_a_result_just_in_time_counts() -> None:
    assert _run(AsyncStage(_sleeper(), timeout=5), 4.999)[0] == [4.999]


def test_attempt_timeout_is_retried() -> None:
    attempts = 0

    async def hangs_once(item: str) -> str:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(100 if attempts == 1 else 0)
        return item

    output, seconds = _run(AsyncStage(hangs_once, attempt_timeout=2, retry=Retry(1, first_delay=1)), "a")
    assert output == ["a"]
    assert seconds == pytest.approx(3)


def test_attempt_timeout_without_retries_is_reported() -> None:
    with pytest.raises(AsyncItemFailed, match="timed out"):
        _run(AsyncStage(_sleeper(), attempt_timeout=1), 2)


def test_a_failure_cancels_the_calls_in_flight() -> None:
    cancelled: list[str] = []

    async def call(item: str) -> str:
        if item == "bad":
            raise ValueError("no")
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(item)
            raise
        return item

    with pytest.raises(AsyncItemFailed):
        _run(AsyncStage(call), "slow", "bad")
    assert cancelled == ["slow"]


async def _stubborn(item: Any) -> Any:
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            continue


def _run_bounded(stage: AsyncStage[Any, Any], *items: Any) -> tuple[list[Any], float]:
    async def main() -> list[Any]:
        return [leaving async for leaving in stage.run(_source(*items))]

    loop = VirtualTimeLoop()
    with BoundedRunner(loop) as runner:
        return runner.run(main()), loop.time()


def test_a_call_that_ignores_its_cancellation_is_abandoned_with_an_error() -> None:
    stage = AsyncStage(_stubborn, timeout=30)
    message = r"no result within its timeout of 30 s; it ignored its cancellation for 5.0 s and was abandoned"
    with pytest.raises(AsyncItemFailed, match=message):
        _run_bounded(stage, "a")


def test_an_abandoned_call_gets_its_fallback_within_bounded_time() -> None:
    stage = AsyncStage(_stubborn, timeout=30, fallback=lambda item: f"no {item}")
    output, seconds = _run_bounded(stage, "a", "b")
    assert output == ["no a", "no b"]
    assert seconds == pytest.approx(35)


def test_an_abandoned_attempt_is_retried() -> None:
    attempts = 0

    async def stubborn_once(item: str) -> Any:
        nonlocal attempts
        attempts += 1
        return await _stubborn(item) if attempts == 1 else item

    stage = AsyncStage(stubborn_once, attempt_timeout=2, retry=Retry(1, first_delay=1))
    output, seconds = _run_bounded(stage, "a")
    assert output == ["a"]
    assert seconds == pytest.approx(2 + 5 + 1)


@pytest.mark.parametrize("timeout", [None, 10_000])
def test_a_failure_does_not_wait_for_calls_that_ignore_their_cancellation(timeout: float | None) -> None:
    async def call(item: str) -> Any:
        if item == "bad":
            raise ValueError("no")
        return await _stubborn(item)

    loop = VirtualTimeLoop()

    async def main() -> list[Any]:
        return [leaving async for leaving in AsyncStage(call, timeout=timeout).run(_source("slow", "bad"))]

    with BoundedRunner(loop) as runner, pytest.raises(AsyncItemFailed, match="ValueError: no"):
        runner.run(main())
    assert loop.time() <= 20


def test_a_failing_source_fails_the_stage() -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        raise OSError("gone")

    async def main() -> list[int | Watermark]:
        return [each async for each in AsyncStage(_sleeper()).run(source())]

    with pytest.raises(OSError, match="gone"):
        run(main())


def test_a_cancelled_inner_task_is_a_failure_of_its_item() -> None:
    async def call(item: str) -> str:
        raise asyncio.CancelledError

    with pytest.raises(AsyncItemFailed, match="key 'a' failed after 2 attempts: CancelledError"):
        _run(AsyncStage(call, retry=Retry(1), key=str), "a")


def test_a_failing_key_function_does_not_hide_the_error() -> None:
    async def broken(item: str) -> None:
        raise ConnectionError("refused")

    def no_key(item: str) -> object:
        raise LookupError("no id")

    stage: AsyncStage[str, None] = AsyncStage(broken, key=no_key)
    with pytest.raises(AsyncItemFailed, match=r"key function failed: LookupError.*ConnectionError"):
        _run(stage, "a")


def test_the_source_is_closed_when_the_stage_ends_early() -> None:
    closed: list[bool] = []

    async def source() -> AsyncIterator[float]:
        try:
            yield 0
            yield 100
            await asyncio.sleep(1000)
        finally:
            closed.append(True)

    async def main() -> list[bool]:
        results = AsyncStage(_sleeper(), capacity=5).run(source())
        await anext(results)
        await results.aclose()  # type: ignore[attr-defined]  # run() is an async generator
        return list(closed)

    assert run(main()) == ([True], 0.0)


@pytest.mark.search
def test_ten_thousand_items_in_flight() -> None:
    output, seconds = _run(AsyncStage(_sleeper(lambda item: item), capacity=10_000), *[1] * 10_000)
    assert len(output) == 10_000
    assert seconds == pytest.approx(1)


def test_an_empty_source_ends_at_once() -> None:
    assert _run(AsyncStage(_sleeper())) == ([], 0.0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"capacity": 0}, "capacity = 0"),
        ({"timeout": 0}, "timeout = 0"),
        ({"attempt_timeout": -1}, "attempt_timeout = -1"),
        ({"timeout": float("nan")}, "timeout = nan"),
        ({"capacity": None}, "capacity = None"),
    ],
)
def test_invalid_settings_are_rejected_by_the_constructor(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        AsyncStage(_sleeper(), **arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"retries": -1}, {"retries": 1.5}, {"first_delay": -1}, {"longest_delay": 0}],
)
def test_invalid_retries_are_rejected(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Retry(**arguments)
