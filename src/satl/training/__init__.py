"""The training loop and what it needs: configuration, data, run folder, checkpoints."""
