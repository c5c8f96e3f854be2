"""The models: tasks, workers, slots, runs, states, errors, settings. Pure, without I/O."""
