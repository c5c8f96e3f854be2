-- Read figures out of free-form JSON, which anybody may write: a value that is none gives NULL, and never an error, so that
-- one odd row cannot break a view. Bodies in the standard form are bound when they are made, and can be inlined.

-- A JSON number, or a string that is one. Figures that no client could use (over 30 digits) are none either.
CREATE OR REPLACE FUNCTION shiftboss.number(p_value jsonb) RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN pg_catalog.jsonb_typeof(p_value) IN ('number', 'string')
    AND (p_value #>> '{}') ~ '^\s*[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})\s*$'
    THEN (p_value #>> '{}')::numeric END;

-- The nearest integer, within the range of int.
CREATE OR REPLACE FUNCTION shiftboss.whole_number(p_value jsonb) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN shiftboss.number(p_value) BETWEEN -2147483647 AND 2147483647
    THEN pg_catalog.round(shiftboss.number(p_value))::int END;

-- true, or a string that PostgreSQL would take for it; anything else is false.
CREATE OR REPLACE FUNCTION shiftboss.flag(p_value jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(p_value = 'true' OR pg_catalog.lower(p_value #>> '{}') IN ('t', 'true', 'y', 'yes', 'on', '1'), false);
