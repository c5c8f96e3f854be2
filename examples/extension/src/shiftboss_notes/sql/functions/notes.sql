CREATE OR REPLACE FUNCTION notes.add(p_body text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_id bigint;
BEGIN
    INSERT INTO notes.notes (body) VALUES (p_body) RETURNING id INTO v_id;
    INSERT INTO public.tasks (task_type, params) VALUES ('notes.count', jsonb_build_object('id', v_id));
    RETURN v_id;
END $$;

CREATE OR REPLACE FUNCTION notes.count_words(p_id bigint) RETURNS int
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE notes.notes SET words = cardinality(regexp_split_to_array(btrim(body), '\s+')) WHERE id = p_id RETURNING words
$$;
