"""No models. Django announces migrations only to applications that have this module."""
