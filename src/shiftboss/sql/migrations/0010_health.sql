-- Slots: one row per place in a supervised pool, its supervisor's own row, and totals that outlive both.

-- Times of this room are Unix seconds.
CREATE OR REPLACE FUNCTION shiftboss.epoch() RETURNS double precision LANGUAGE sql STABLE AS
$$ SELECT extract(epoch FROM shiftboss.now())::double precision $$;

CREATE TABLE IF NOT EXISTS public.health (
    component text PRIMARY KEY CONSTRAINT health_component_named CHECK (component <> ''),
    last_seen double precision NOT NULL DEFAULT shiftboss.epoch(),
    status text NOT NULL DEFAULT 'starting'
        CONSTRAINT health_status_word CHECK (status IN ('starting', 'healthy', 'stopping', 'crashed', 'failed')),
    pid int,
    current_job uuid,
    details_json jsonb CONSTRAINT health_details_object CHECK (jsonb_typeof(details_json) = 'object'),
    restart_count int NOT NULL DEFAULT 0 CHECK (restart_count >= 0),
    last_restart double precision,
    created_at double precision NOT NULL DEFAULT shiftboss.epoch()
);

ALTER TABLE public.health
    ADD COLUMN IF NOT EXISTS queue text,
    ADD COLUMN IF NOT EXISTS host text,               -- NULL: nobody supervises it
    ADD COLUMN IF NOT EXISTS member_id text,          -- its id in the registry
    ADD COLUMN IF NOT EXISTS process text,            -- pid and start: a reused pid does not match
    ADD COLUMN IF NOT EXISTS restarts double precision[] NOT NULL DEFAULT '{}',  -- the latest ones, for the sliding window
    ADD COLUMN IF NOT EXISTS restart_ordered boolean NOT NULL DEFAULT false;
CREATE INDEX IF NOT EXISTS health_host ON public.health (host);
CREATE INDEX IF NOT EXISTS health_member ON public.health (member_id);

CREATE TABLE IF NOT EXISTS shiftboss.supervisors (
    host text PRIMARY KEY CHECK (host <> ''),
    pid int NOT NULL,
    started_at double precision NOT NULL DEFAULT shiftboss.epoch(),
    last_seen double precision NOT NULL DEFAULT shiftboss.epoch(),
    slots jsonb NOT NULL DEFAULT '{}'                 -- how many slots it shall keep, by queue
);

-- Counters must not go down when a slot's row goes.
CREATE TABLE IF NOT EXISTS shiftboss.slot_totals (
    queue text PRIMARY KEY,
    restarts bigint NOT NULL DEFAULT 0,
    crashes bigint NOT NULL DEFAULT 0,
    last_crash double precision
);
