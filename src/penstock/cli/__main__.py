"""`python -m penstock.cli`: the commands where the console script is not on the path."""

import sys

from penstock.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
