"""Program of the Prefect server that we start on loopback: `python -m marginweave.flows.prefect.server_process PORT`."""

from __future__ import annotations

import sys

from .environment import importing


def main(port: int) -> None:
    """Serve Prefect's API until SIGTERM."""
    with importing():
        import uvicorn
        from prefect.server.api.server import create_app

        app = create_app()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]))
