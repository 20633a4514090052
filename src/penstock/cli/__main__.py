"""`python -m penstock.cli`: the commands where the console script is not on the path."""

import sys

from penstock.cli.main import main

sys.exit(main())
