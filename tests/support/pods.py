"""What answers where pods are said to be: there are no containers in tests with an API server alone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.ports import CONTROLLER_PORT, ENGINE_PORT


@contextmanager
def serving_pods(address: str, answer: Callable[[str], tuple[int, str]]) -> Iterator[None]:
    """Serves all controllers and engines whose pods have this address, one of loopback.

    ``answer`` gives status and body for a path.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answer(self.path)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ExitStack() as stack:
        for port in (CONTROLLER_PORT, ENGINE_PORT):
            server = stack.enter_context(ThreadingHTTPServer((address, port), Handler))
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        yield
