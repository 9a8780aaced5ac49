"""As much of an HTTP server as the fake engine needs: importing http.server alone takes longer than the rest of its start."""

from __future__ import annotations

import contextlib
import socket
import threading


class Handler:
    """One connection, kept for one request after the other. Subclasses have do_GET and do_POST, as with http.server."""

    def __init__(self, connection: socket.socket):
        self.rfile, self.wfile = connection.makefile("rb"), connection.makefile("wb")
        self.path, self.headers = "", dict[str, str]()
        self.close_connection = False

    def serve(self) -> None:
        with contextlib.suppress(OSError), self.rfile, self.wfile:  # the client may go at any time
            while not self.close_connection and (method := self._read_head()):
                getattr(self, f"do_{method}")()
                self.wfile.flush()

    def _read_head(self) -> str:
        """The method, "" at the end of the connection. Names of headers are in lower case."""
        first = self.rfile.readline().split()
        if len(first) < 2:
            return ""
        self.path, self.headers = first[1].decode(), {}
        while (line := self.rfile.readline().strip()):
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.close_connection = self.headers.get("connection", "").lower() == "close"
        return first[0].decode()

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def head(self, status: int, **headers: str) -> None:
        """Status line and headers; `content_length` stands for Content-Length."""
        lines = [f"HTTP/1.1 {status} Status", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        self.wfile.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())


class Server:
    """Takes its port at once, and connections from `listen` on; each gets a thread."""

    def __init__(self, address: tuple[str, int], handler: type[Handler], share_port: bool = False):
        self.socket, self.handler = socket.socket(socket.AF_INET, socket.SOCK_STREAM), handler
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.socket.bind(address)

    def listen(self) -> None:
        self.socket.listen(1024)

    def serve_forever(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else tokens are held back and arrive together
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            self.handler(connection).serve()
