"""An app whose start fails."""

import no_such_module  # noqa: F401
