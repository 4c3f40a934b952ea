"""The demo: three methods trained on rendered scenes, compared, and a table completed; nothing is downloaded."""
