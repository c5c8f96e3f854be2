"""Integrations with web frameworks. Only these modules import their framework."""
