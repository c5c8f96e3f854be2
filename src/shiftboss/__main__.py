"""Run the command `shiftboss` with `python -m shiftboss`."""

import sys

from shiftboss.cli import main

sys.exit(main())
