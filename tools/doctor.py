"""Is this installation healthy? ``python tools/doctor.py --help`` explains it."""

import sys

from trajpred.doctor import main

if __name__ == "__main__":
    sys.exit(main())
