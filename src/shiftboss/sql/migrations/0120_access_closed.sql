-- One row once the first token of the admin service was made. It stays when the tokens go, so that access never opens again.
CREATE TABLE IF NOT EXISTS shiftboss.access_closed (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    since timestamptz NOT NULL DEFAULT now()
);
INSERT INTO shiftboss.access_closed (since)
SELECT min(created_at) FROM shiftboss.access_tokens WHERE kind = 'token' AND role <> 'worker' HAVING count(*) > 0
ON CONFLICT DO NOTHING;
