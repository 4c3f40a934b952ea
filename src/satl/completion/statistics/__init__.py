"""The statistics of a completion, pure: bounds, certificates, shift, label errors, audit, plan."""
