#!/usr/bin/env bash
# A worker in thirty lines: bash and psql, nothing of ours installed. Joins by its first beat, claims, works, reports.
#   DATABASE_URL=... examples/bash-worker/worker.sh my-worker 10     (ends when it has found nothing 10 times)
set -euo pipefail
worker=${1:?usage: worker.sh WORKER_ID [IDLE_ROUNDS]}
idle_rounds=${2:-0}
# Values reach SQL as psql variables (:'name'), which psql quotes: nothing is spliced.
sql() { psql "$DATABASE_URL" --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 "$@"; }

beat() { sql --set w="$worker" <<<"SELECT func_update_worker_heartbeat(:'w')" >/dev/null; }

beat
(while sleep 20; do beat; done) &
trap 'kill $! 2>/dev/null' EXIT

idle=0
while ((idle_rounds == 0 || idle < idle_rounds)); do
    row=$(sql --set w="$worker" <<<"SELECT id, task_data->>'text' FROM func_claim_available_task(:'w')")
    if [[ -z $row ]]; then
        idle=$((idle + 1))
        sleep 0.2
        continue
    fi
    idle=0
    id=${row%%|*} text=${row#*|}
    if words=$(wc -w <<<"$text") && [[ -n $text ]]; then
        sql --set id="$id" --set n="$((words))" <<<"SELECT func_mark_task_complete(:'id', jsonb_build_object('words', :n))" >/dev/null
    else
        sql --set id="$id" <<<"SELECT func_mark_task_failed(:'id', 'there is no text to count')" >/dev/null
    fi
done
