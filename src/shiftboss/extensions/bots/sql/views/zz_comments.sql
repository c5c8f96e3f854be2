-- The comments of our tables and views. The SQL reference has the same texts.
DO $$ BEGIN
    PERFORM shiftboss.describe('public.places', 'The directory of places that the bots keep.');
    PERFORM shiftboss.describe('shiftboss.place_sources',
        'The ids under which sources know a place. A place may have several.');
END $$;
