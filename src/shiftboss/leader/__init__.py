"""Election of the leader, and its duties: rescue, pruning, schedules, autoscaling, alerts."""
