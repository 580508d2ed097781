"""The ``trajpred`` command, also ``python -m trajpred`` and ``tools/NAME.py``."""

from __future__ import annotations

import sys
from io import TextIOWrapper


def main(command: str | None = None) -> None:
    """Run the command that the arguments name, or ``command``.

    Where packages are missing that the command line itself needs, ``doctor`` still runs.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(
            errors="replace"
        )  # a table must not be lost for a "²" that its file cannot have
    try:
        from trajpred.cli.main import main as run
    except ImportError as error:
        words = [command, *sys.argv[1:]] if command else sys.argv[1:]
        if words[:1] != ["doctor"]:
            sys.exit(f"error: {error}; what to install: trajpred doctor")
        from trajpred.cli.doctor import doctor

        sys.exit(doctor())
    run(command)


if __name__ == "__main__":
    main()
