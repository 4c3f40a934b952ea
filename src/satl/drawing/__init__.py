"""One look for every figure and page: colours, axes, sheets, HTML."""
