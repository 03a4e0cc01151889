"""`python -m tamis.observe.dashboard RUN_DIR`: the dashboard's own process.

`tamis dashboard` and `tamis run --dashboard` start it.

The token comes through the environment (TAMIS_DASHBOARD_TOKEN), since everybody on a machine can read command lines. A
run that starts it has opened the socket already, and printed its address; otherwise the first line of stdout has the
address.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import threading
from pathlib import Path

TOKEN = "TAMIS_DASHBOARD_TOKEN"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tamis.observe.dashboard")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8787)
    parser.add_argument("--socket", type=int, help="the descriptor of a listening one")
    parser.add_argument("--scratch")
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--open", action="store_true")
    arguments = parser.parse_args()

    if arguments.parent:
        with contextlib.suppress(OSError):
            os.nice(10)  # during a run: it takes what the workers leave
    # http.client, which http.server imports, would load the TLS library (4 MB) for clients that are not used here.
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
    from tamis.observe.dashboard.server import Server, serve
    from tamis.observe.dashboard.watching import Watcher
    from tamis.observe.serving import listen

    token = os.environ.pop(TOKEN, "")
    watcher = Watcher(arguments.run_dir, arguments.scratch)
    try:
        is_inherited = arguments.socket is not None
        listening = socket.socket(fileno=arguments.socket) if is_inherited else listen(arguments.host, arguments.port)
    except (OSError, OverflowError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        print(
            f"error: no dashboard at {arguments.host} port {arguments.port}: {why}; give another --port, or --port 0 "
            "for any that is free",
            file=sys.stderr,
        )
        return 1
    server = Server(arguments.host, listening, watcher, token, arguments.parent)
    if not is_inherited:
        print(f"dashboard: {server.url} (Ctrl-C ends it)", flush=True)
    if arguments.open:
        threading.Thread(target=_open_page, args=(server.url,), daemon=True).start()
    serve(server)
    return 0


def _open_page(url: str) -> None:
    import webbrowser

    webbrowser.open(url)


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
        os._exit(code)
    except KeyboardInterrupt:  # while it starts
        sys.exit(130)
