"""The options of the JVM that a session starts; what the user has chosen is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.spark.class_archive import VARIABLE
from slackwater.spark.jvm_options import OPTION_VARIABLES, jvm_options

INLINING = ["-XX:FreqInlineSize=100"]
PARALLEL = [*INLINING, "-XX:+UseParallelGC"]
JARS = Path("jars")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    for name in (*OPTION_VARIABLES, "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("memory", [{}, {"spark.driver.memory": "4g"}])
def test_a_small_local_heap_is_collected_by_all_threads_at_once(memory: dict[str, str]) -> None:
    assert jvm_options(memory, JARS, local=True) == PARALLEL


def test_a_large_heap_and_a_cluster_keep_the_default_collector() -> None:
    assert jvm_options({"spark.driver.memory": "4097m"}, JARS, local=True) == INLINING
    assert jvm_options({}, JARS, local=False) == []


@pytest.mark.parametrize("chosen", ["-XX:+UseG1GC", "-Dx=1 -XX:+UseSerialGC"])
@pytest.mark.parametrize("variable", OPTION_VARIABLES)
def test_a_collector_that_the_user_chose_is_kept(
    chosen: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert jvm_options({"spark.driver.extraJavaOptions": chosen}, JARS, local=True) == INLINING
    monkeypatch.setenv(variable, chosen)
    assert jvm_options({}, JARS, local=True) == INLINING


@pytest.mark.parametrize("chosen", ["-XX:FreqInlineSize=325", "-XX:MaxInlineLevel=9", "-Xint"])
def test_what_the_user_chose_for_the_compiler_is_kept(chosen: str) -> None:
    given = {"spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {chosen}"}
    assert jvm_options(given, JARS, local=True) == []


def test_a_collector_in_the_settings_for_all_sessions_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = "spark.driver.extraJavaOptions  -XX:+UseG1GC\n"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults)
    assert jvm_options({}, tmp_path / "jars", local=True) == INLINING
    assert jvm_options({}, JARS, local=True) == PARALLEL
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    assert jvm_options({}, JARS, local=True) == INLINING


def test_other_options_of_the_user_change_nothing() -> None:
    given = {"spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseStringDeduplication"}
    assert jvm_options(given, JARS, local=True) == PARALLEL
