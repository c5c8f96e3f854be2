-- requires: vector
-- The comments of our tables and views. The SQL reference has the same texts.
DO $$ BEGIN
    PERFORM shiftboss.describe('journal.cross_references', 'Pairs of related entries, the smaller id first.');
    PERFORM shiftboss.describe('journal.embeddings',
        'Embeddings of entries: content is that of the words, context that of mood, time, themes and activities.');
    PERFORM shiftboss.describe('journal.entities', 'People, places and concepts of each user.');
    PERFORM shiftboss.describe('journal.entries', 'Journal entries.');
    PERFORM shiftboss.describe('journal.insights', 'Insights over many entries of a user.');
    PERFORM shiftboss.describe('journal.mentions', 'Which entries mention which people, places and concepts.');
    PERFORM shiftboss.describe('journal.results', 'Results of the analysis of each entry.');
    PERFORM shiftboss.describe('journal.user_results', 'Results of the analysis of each user.');
    PERFORM shiftboss.describe('journal.users', 'The users of the journal.');
    PERFORM shiftboss.describe('journal.entity_overview',
        'People, places and concepts: number of mentions, first and last entry, and average mood.');
    PERFORM shiftboss.describe('journal.moods',
        'The mood of every analysed entry, from -1 to 1: the sentiment score times its confidence, so that an '
        'uncertain result counts as nearly neutral. local_time is in the time zone of the entry.');
    PERFORM shiftboss.describe('journal.relations',
        'Pairs of people, places or concepts of a user that occur in the same entries. evolution has the number of '
        'entries and the average mood of each quarter.');
END $$;
