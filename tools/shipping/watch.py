"""Put into an environment under test: log what any of its processes reads of a folder that it must not."""

import os
import sys

FORBIDDEN, LOG = os.environ.get("FORBIDDEN_FOLDER"), os.environ.get("FORBIDDEN_LOG")
READS = ("open", "os.listdir", "os.scandir")


def hook(event: str, arguments: tuple) -> None:
    if event in READS and isinstance(arguments[0], str) and arguments[0].startswith(FORBIDDEN + os.sep):
        log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{event} {arguments[0]}\n".encode())
        os.close(log)


if FORBIDDEN and LOG:
    sys.addaudithook(hook)
