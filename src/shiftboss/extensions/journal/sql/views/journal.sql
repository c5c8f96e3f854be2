-- requires: vector
CREATE OR REPLACE VIEW journal.moods AS
SELECT e.id AS entry_id, e.user_id, e.external_id, e.written_at, e.written_at AT TIME ZONE e.timezone AS local_time,
       round((r.confidence_score * (r.processed_data #>> '{overall_sentiment,score}')::double precision)::numeric, 4)
           ::double precision AS mood,
       r.processed_data #>> '{overall_sentiment,label}' AS label,
       r.confidence_score AS confidence
FROM journal.entries e
JOIN journal.results r ON r.entry_id = e.id AND r.task_type = 'sentiment_analysis';

CREATE OR REPLACE VIEW journal.entity_overview AS
SELECT n.user_id, n.id AS entity_id, n.kind, n.name, count(*) AS mentions, min(o.written_at) AS first_seen,
       max(o.written_at) AS last_seen, avg(o.mood) AS mood, avg(m.confidence) AS confidence
FROM journal.entities n
JOIN journal.mentions m ON m.entity_id = n.id
JOIN journal.moods o ON o.entry_id = m.entry_id
GROUP BY n.user_id, n.id, n.kind, n.name;

CREATE OR REPLACE VIEW journal.relations AS
SELECT q.user_id, q.entity_id, q.other_id, q.kind, q.name, q.other_kind, q.other_name,
       sum(q.weight)::bigint AS weight, min(q.first_seen) AS first_seen, max(q.last_seen) AS last_seen,
       sum(q.mood * q.weight) / sum(q.weight) AS mood,
       jsonb_agg(jsonb_build_object('quarter', q.quarter, 'weight', q.weight, 'mood', round(q.mood::numeric, 3))
                 ORDER BY q.quarter) AS evolution
FROM (
    SELECT a.user_id, a.id AS entity_id, b.id AS other_id, a.kind, a.name, b.kind AS other_kind,
           b.name AS other_name, date_trunc('quarter', o.local_time)::date AS quarter, count(*) AS weight,
           min(o.written_at) AS first_seen, max(o.written_at) AS last_seen, avg(o.mood) AS mood
    FROM journal.mentions ma
    JOIN journal.mentions mb ON mb.entry_id = ma.entry_id AND mb.entity_id > ma.entity_id
    JOIN journal.entities a ON a.id = ma.entity_id
    JOIN journal.entities b ON b.id = mb.entity_id
    JOIN journal.moods o ON o.entry_id = ma.entry_id
    GROUP BY a.user_id, a.id, b.id, date_trunc('quarter', o.local_time)::date) q
GROUP BY q.user_id, q.entity_id, q.other_id, q.kind, q.name, q.other_kind, q.other_name;
