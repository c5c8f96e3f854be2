-- What to do about a task that waits for this reason: a regular expression, and its replacement. Extensions fill it.
CREATE TABLE IF NOT EXISTS shiftboss.advice (
    pattern text PRIMARY KEY,
    advice text NOT NULL
);
