"""What every loop is made of: start, stop, ready, jittered tick, backoff. Calls model."""
