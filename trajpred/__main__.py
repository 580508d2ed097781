"""The ``trajpred`` command, also ``python -m trajpred`` and ``tools/NAME.py``."""

from __future__ import annotations

import sys
from io import TextIOWrapper


def main(command: str | None = None) -> None:
    """Run ``command``, by default the one named by the arguments.

    If packages needed by the command line are missing, ``doctor`` still runs.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for files that cannot encode "²"
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
