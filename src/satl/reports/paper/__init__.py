"""The thirteen figures of the paper, each a function from a study to a matplotlib figure."""
