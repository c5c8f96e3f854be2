-- A session keeps the plan of a statement until the table is analysed again, and a queue may grow a thousandfold in the
-- meantime. A plan made while `tasks` is nearly empty prefers to read all of it, or to join it by hash: right then,
-- ruinous a minute later. So the functions that are handed tasks, or look for a few, only ever walk an index.
DO $$
DECLARE
    v_name text;
    v_way text;
BEGIN
    FOREACH v_name IN ARRAY ARRAY['claim', 'assign', 'assign_many', 'complete', 'fail', 'defer', 'cancelled', 'progress', 'extend',
            'report', 'beat', 'lose_worker', 'leave', 'rescue', 'expire', 'cancel', 'retry', 'watch', 'why', 'prune', 'lock_tasks',
            'lock_down', 'lock_limits', 'settle', 'unpark', 'unpark_all', 'mend_lanes'] LOOP
        FOREACH v_way IN ARRAY ARRAY['seqscan', 'hashjoin', 'mergejoin', 'material'] LOOP
            EXECUTE format('ALTER FUNCTION %s SET enable_%s = off', ('shiftboss.' || v_name)::regproc::oid::regprocedure, v_way);
        END LOOP;
    END LOOP;
END $$;
