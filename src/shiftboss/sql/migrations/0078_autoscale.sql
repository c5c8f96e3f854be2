-- How the leader chooses the number of workers, by queue: whichever process leads reads it here. A key that is missing has
-- the default of the settings reference.
CREATE TABLE IF NOT EXISTS shiftboss.autoscale (
    queue text PRIMARY KEY CONSTRAINT autoscale_queue_given CHECK (queue <> ''),
    settings jsonb NOT NULL DEFAULT '{}' CONSTRAINT autoscale_settings_object CHECK (jsonb_typeof(settings) = 'object'),
    configured jsonb,                 -- what a configuration file said last
    scaled_at timestamptz,            -- the last change of the number of workers, for the cooldown
    updated_at timestamptz NOT NULL DEFAULT shiftboss.now()
);
