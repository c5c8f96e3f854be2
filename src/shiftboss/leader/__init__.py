"""Leadership by election, and the duties that come with it: rescue, pruning, schedules, autoscaling."""
