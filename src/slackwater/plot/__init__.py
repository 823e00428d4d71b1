"""Pictures: event time against processing time, and the calendar of a plan (extra ``plot``)."""

from slackwater.plot.event_time_picture import save_picture
from slackwater.plot.picture_files import MissingExtra

__all__ = ["MissingExtra", "save_picture"]
