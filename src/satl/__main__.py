"""``python -m satl`` is ``satl``."""

from satl.cli import main

if __name__ == "__main__":
    main()
