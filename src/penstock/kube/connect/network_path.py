"""Tries the way to an API server step by step, and says in one sentence where it ends: DNS, proxy, connection, TLS,
answer. `penstock connect` asks first, so that a broken tunnel is not taken for a wrong password.

Plain sockets, because a client library wraps the step that failed into words of its own.
"""

import http.client
import ipaddress
import socket
import ssl
import time
from contextlib import closing
from typing import Final
from urllib.parse import urlsplit

from penstock.core.values import value

STEP_S: Final = 5.0  #: timeout of each step
SLOW_MS: Final = 500  #: an answer slower than this is worth a remark
PROXY_HEAD: Final = 65_536  #: bytes of a proxy's answer that are read


class BrokenPath(Exception):
    """The way ends here; the message is the whole sentence. `step`: dns, proxy, tcp, tls or http."""

    def __init__(self, step: str, words: str) -> None:
        super().__init__(words)
        self.step = step


@value
class NetworkPath:
    """A way that works."""

    host: str
    port: int
    address: str  # that answered; the proxy's, if there is one
    private: bool  # an address that is not routed on the internet
    proxy: str  # without its password; empty: none
    answer_ms: int  # of one small request on an open connection

    @property
    def loopback(self) -> bool:
        return bool(self.address) and ipaddress.ip_address(self.address.partition("%")[0]).is_loopback

    @property
    def remarks(self) -> list[str]:
        """What works and may surprise later."""
        sentences = []
        if self.loopback and not self.proxy:
            sentences.append(
                f"The cluster is reached through a tunnel that ends on this machine ({self.host}:{self.port});"
                " Penstock reaches it only while that tunnel is open, and only from this machine."
            )
        elif self.private and not self.proxy:
            sentences.append(
                f"{self.host} is a private endpoint ({self.address}); the machine or pod that Penstock runs in needs"
                " the same network: peering, a VPN or the cloud's gateway."
            )
        if self.proxy:
            sentences.append(f"{self.host} is reached through the proxy {self.proxy}; set it for Penstock, too.")
        if self.answer_ms > SLOW_MS:
            sentences.append(f"An answer takes {self.answer_ms} ms; each start and stop there takes several.")
        return sentences


def walk(server: str, context: ssl.SSLContext, proxy: str | None = None) -> NetworkPath:
    """The whole way to an API server, or `BrokenPath`."""
    where = urlsplit(server)
    host, port = where.hostname or "", where.port or 443
    sock, address = _through_proxy(proxy, host, port) if proxy else _reached(host, port)
    with closing(sock), closing(_with_tls(sock, context, host, port)) as secure:
        took_ms = _answer(secure, host, port)
    private = not proxy and ipaddress.ip_address(address.partition("%")[0]).is_private
    return NetworkPath(host, port, address, private, _without_password(proxy), took_ms)


def reach(url: str) -> None:
    """The way to an object store up to TLS, or `BrokenPath`; its answer needs keys."""
    where = urlsplit(url)
    port = where.port or (443 if where.scheme == "https" else 80)
    sock, _ = _reached(where.hostname or "", port)
    with closing(sock):
        if where.scheme == "https":
            _with_tls(sock, ssl.create_default_context(), where.hostname or "", port).close()


# --- steps ------------------------------------------------------------------------------------------------------------


def _reached(host: str, port: int, proxy: str = "") -> tuple[socket.socket, str]:
    """A connection, and the address it goes to. `proxy`: by its name in sentences."""
    step, name = ("proxy", f"{proxy} {host}:{port}") if proxy else ("tcp", f"{host}:{port}")
    addresses = _resolved(host, port, proxy)
    local = not proxy and all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)
    try:
        sock = socket.create_connection((host, port), timeout=STEP_S)
    except TimeoutError:
        raise BrokenPath(step, f"Nothing answers at {name} within {STEP_S:.0f} s: {_dropped(addresses)}.") from None
    except ConnectionRefusedError:
        if local:
            words = f"The tunnel to the cluster is not up: nothing listens on {host}:{port} of this machine; open it."
            raise BrokenPath(step, words) from None
        raise BrokenPath(
            step, f"{name} refuses the connection: nothing listens there, or a firewall says no."
        ) from None
    except OSError as error:
        raise BrokenPath(step, f"There is no route to {name} ({_reason(error)}): is the VPN or peering up?") from None
    return sock, str(sock.getpeername()[0])


def _resolved(host: str, port: int, proxy: str) -> list[str]:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        whose = f"the {proxy.lower().removeprefix('the ')}" if proxy else "the cluster"
        raise BrokenPath(
            "dns",
            f"DNS does not know {host} ({_reason(error)}): a private endpoint's name resolves only inside its network,"
            f" so use a resolver that knows {whose}'s zone, or open the VPN.",
        ) from None
    return list(dict.fromkeys(str(row[4][0]) for row in addresses))


def _dropped(addresses: list[str]) -> str:
    private = all(ipaddress.ip_address(address.partition("%")[0]).is_private for address in addresses)
    return (
        "its address is private, so the VPN, peering or tunnel to it is down"
        if private
        else "a firewall drops the packets, or the list of allowed networks does not have this one"
    )


def _through_proxy(proxy: str, host: str, port: int) -> tuple[socket.socket, str]:
    where = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    sock, address = _reached(where.hostname or "", where.port or 80, "The proxy")
    try:
        _asks_proxy(sock, where.username or "", where.password or "", host, port)
        head = _head(sock)
    except OSError as error:
        sock.close()
        raise BrokenPath("proxy", f"The proxy {_without_password(proxy)} breaks off ({_reason(error)}).") from None
    words = head.split(b"\r\n")[0].decode("latin-1").split(" ", 2)
    status = words[1] if len(words) > 1 and words[1].isdigit() else ""
    if status.startswith("2"):
        return sock, address
    sock.close()
    raise BrokenPath("proxy", _refused_by_proxy(_without_password(proxy), status, host, port))


def _refused_by_proxy(proxy: str, status: str, host: str, port: int) -> str:
    match status:
        case "403":
            return (
                f"The proxy {proxy} forbids connections to {host}:{port} (403): add it to NO_PROXY, or have it allowed."
            )
        case "407":
            return f"The proxy {proxy} wants a password (407): write it into HTTPS_PROXY."
        case "":
            return f"The proxy {proxy} does not speak HTTP: check HTTPS_PROXY."
        case _:
            return f"The proxy {proxy} does not reach {host}:{port} (it answers {status})."


def _asks_proxy(sock: socket.socket, user: str, password: str, host: str, port: int) -> None:
    from base64 import b64encode

    login = f"{user}:{password}".encode()
    who = f"Proxy-Authorization: Basic {b64encode(login).decode()}\r\n" if user else ""
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{who}\r\n".encode())


def _head(sock: socket.socket) -> bytes:
    """Up to the empty line, byte by byte: what follows belongs to TLS."""
    read = b""
    while not read.endswith(b"\r\n\r\n") and len(read) < PROXY_HEAD:
        byte = sock.recv(1)
        if not byte:
            break
        read += byte
    return read


def _with_tls(sock: socket.socket, context: ssl.SSLContext, host: str, port: int) -> ssl.SSLSocket:
    where = f"{host}:{port}"
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise BrokenPath("tls", _wrong_certificate(error, where)) from None
    except TimeoutError:
        raise BrokenPath(
            "tls", f"{where} takes the connection and then says nothing: the tunnel is up, and its far end is not."
        ) from None
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
        raise BrokenPath(
            "tls",
            f"{where} takes the connection and ends it in the TLS handshake: the tunnel or load balancer is up, and"
            " reaches no API server behind it.",
        ) from None
    except (ssl.SSLError, OSError) as error:
        raise BrokenPath(
            "tls", f"{where} does not speak TLS ({_reason(error)}): something else listens there, no API server."
        ) from None


def _wrong_certificate(error: ssl.SSLCertVerificationError, where: str) -> str:
    reason = error.verify_message or str(error)
    if "mismatch" in reason or "not valid for" in reason:
        return f"The certificate at {where} is for another name ({reason}): reach it by a name that it has."
    if "expired" in reason:
        return f"The certificate at {where} has expired, or this machine's clock is wrong."
    return (
        f"The certificate at {where} is not signed by the kubeconfig's authority ({reason}): something in between"
        " decrypts, or the kubeconfig is of another cluster."
    )


def _answer(secure: ssl.SSLSocket, host: str, port: int) -> int:
    """How many milliseconds one small request takes. Whether we may ask it is not the question here."""
    began = time.monotonic()
    try:
        secure.sendall(f"GET /version HTTP/1.1\r\nHost: {host}\r\nUser-Agent: penstock\r\n\r\n".encode())
        with closing(http.client.HTTPResponse(secure)) as answer:  # which holds the socket open, too
            answer.begin()
    except TimeoutError:
        raise BrokenPath(
            "http", f"{host}:{port} does not answer within {STEP_S:.0f} s: the API server hangs."
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise BrokenPath(
            "http", f"{host}:{port} is no API server: its answer is not HTTP ({_reason(error)})."
        ) from None
    if answer.status in (502, 503, 504):
        words = f"{host}:{port} answers {answer.status}: the gateway is up, and the API server behind it is not."
        raise BrokenPath("http", words)
    return round((time.monotonic() - began) * 1000)


def _without_password(proxy: str | None) -> str:
    if not proxy:
        return ""
    where = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return f"{where.hostname}:{where.port or 80}"


def _reason(error: Exception) -> str:
    words = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
    return " ".join(str(words).split()) or type(error).__name__
