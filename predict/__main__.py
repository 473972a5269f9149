"""`python -m predict`: the command `predict`."""

import sys

from predict.cli import main

if __name__ == "__main__":
    sys.exit(main())
