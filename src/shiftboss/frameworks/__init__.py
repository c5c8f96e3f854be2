"""Shiftboss inside web frameworks. Each module imports its framework; nothing else of Shiftboss does."""
