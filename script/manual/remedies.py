"""What to do about each error. A remedy says what to run or change."""
# ruff: noqa: E501 -- one text per line

REMEDIES = {
    "ShiftbossError": "Read the hint. Catch this class to catch every error of Shiftboss.",
    "UsageError": "Correct the argument that the message names; `--help` lists what a command takes.",
    "NotFound": "Check the id or name. Finished tasks are deleted after `leader.keep_tasks_days`.",
    "ConfigError": "Correct the setting; `shiftboss config` shows every value and where it comes from.",
    "NotInstalled": "Install the extra that the hint names, and restart the process.",
    "UnknownTaskType": "Start a worker that has this task type, correct the name, or set `tasks.strict` to false.",
    "DatabaseError": "Read PostgreSQL's message. For a missing right, the hint names the `GRANT`; for a missing table or "
    "function, run `shiftboss db migrate`.",
    "DatabaseUnavailable": "Check `shiftboss db status`, the server and the URL. Workers try again by themselves.",
    "OtherInstallation": "The coordinator's address leads to another fleet. Point the worker to its own coordinator.",
    "TasksLocked": "End the transaction that holds the rows; the reports are delivered again.",
    "EmbeddedServerError": "Read the hint and the server's log, which it names; `shiftboss db status` shows the folder. "
    'Without the extra, `pip install "shiftboss[embedded]"` or set `SHIFTBOSS_DATABASE_URL`.',
    "MigrationError": "Follow the hint and run `shiftboss db migrate` again.",
    "AdoptionNeeded": "Run `shiftboss db adopt --copy` or `--moved`: see [back up and restore](../how-to/backup-and-restore.md).",
    "Defer": 'Raise it in a handler for "not now": the task waits and spends no attempt.',
    "Retry": "Raise it in a handler to choose the pause before the next attempt.",
    "GiveUp": "Raise it in a handler when another attempt cannot help.",
    "StepTimeout": "Give the step more time (`timeout`) or let it do less.",
    "WaitTimeout": "Catch it to go on without the event, or wait longer.",
    "TaskError": "Catch it to handle every way in which a task can end without a result.",
    "TaskFailed": "Look at `error`; `shiftboss errors list` shows similar failures, `shiftboss tasks retry ID` starts over.",
    "TaskCancelled": "Nothing, if the cancellation was intended; else `shiftboss tasks retry ID`.",
    "ResultTimeout": "The task goes on. Wait longer, or ask `shiftboss why ID` what it waits for.",
    "ResultInvalid": "Make the handler return what its annotation promises.",
}
