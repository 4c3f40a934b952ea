"""What a completion reads and writes: the completed folder, hand labels, the report."""
