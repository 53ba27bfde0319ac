"""`marginweave` as `tests.support.cli_fork_server` forks it: the same arguments, environment, folder, streams and exit code.

A program of its own that imports next to nothing: `python -I -S forked_cli.py SOCKET [ARGUMENTS]`.
"""

import json
import os
import signal
import socket
import sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    order = {"arguments": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109 - no pathlib
    socket.send_fds(server, [b"streams"], [0, 1, 2])
    server.sendall(json.dumps(order).encode() + b"\n")
    with server.makefile() as answer:
        code = int(answer.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
