"""One trained run that the tests share."""

from training.conftest import tiny_run

__all__ = ["tiny_run"]
