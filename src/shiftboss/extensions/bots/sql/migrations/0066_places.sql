-- The places that the bots keep. An older database has these tables already.

CREATE TABLE IF NOT EXISTS public.places (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    city text NOT NULL,
    name text NOT NULL,
    plain_name text NOT NULL,
    category text,
    confidence real CHECK (confidence BETWEEN 0 AND 1),
    status text NOT NULL DEFAULT 'candidate'
        CONSTRAINT places_status_word CHECK (status IN ('candidate', 'verified', 'rejected')),
    lat double precision NOT NULL CHECK (lat BETWEEN -90 AND 90),
    lon double precision NOT NULL CHECK (lon BETWEEN -180 AND 180),
    address text,
    phone text,
    website text,
    opening_hours text,
    tags jsonb NOT NULL DEFAULT '{}',
    checks jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    seen_at timestamptz NOT NULL DEFAULT shiftboss.now(),
    classified_at timestamptz,
    checked_at timestamptz
);
CREATE INDEX IF NOT EXISTS places_city ON public.places (city, id);
CREATE INDEX IF NOT EXISTS places_name ON public.places (city, plain_name);
CREATE INDEX IF NOT EXISTS places_phone ON public.places (city, phone) WHERE phone IS NOT NULL;
CREATE INDEX IF NOT EXISTS places_checked ON public.places (checked_at);

-- Under which names a source knows a place; one place may have several.
CREATE TABLE IF NOT EXISTS shiftboss.place_sources (
    source_id text PRIMARY KEY,
    place_id uuid NOT NULL REFERENCES public.places ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS place_sources_place ON shiftboss.place_sources (place_id);
