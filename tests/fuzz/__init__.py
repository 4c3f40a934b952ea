"""The fuzzing suite: mutated files and settings into every reader; only satl's own error may come out.

``python -m fuzz --help`` (with ``tests`` on the path; ``make fuzz``) runs it. ``targets`` says what is read, ``corpus``
holds the small valid files that inputs are made from, ``mutators`` makes them, ``oracles`` says what must hold of an
input that was accepted, ``runner`` runs all of it in processes of its own and counts.
"""
