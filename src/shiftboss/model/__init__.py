"""The words of the house: tasks, workers, slots, runs, states, errors, settings. Pure, without I/O."""
