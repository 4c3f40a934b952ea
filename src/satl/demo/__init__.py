"""Embedded data: pictures that are drawn by this package itself, so that nothing is downloaded."""
