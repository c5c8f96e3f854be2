-- Read figures from free-form JSON, which any client may write. A value that is not a number gives NULL instead of an
-- error, so that one odd row cannot break a view. Bodies in the standard form are parsed at creation and can be
-- inlined.

-- A JSON number, or a string that contains one. Numbers with more than 30 digits give NULL.
CREATE OR REPLACE FUNCTION shiftboss.number(p_value jsonb) RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN pg_catalog.jsonb_typeof(p_value) IN ('number', 'string')
    AND (p_value #>> '{}') ~ '^\s*[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})\s*$'
    THEN (p_value #>> '{}')::numeric END;

-- The nearest integer, within the range of int.
CREATE OR REPLACE FUNCTION shiftboss.whole_number(p_value jsonb) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN shiftboss.number(p_value) BETWEEN -2147483647 AND 2147483647
    THEN pg_catalog.round(shiftboss.number(p_value))::int END;

-- true for `true` and for strings that PostgreSQL reads as true; false for anything else.
CREATE OR REPLACE FUNCTION shiftboss.flag(p_value jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(p_value = 'true' OR pg_catalog.lower(p_value #>> '{}') IN ('t', 'true', 'y', 'yes', 'on', '1'), false);
