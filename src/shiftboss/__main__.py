"""`python -m shiftboss` is the command `shiftboss`."""

import sys

from shiftboss.cli import main

sys.exit(main())
