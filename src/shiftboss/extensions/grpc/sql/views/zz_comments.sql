-- The comments of our tables and views. The SQL reference has the same texts.
DO $$ BEGIN
    PERFORM shiftboss.describe('shiftboss.coordinators', 'Running coordinators and their figures.');
    PERFORM shiftboss.describe('shiftboss.lane_reasons',
        'Why coordinators could not assign the tasks of a lane; shiftboss.why reads it.');
    PERFORM shiftboss.describe('shiftboss.sessions',
        'Sessions of workers that are connected to a coordinator. Secrets are stored as hashes.');
END $$;
