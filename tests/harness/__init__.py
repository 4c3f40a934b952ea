"""Helpers of the tests: guards, programs that run in several processes."""
