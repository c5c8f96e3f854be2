-- The advice of shiftboss.why for the reasons of this extension. Names that are not plain words are quoted for a shell.
INSERT INTO shiftboss.advice (pattern, advice)
SELECT format('^the budget of %s (%s) is spent until.*', kind, name),
    format('wait, or raise it: shiftboss ai limit %s %s --daily-budget …', replace(kind, ' ', '_'), shown)
FROM unnest(ARRAY['tenant', 'task type', 'key']) kind
CROSS JOIN (VALUES ('[[:alnum:]_.:/@][[:alnum:]_.:/@-]*', '\1'), ('[^'']*', '''\1''')) v (name, shown)
UNION ALL SELECT '^(provider|budget|rate|the budget of provider|the circuit of) .*',
    'shiftboss providers shows the last error, the circuit, the budget and the limits'
ON CONFLICT (pattern) DO UPDATE SET advice = excluded.advice;
