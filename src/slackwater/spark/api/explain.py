"""The plan of a pipeline: its operators, its origins with their numbers (S11), and its event times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from slackwater.progress.discovery import Discover
from slackwater.progress.pipeline_plan import Kind, PipelinePlan, PlanNode
from slackwater.progress.watermark_policies import (
    Clock,
    Constant,
    FixedDelay,
    Lag,
    LagLikeSpark,
    LagThenClock,
    Learned,
    WatermarkPolicy,
)
from slackwater.spark.api.dataflow import Dataflow
from slackwater.spark.api.expression_sources import FilteredSource, ProjectedSource
from slackwater.spark.api.map_async import AsyncSource
from slackwater.spark.api.pane_output import PaneDataflow, PaneSource
from slackwater.spark.api.row_output import OutputSource, RowDataflow
from slackwater.spark.api.stream_inputs import DerivedSource, RowSource, Source, StreamInputs
from slackwater.spark.runtime.keyed_progress import TimesRules
from slackwater.spark.runtime.numbered_progress import NumberedRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.time import format_duration, format_instant
from slackwater.windows import AsofSpec, DeduplicateSpec, Window
from slackwater.windows.spec.cogroup_spec import CogroupSpec
from slackwater.windows.spec.join_spec import JoinSpec
from slackwater.windows.spec.operator_spec import OperatorSpec
from slackwater.windows.spec.window_spec import WindowSpec
from slackwater.windows.spec.windowing_strategy import WindowingStrategy
from slackwater.windows.triggers import describe

_MOST_COLUMNS: Final = 8
_POLICY_NAMES: Final = {Clock: "clock", FixedDelay: "fixed delay"}


def explain_inputs(inputs: StreamInputs) -> PipelinePlan:
    """The plan of a stream: everything before the next operator."""
    builder = _Builder()
    nodes = tuple(builder.source(source) for source in inputs.sources)
    ends = _keys_text("event times that reach the next operator", _keys(inputs.sources))
    key = [f"key: {', '.join(inputs.key)}"] if inputs.key else []
    name = "stream" if len(nodes) == 1 else f"union of {len(nodes)} streams"
    return PipelinePlan(PlanNode(name, Kind.STATELESS, nodes, (*key, *ends)))


def explain_dataflow(dataflow: Dataflow) -> PipelinePlan:
    """The plan of an operator with its inputs."""
    return PipelinePlan(_Builder().operator(dataflow))


@dataclass
class _Builder:
    """Builds plan nodes; a source or an operator that is used twice becomes one node."""

    _known: dict[object, PlanNode] = field(default_factory=dict)
    _kept: list[object] = field(default_factory=list)
    """Objects whose ids are keys, which must not be reused."""

    def source(self, source: Source) -> PlanNode:
        """The node of a source, of what derives it from another one, or of the operator that emits it."""
        if isinstance(source, RowSource):
            rules = source.source_rules.times if isinstance(source.source_rules, TimesRules) else source.rules
            return self._once((id(source.df), rules), source, lambda: _row_node(source))
        match source:
            case PaneSource():
                return self.operator(source.panes)
            case OutputSource():
                return self.operator(source.output)
            case DerivedSource():
                return PlanNode(_stage_name(source), Kind.STATELESS, (self.source(source.inner),))
        raise NotImplementedError(f"{type(source).__name__} has no description")

    def operator(self, dataflow: Dataflow) -> PlanNode:
        """The node of an operator."""
        return self._once(id(dataflow), dataflow, lambda: self._operator_node(dataflow))

    def _operator_node(self, dataflow: Dataflow) -> PlanNode:
        inputs = tuple(self.source(source) for source in dataflow.sources)
        spec = dataflow.host.spec
        details = [f"key: {', '.join(dataflow.key)}"] if dataflow.key else []
        return PlanNode(
            _operator_name(spec, type(dataflow.host).__name__),
            Kind.STATEFUL,
            inputs,
            (*details, *_settings(dataflow), *_event_times(dataflow)),
        )

    def _once(self, identity: object, kept: object, make: Any) -> PlanNode:
        if identity not in self._known:
            self._kept.append(kept)
            self._known[identity] = make()
        return self._known[identity]


def _stage_name(source: DerivedSource) -> str:
    match source:
        case AsyncSource():
            return f"map_async {source.call.name}"
        case FilteredSource():
            condition = str(source.condition).removeprefix("Column<'").removesuffix("'>")
            return f"filter {condition}"
        case ProjectedSource():
            return f"select {', '.join(source.schema.names)}"
        case _:
            return type(source).__name__


def _row_node(source: RowSource) -> PlanNode:
    names = source.schema.names
    more = ", …" if len(names) > _MOST_COLUMNS else ""
    rules = source.source_rules
    details = [f"event time {key}: {policy}" for key, policy in _policies(rules)]
    first = rules.times[0] if isinstance(rules, TimesRules) else rules
    details.append(f"origins: {_origins(source, first)}")
    if first.idle_after is not None:
        details.append(f"idle after {format_duration(first.idle_after)}")
    ahead = None if isinstance(first, NumberedRules) else first.max_ahead
    details += (
        [] if ahead is None else [f"ignores times more than {format_duration(ahead)} ahead of the clock"]
    )
    kind = "streaming DataFrame" if source.is_streaming else "DataFrame"
    named = "" if source.name is None else f"{source.name}: "
    name = f"{named}{kind}[{', '.join(names[:_MOST_COLUMNS])}{more}]"
    return PlanNode(name, Kind.SOURCE, (), tuple(details))


def _policies(rules: SourceRules | TimesRules | NumberedRules) -> list[tuple[str, str]]:
    match rules:
        case NumberedRules():
            return [(rules.key, "watermarks in the headers of numbered buffers")]
        case TimesRules():
            return [(one.key, _policy(one.policy)) for one in rules.times]
        case SourceRules():
            arrival = "ingestion time, " if rules.arrival else ""
            return [(rules.key, arrival + _policy(rules.policy))]


def _policy(policy: WatermarkPolicy) -> str:
    match policy:
        case Constant():
            return f"constant {format_instant(policy.value)}"
        case Lag():
            return f"lag {format_duration(policy.lag)}"
        case Learned():
            limit = "" if policy.at_most is None else f", at most {format_duration(policy.at_most)}"
            first = format_duration(policy.initial)
            return f"lag learned for {policy.coverage:.6g} of the rows, {first} at first{limit}"
        case LagLikeSpark():
            return f"lag {format_duration(policy.lag)}, one micro-batch later as in withWatermark"
        case LagThenClock():
            return f"lag {format_duration(policy.lag)}, between events the clock"
        case _:
            return f"{_POLICY_NAMES[type(policy)]} {format_duration(policy.lag)}"


def _origins(source: RowSource, rules: SourceRules | NumberedRules) -> str:
    match rules.origins:
        case Discover(wait=wait):
            return f"discovered, the first watermark waits {format_duration(wait)}"
        case None:
            single = source.origin is None and not source.header
            return "one" if single else "discovered as they appear"
        case declared:
            return ", ".join(map(str, declared))


def _operator_name(spec: OperatorSpec, host: str) -> str:
    match spec:
        case WindowSpec() if host == "ApplyHost":
            return "apply"
        case WindowSpec():
            return f"agg({', '.join(spec.accumulations)})"
        case CogroupSpec():
            return "cogroup" if spec.how == "cogroup" else f"{spec.how} cogroup"
        case JoinSpec():
            return f"{spec.how} join"
        case AsofSpec():
            return f"{spec.how} as-of join"
        case DeduplicateSpec():
            return "deduplicate"
        case _:
            return type(spec).__name__.removesuffix("Spec").lower()


def _settings(dataflow: Dataflow) -> list[str]:
    spec = dataflow.host.spec
    inherits = isinstance(dataflow, PaneDataflow) and dataflow.inherits_trigger
    match spec:
        case WindowingStrategy():
            lateness = spec.allowed_lateness
            late = "forever" if lateness is None else format_duration(lateness)
            return [
                f"window: {window_text(spec.window)}",
                f"trigger: {describe(spec.trigger)}{', inherited' if inherits else ''}",
                f"mode: {spec.mode}, allowed lateness: {late}",
            ]
        case JoinSpec():
            return [f"matches from {format_duration(-spec.before)} to {format_duration(spec.after)}"]
        case AsofSpec():
            within = "" if spec.tolerance is None else f" within {format_duration(spec.tolerance)}"
            return [f"matches {spec.direction}{within}"]
        case DeduplicateSpec():
            return [f"within {format_duration(spec.within)}"]
        case _:
            return []


def _event_times(dataflow: Dataflow) -> list[str]:
    """Which event times drive an operator, are forwarded, and end here."""
    arriving = _keys(dataflow.sources)
    driving = list(dict.fromkeys(source.rules.key for source in dataflow.sources))
    forwarded = _forwarded(dataflow)
    renamed = [key for key in forwarded if key not in arriving]
    ended = [key for key in arriving if key not in (*forwarded, *(driving if renamed else ()))]
    return [
        *_keys_text("driven by event time", driving),
        *_keys_text("forwards", [f"{key} (renamed)" if key in renamed else key for key in forwarded]),
        *_keys_text("ends here", ended),
    ]


def _keys(sources: Iterable[Source]) -> list[str]:
    return list(dict.fromkeys(key for source in sources for key in source.keys))


def _forwarded(dataflow: Dataflow) -> tuple[str, ...]:
    if isinstance(dataflow, RowDataflow):
        return dataflow.sent_keys
    spec = dataflow.host.spec
    return (spec.watermark_key,) if isinstance(spec, WindowingStrategy) else ()


def _keys_text(label: str, keys: Sequence[str]) -> list[str]:
    return [f"{label}: {', '.join(keys)}"] if keys else []


def window_text(value: Window) -> str:
    """A window in words: its kind, and its settings that differ from the defaults.

    >>> from slackwater.windows import fixed
    >>> window_text(fixed("10 seconds"))
    'fixed size 10 s'
    """
    durations = ("size", "every", "gap", "offset")
    given = {one.name: getattr(value, one.name) for one in fields(value)}
    texts = {
        name: format_duration(setting) if name in durations else str(setting)
        for name, setting in given.items()
        if setting not in (0, None)
    }
    settings = ", ".join(f"{name} {text}" for name, text in texts.items())
    return f"{type(value).__name__.lower()} {settings}".strip()
