-- The directory of places. A sighting is matched with known places before a new one is inserted.

CREATE OR REPLACE FUNCTION shiftboss.plain_name(p_name text) RETURNS text LANGUAGE sql IMMUTABLE RETURN
    trim(regexp_replace(lower(p_name), '[^[:alnum:]]+', ' ', 'g'));

CREATE OR REPLACE FUNCTION shiftboss.metres(lat1 double precision, lon1 double precision, lat2 double precision,
    lon2 double precision) RETURNS double precision LANGUAGE sql IMMUTABLE RETURN
    12742000 * asin(sqrt(least(1, sind((lat2 - lat1) / 2) ^ 2
        + cosd(lat1) * cosd(lat2) * sind((lon2 - lon1) / 2) ^ 2)));

-- The known place that a sighting matches: by source id; else by the same name nearby; else by the same phone with the same name
-- (it moved) or nearby (it was renamed), unless that place is in p_present, the source ids of the same extract: two shops of a
-- chain may share a phone.
CREATE OR REPLACE FUNCTION shiftboss.recognise_place(p_city text, p_source_id text, p_name text, p_lat double precision,
    p_lon double precision, p_phone text, p_present text[]) RETURNS uuid LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT id FROM (
        SELECT place_id AS id, 1 AS rank, 0::double precision AS far
        FROM shiftboss.place_sources WHERE source_id = p_source_id
        UNION ALL
        SELECT id, 2, shiftboss.metres(lat, lon, p_lat, p_lon) FROM public.places
        WHERE city = p_city AND plain_name = shiftboss.plain_name(p_name)
          AND shiftboss.metres(lat, lon, p_lat, p_lon) < 75
        UNION ALL
        SELECT x.id, 3, shiftboss.metres(x.lat, x.lon, p_lat, p_lon) FROM public.places x
        WHERE x.city = p_city AND x.phone = p_phone
          AND (x.plain_name = shiftboss.plain_name(p_name) OR shiftboss.metres(x.lat, x.lon, p_lat, p_lon) < 75)
          AND NOT EXISTS (SELECT FROM shiftboss.place_sources k WHERE k.place_id = x.id AND k.source_id = ANY (p_present))
    ) known ORDER BY rank, far LIMIT 1
$$;

-- Store a sighting: {source_id, name, lat, lon, category, address, phone, website, opening_hours, tags}. Returns inserted, moved,
-- renamed, updated or unchanged. A place that has changed becomes a candidate again.
CREATE OR REPLACE FUNCTION shiftboss.sight_place(p_city text, p jsonb, p_present text[]) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s public.places;
    o public.places;
    v_outcome text;
BEGIN
    s := jsonb_populate_record(NULL::public.places, p - 'source_id');
    s.id := shiftboss.recognise_place(p_city, p ->> 'source_id', s.name, s.lat, s.lon, s.phone, p_present);
    SELECT * INTO o FROM public.places WHERE id = s.id FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO public.places (city, name, plain_name, category, lat, lon, address, phone, website, opening_hours, tags)
        VALUES (p_city, s.name, shiftboss.plain_name(s.name), s.category, s.lat, s.lon, s.address, s.phone, s.website,
            s.opening_hours, coalesce(s.tags, '{}')) RETURNING id INTO s.id;
        v_outcome := 'inserted';
    ELSE
        v_outcome := CASE
            WHEN shiftboss.metres(o.lat, o.lon, s.lat, s.lon) > 25 THEN 'moved'
            WHEN o.plain_name <> shiftboss.plain_name(s.name) THEN 'renamed'
            WHEN (o.address, o.phone, o.website, o.opening_hours, o.tags) IS DISTINCT FROM
                (coalesce(s.address, o.address), coalesce(s.phone, o.phone), coalesce(s.website, o.website),
                 coalesce(s.opening_hours, o.opening_hours), coalesce(s.tags, o.tags)) THEN 'updated'
            ELSE 'unchanged' END;
        UPDATE public.places x SET seen_at = shiftboss.now(), name = s.name, plain_name = shiftboss.plain_name(s.name),
            lat = s.lat, lon = s.lon, address = coalesce(s.address, x.address), phone = coalesce(s.phone, x.phone),
            website = coalesce(s.website, x.website), opening_hours = coalesce(s.opening_hours, x.opening_hours),
            tags = coalesce(s.tags, x.tags), category = coalesce(x.category, s.category),
            status = CASE v_outcome WHEN 'unchanged' THEN x.status ELSE 'candidate' END
        WHERE x.id = s.id;
    END IF;
    INSERT INTO shiftboss.place_sources (source_id, place_id) VALUES (p ->> 'source_id', s.id) ON CONFLICT DO NOTHING;
    RETURN v_outcome;
END $$;

-- Store a batch of sightings in a city, and return the number of each outcome. Batches of a city run one at a time, so that
-- concurrent runs insert no duplicates.
CREATE OR REPLACE FUNCTION shiftboss.sight_places(p_city text, p_places jsonb, p_present text[])
RETURNS TABLE (outcome text, count bigint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('shiftboss.places.' || p_city, 0));
    RETURN QUERY SELECT s.outcome, count(*) FROM (
        SELECT shiftboss.sight_place(p_city, p, p_present) AS outcome FROM jsonb_array_elements(p_places) p OFFSET 0) s
        GROUP BY s.outcome;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.classify_place(p_id uuid, p_category text, p_confidence real) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    UPDATE public.places SET category = p_category, confidence = p_confidence, classified_at = shiftboss.now() WHERE id = p_id
$$;

-- Store the results of the checks and the new status, and return the previous status.
CREATE OR REPLACE FUNCTION shiftboss.check_place(p_id uuid, p_status text, p_checks jsonb) RETURNS text LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    UPDATE public.places x SET status = p_status, checks = p_checks, checked_at = shiftboss.now()
    FROM (SELECT id, status FROM public.places WHERE id = p_id FOR UPDATE) o WHERE x.id = o.id RETURNING o.status
$$;

CREATE OR REPLACE FUNCTION shiftboss.list_places(p_city text DEFAULT NULL, p_category text DEFAULT NULL,
    p_status text DEFAULT NULL, p_after uuid DEFAULT NULL, p_checked_before timestamptz DEFAULT NULL,
    p_unclassified boolean DEFAULT false, p_limit int DEFAULT 100) RETURNS SETOF public.places LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM public.places WHERE (p_city IS NULL OR city = p_city) AND (p_category IS NULL OR category = p_category)
        AND (p_status IS NULL OR status = p_status) AND (p_after IS NULL OR id > p_after)
        AND (p_checked_before IS NULL OR coalesce(checked_at, '-infinity') < p_checked_before)
        AND (NOT p_unclassified OR classified_at IS NULL)
    ORDER BY id LIMIT p_limit;
END $$;

CREATE OR REPLACE FUNCTION shiftboss.count_places(p_city text DEFAULT NULL, p_category text DEFAULT NULL,
    p_status text DEFAULT NULL, p_checked_before timestamptz DEFAULT NULL, p_unclassified boolean DEFAULT false)
RETURNS bigint LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) FROM public.places WHERE (p_city IS NULL OR city = p_city)
        AND (p_category IS NULL OR category = p_category) AND (p_status IS NULL OR status = p_status)
        AND (p_checked_before IS NULL OR coalesce(checked_at, '-infinity') < p_checked_before)
        AND (NOT p_unclassified OR classified_at IS NULL)
$$;
