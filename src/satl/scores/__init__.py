"""What a model says: scores of any model, read from files and brought into the order of a table."""
