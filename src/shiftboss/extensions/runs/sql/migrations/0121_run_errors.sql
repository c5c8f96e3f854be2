-- A run's error is its message; the traceback stays with the attempt of its task.
UPDATE public.worker_runs
SET error_message = regexp_replace(error_message, E'\n\n(…|Traceback \\(most recent call last\\)|\\+ Exception Group Traceback).*$', '')
WHERE error_message ~ E'\n\n(…|Traceback \\(most recent call last\\)|\\+ Exception Group Traceback)';
