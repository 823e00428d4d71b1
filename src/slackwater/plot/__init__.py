"""Pictures: event time against processing time, and the calendar of a plan (extra ``plot``)."""

from slackwater.errors import MissingExtra
from slackwater.plot.event_time_picture import save_picture

__all__ = ["MissingExtra", "save_picture"]
