"""Slow, plain, obviously right versions of the formulas; the product is tested against them."""
