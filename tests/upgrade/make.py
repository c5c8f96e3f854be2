"""Makes the dump of a database of one version, with rows of every kind, for the tests of later versions.

Run it with that version's code, for example from a checkout of its tag:
PYTHONPATH=src python tests/upgrade/make.py > tests/upgrade/0.1.0.sql.gz
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from shiftboss.db.programs import programs, server_account

STATEMENTS = """
SELECT shiftboss.set_limit('task_type', 'limited', 1, 1, 100, '1 minute')
INSERT INTO shiftboss.pauses (kind, name, reason) VALUES ('queue', 'reports', 'month end')
INSERT INTO shiftboss.tenants (name, weight) VALUES ('acme', 2)
SELECT shiftboss.set_payload_limit(500000)
SELECT shiftboss.register('w1')
SELECT public.func_update_worker_heartbeat('gpu-1', 24576, 1024)
SELECT * FROM shiftboss.enqueue('[{"task_type": "done"}, {"task_type": "failing", "max_attempts": 1}, {"task_type": "running"}, {"task_type": "retried"}]')
SELECT * FROM shiftboss.claim('w1', 4)
SELECT shiftboss.complete(array_agg(id), array_agg(lease), array_agg('{"answer": 42}'::jsonb)) FROM tasks WHERE task_type = 'done'
SELECT shiftboss.fail(array_agg(id), array_agg(lease), array_agg('no'::text)) FROM tasks WHERE task_type IN ('failing', 'retried')
SELECT * FROM shiftboss.enqueue('[{"task_type": "parent"}, {"task_type": "unwanted"}, {"task_type": "later", "delay": "1000 days"}]')
SELECT e.* FROM tasks t, shiftboss.enqueue(jsonb_build_array(jsonb_build_object('task_type', 'child', 'depends_on', jsonb_build_array(t.id)))) e WHERE t.task_type = 'parent'
SELECT * FROM shiftboss.cancel(ARRAY(SELECT id FROM tasks WHERE task_type = 'unwanted'))
SELECT * FROM shiftboss.enqueue('[{"task_type": "limited", "concurrency_key": "k", "dedup_key": "d"}, {"task_type": "limited", "concurrency_key": "k"}]')
INSERT INTO tasks (task_type, params, queue, tenant, priority, requires) VALUES ('plain', '{"n": 1}', 'reports', 'acme', 10, '{"gpu": true}')
SELECT shiftboss.register_worker('worker:default:1', 4711)
SELECT * FROM shiftboss.update_heartbeat('worker:default:1')
SELECT shiftboss.begin_supervisor('host-a', 4710, '{"default": 1}')
INSERT INTO shiftboss.schedules (name, cron, next_tick, task) VALUES ('nightly', '0 3 * * *', '2100-01-01', '{"task_type": "night"}')
INSERT INTO worker_runs (bot, status) VALUES ('discovery', 'pending')
INSERT INTO places (city, name, lat, lon, plain_name) VALUES ('delft', 'Bakery', 52.0, 4.3, 'bakery')
SELECT shiftboss.create_token('ops', 'operator', decode(md5('x'), 'hex'), NULL, 'token', NULL)
SELECT shiftboss.ai_configure('local', 'm', 60, NULL, 5, 5, '30 s')
SELECT * FROM shiftboss.ai_admit('local', 'm', 'completion', 'done', NULL, 100, 0.01, '1 minute')
SELECT shiftboss.ai_settle((SELECT max(id) FROM shiftboss.ai_calls), 'ok', 'm', 50, 50, 0.01, 12.5, NULL, NULL)
SELECT shiftboss.ai_cache_put('processed:x:1', 'x', '{"a": 1}', '1000 days')
SELECT ai._worker_start('0.1.0', '5 s')
CREATE TABLE notes (id int PRIMARY KEY, body text NOT NULL)
INSERT INTO notes SELECT n, 'note ' || n FROM generate_series(1, 5) n
SELECT ai.create_vectorizer('notes'::regclass, columns => ARRAY['body'])
SELECT * FROM journal.upsert_entries('[{"user_id": "mara", "external_id": "e1", "content_hash": "h", "written_at": "2026-01-01T10:00:00Z", "timezone": "UTC", "parts": [{"content": "A fine day"}], "metadata": {}, "source": {}}]')
SELECT journal.store_results(jsonb_build_array(jsonb_build_object('entry_id', id, 'revision', 1, 'task_type', 'embedding_generation', 'input_hash', 'h', 'processed_data', '{}', 'confidence_score', 0.9, 'model', 'm', 'vector', (SELECT jsonb_agg(0.5) FROM generate_series(1, 256))))) FROM journal.entries
"""


def fill(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in STATEMENTS.strip().splitlines():
            conn.execute(statement)  # type: ignore[arg-type]


def dump(url: str) -> bytes:
    pg_dump = programs(server_account()) / "pg_dump"
    options = ["--inserts", "--no-owner", "--no-privileges", "--no-comments", "--rows-per-insert=100"]
    done = subprocess.run([str(pg_dump), *options, url], capture_output=True, check=True)
    lines = done.stdout.decode().splitlines()
    # psql's own commands, and what only a superuser may create.
    kept = [
        line
        for line in lines
        if line and not line.startswith(("\\", "--", "CREATE EXTENSION", "CREATE SCHEMA public"))
    ]
    return gzip.compress("\n".join(kept).encode(), mtime=0)


def main() -> None:
    place = Path(tempfile.mkdtemp(prefix="shiftboss-dump-"))
    server: Any = EmbeddedServer(place, linger=0)
    try:
        url = server.acquire()
        asyncio.run(migrate(url))
        fill(url)
        sys.stdout.buffer.write(dump(url))
    finally:
        server.release()
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
