"""The classic picture of event time, drawn from a scripted stream (extra ``plot``)."""

from slackwater.plot.files import MissingExtra
from slackwater.plot.picture import save_picture

__all__ = ["MissingExtra", "save_picture"]
