-- Reasons why lanes wait: schedulers outside the database write shiftboss.lane_reasons, and shiftboss.why reads it.

-- The reasons that live coordinators report for a lane.
CREATE OR REPLACE FUNCTION shiftboss.lane_says(p_lane bigint) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format('coordinator %s: %s', r.coordinator, r.detail), '; ' ORDER BY r.coordinator)
    FROM shiftboss.lane_reasons r JOIN shiftboss.coordinators c ON c.name = r.coordinator
    WHERE r.lane = p_lane AND c.seen_at > shiftboss.now() - interval '30 seconds'
$$;
