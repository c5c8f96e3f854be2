"""The vocabulary of Shiftboss: tasks, workers, slots, steps, errors and settings. No I/O."""
