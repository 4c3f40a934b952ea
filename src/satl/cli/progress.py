"""What commands draw while they run: the same as calls from Python."""

from satl.drawing.progress import RichDisplay, bar_for_each_part, loading

__all__ = ["RichDisplay", "bar_for_each_part", "loading"]
