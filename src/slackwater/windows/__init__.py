"""Windows, triggers, accumulations and the operators, on columns and without Spark.

The rules are in docs/spec/windows.md, those of the time-bounded join (J1 to J7) in docs/spec/progress.md.
Specifications (`slackwater.windows.spec`) describe operators, and `slackwater.windows.engine` runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from slackwater.windows.accumulations import Accumulation as Accumulation
    from slackwater.windows.accumulations import All as All
    from slackwater.windows.accumulations import Any as Any
    from slackwater.windows.accumulations import ApproxCountDistinct as ApproxCountDistinct
    from slackwater.windows.accumulations import ApproxQuantile as ApproxQuantile
    from slackwater.windows.accumulations import Collect as Collect
    from slackwater.windows.accumulations import CollectOrdered as CollectOrdered
    from slackwater.windows.accumulations import CollectSet as CollectSet
    from slackwater.windows.accumulations import ColumnarAccumulation as ColumnarAccumulation
    from slackwater.windows.accumulations import Count as Count
    from slackwater.windows.accumulations import CountDistinct as CountDistinct
    from slackwater.windows.accumulations import First as First
    from slackwater.windows.accumulations import Fold as Fold
    from slackwater.windows.accumulations import Last as Last
    from slackwater.windows.accumulations import Max as Max
    from slackwater.windows.accumulations import MaxBy as MaxBy
    from slackwater.windows.accumulations import Mean as Mean
    from slackwater.windows.accumulations import Min as Min
    from slackwater.windows.accumulations import MinBy as MinBy
    from slackwater.windows.accumulations import Reduce as Reduce
    from slackwater.windows.accumulations import Sort as Sort
    from slackwater.windows.accumulations import Stddev as Stddev
    from slackwater.windows.accumulations import Sum as Sum
    from slackwater.windows.accumulations import SumDistinct as SumDistinct
    from slackwater.windows.accumulations import TopN as TopN
    from slackwater.windows.accumulations import TopNByKey as TopNByKey
    from slackwater.windows.accumulations import Variance as Variance
    from slackwater.windows.accumulations import all as all
    from slackwater.windows.accumulations import any as any
    from slackwater.windows.accumulations import approx_count_distinct as approx_count_distinct
    from slackwater.windows.accumulations import approx_quantile as approx_quantile
    from slackwater.windows.accumulations import avg as avg
    from slackwater.windows.accumulations import collect as collect
    from slackwater.windows.accumulations import collect_set as collect_set
    from slackwater.windows.accumulations import count as count
    from slackwater.windows.accumulations import count_distinct as count_distinct
    from slackwater.windows.accumulations import first as first
    from slackwater.windows.accumulations import fold as fold
    from slackwater.windows.accumulations import last as last
    from slackwater.windows.accumulations import max as max
    from slackwater.windows.accumulations import max_by as max_by
    from slackwater.windows.accumulations import mean as mean
    from slackwater.windows.accumulations import min as min
    from slackwater.windows.accumulations import min_by as min_by
    from slackwater.windows.accumulations import reduce as reduce
    from slackwater.windows.accumulations import sort as sort
    from slackwater.windows.accumulations import stddev as stddev
    from slackwater.windows.accumulations import sum as sum
    from slackwater.windows.accumulations import sum_distinct as sum_distinct
    from slackwater.windows.accumulations import top_n as top_n
    from slackwater.windows.accumulations import top_n_by_key as top_n_by_key
    from slackwater.windows.accumulations import variance as variance
    from slackwater.windows.assigners import Calendar as Calendar
    from slackwater.windows.assigners import Fixed as Fixed
    from slackwater.windows.assigners import Global as Global
    from slackwater.windows.assigners import Inherited as Inherited
    from slackwater.windows.assigners import Sessions as Sessions
    from slackwater.windows.assigners import Sliding as Sliding
    from slackwater.windows.assigners import Window as Window
    from slackwater.windows.assigners import WindowBounds as WindowBounds
    from slackwater.windows.assigners import calendar as calendar
    from slackwater.windows.assigners import fixed as fixed
    from slackwater.windows.assigners import global_window as global_window
    from slackwater.windows.assigners import inherited as inherited
    from slackwater.windows.assigners import sessions as sessions
    from slackwater.windows.assigners import sliding as sliding
    from slackwater.windows.assigners import tumbling as tumbling
    from slackwater.windows.engine.asof_operator import AsofOperator as AsofOperator
    from slackwater.windows.engine.asof_operator import AsofOutput as AsofOutput
    from slackwater.windows.engine.cogroup_operator import MergeOperator as MergeOperator
    from slackwater.windows.engine.cogroup_operator import MergeState as MergeState
    from slackwater.windows.engine.deduplicate_operator import DeduplicateOperator as DeduplicateOperator
    from slackwater.windows.engine.deduplicate_operator import DeduplicateOutput as DeduplicateOutput
    from slackwater.windows.engine.join_operator import JoinOperator as JoinOperator
    from slackwater.windows.engine.join_operator import JoinOutput as JoinOutput
    from slackwater.windows.engine.window_state import WindowState as WindowState
    from slackwater.windows.engine.windowed_operator import Folded as Folded
    from slackwater.windows.engine.windowed_operator import WindowedOperator as WindowedOperator
    from slackwater.windows.engine.windowed_operator import WindowOutput as WindowOutput
    from slackwater.windows.spec.asof_spec import AsofSpec as AsofSpec
    from slackwater.windows.spec.asof_spec import asof_join as asof_join
    from slackwater.windows.spec.cogroup_spec import CogroupSpec as CogroupSpec
    from slackwater.windows.spec.deduplicate_spec import DeduplicateSpec as DeduplicateSpec
    from slackwater.windows.spec.deduplicate_spec import deduplication as deduplication
    from slackwater.windows.spec.join_spec import JoinSpec as JoinSpec
    from slackwater.windows.spec.join_spec import time_bounded_join as time_bounded_join
    from slackwater.windows.spec.window_spec import WindowSpec as WindowSpec
    from slackwater.windows.spec.windowing_strategy import WindowingStrategy as WindowingStrategy
    from slackwater.windows.triggers import DEFAULT_TRIGGER as DEFAULT_TRIGGER
    from slackwater.windows.triggers import AfterAll as AfterAll
    from slackwater.windows.triggers import AfterAny as AfterAny
    from slackwater.windows.triggers import AfterCount as AfterCount
    from slackwater.windows.triggers import AfterEach as AfterEach
    from slackwater.windows.triggers import AfterEventTime as AfterEventTime
    from slackwater.windows.triggers import AfterProcessingTime as AfterProcessingTime
    from slackwater.windows.triggers import AfterWatermark as AfterWatermark
    from slackwater.windows.triggers import Always as Always
    from slackwater.windows.triggers import Never as Never
    from slackwater.windows.triggers import OrFinally as OrFinally
    from slackwater.windows.triggers import Repeatedly as Repeatedly
    from slackwater.windows.triggers import Trigger as Trigger
    from slackwater.windows.triggers import after_all as after_all
    from slackwater.windows.triggers import after_any as after_any
    from slackwater.windows.triggers import after_count as after_count
    from slackwater.windows.triggers import after_each as after_each
    from slackwater.windows.triggers import after_event_time as after_event_time
    from slackwater.windows.triggers import after_processing_time as after_processing_time
    from slackwater.windows.triggers import after_watermark as after_watermark
    from slackwater.windows.triggers import always as always
    from slackwater.windows.triggers import every as every
    from slackwater.windows.triggers import never as never
    from slackwater.windows.triggers import or_finally as or_finally
    from slackwater.windows.triggers import repeatedly as repeatedly
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, renamed={"TimeBoundedJoin": "JoinSpec"})
