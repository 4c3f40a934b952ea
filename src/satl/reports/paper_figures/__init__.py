"""The thirteen figures of the paper, each a function from a group of runs to a matplotlib figure."""
