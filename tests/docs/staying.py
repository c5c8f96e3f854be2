"""`shiftboss` as a page calls it: a command that stays runs in the background until the end of the page.

Its output goes to files in the folder `STAGE`, next to its pid and, once it has ended, its exit status.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

#: What a command that stays prints when it is ready.
READY = {
    "admin": "serving http",
    "coordinator": "coordinator started",
    "events --follow": "",
    "supervise": "worker started",
    "up": "ready: ",
    "vectorizer feed": "",
    "vectorizer worker": "",
    "worker": "worker ready",
}
KEEP = '"$@" & echo $! >"$0.pid"; wait $!; echo $? >"$0.status"'


def main(words: list[str]) -> int:
    called, command = " ".join(words), [sys.executable, "-m", "shiftboss", *words]
    ready = next((text for begins, text in READY.items() if f"{called} ".startswith(f"{begins} ")), None)
    if ready is None or "--once" in words:
        os.execv(sys.executable, command)
    folder = Path(os.environ["STAGE"])
    output = folder / f"{len(list(folder.glob('*.log')))}.log"
    with output.open("wb") as file:
        kept = subprocess.Popen(
            ["sh", "-c", KEEP, output, *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    while ready not in output.read_text() or not Path(f"{output}.pid").exists():
        if kept.poll() is not None:
            print(output.read_text(), file=sys.stderr)
            return 1
        time.sleep(0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
