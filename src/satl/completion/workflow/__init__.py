"""From a table and scores to a completed folder."""
