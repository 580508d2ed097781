"""The ``trajpred`` command, also ``python -m trajpred``. The doctor starts where nothing else does."""

from __future__ import annotations

import sys


def main() -> None:
    """``trajpred TOOL …``."""
    if sys.argv[1:2] == ["doctor"]:
        from trajpred.doctor import main as examine

        sys.exit(examine(sys.argv[2:]))
    try:
        from trajpred.cli.main import main as run
    except ImportError as error:
        sys.exit(f"error: {error}; trajpred doctor tells what is missing")
    run()


if __name__ == "__main__":
    main()
