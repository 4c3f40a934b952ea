"""Trackers of packages, one a file, each called like its package."""
