-- The comments of our tables and views. The SQL reference has the same texts.
DO $$ BEGIN
    PERFORM shiftboss.describe('ai.vectorizer',
        'Vectorizers: which table each embeds, how, and into which target table.');
    PERFORM shiftboss.describe('ai.vectorizer_worker_process',
        'One row per start of a worker process, kept as a record, with its heartbeats and counts.');
    PERFORM shiftboss.describe('ai.vectorizer_worker_progress', 'Successes and errors by vectorizer.');
    PERFORM shiftboss.describe('ai._vectorizer_error',
        'Rows that could not be embedded; see the view ai.vectorizer_errors.');
    PERFORM shiftboss.describe('ai._vectorizer_minute',
        'Embedded rows by minute in the last hour, for the rate and the time left.');
    PERFORM shiftboss.describe('ai._vectorizer_query', 'Questions asked with SQL, which a worker embeds.');
    PERFORM shiftboss.describe('ai.vectorizer_errors',
        'Rows that could not be embedded, with the step and the reason. state is retrying or failed.');
    PERFORM shiftboss.describe('ai.vectorizer_status',
        'The state of each vectorizer. pending is an exact count; rate and time left are based on the last five '
        'minutes.');
END $$;
