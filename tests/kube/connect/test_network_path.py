"""Where the way to a cluster ends is one sentence, and each of the ways it can end has its own."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.kube.connect import network_path
from penstock.kube.connect.network_path import BrokenPath, NetworkPath, walk
from tests.web.certificates import make

Serve = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def listening(serve: Serve, host: str = "127.0.0.1") -> Iterator[int]:
    """A server on this machine that does this with every connection."""
    with socket.create_server((host, 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        serve(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For 127.0.0.1 and localhost, and its own authority."""
    return make(tmp_path_factory.mktemp("tls"), "lab")[0]


def over_tls(certificate: Path, answer: bytes) -> Serve:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(4096)
            secure.sendall(answer)

    return serve


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


def broken(server: str, trust: ssl.SSLContext | None = None, proxy: str | None = None) -> tuple[str, str]:
    with pytest.raises(BrokenPath) as raised:
        walk(server, trust or ssl.create_default_context(), proxy)
    words = str(raised.value)
    assert "\n" not in words
    assert words.endswith((".", "?"))
    return raised.value.step, words


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_way_that_works_is_measured_and_a_tunnel_is_named(certificate: Path) -> None:
    with listening(over_tls(certificate, OK)) as port:
        path = walk(f"https://127.0.0.1:{port}", trusting(certificate))
    assert (path.address, path.proxy, path.private) == ("127.0.0.1", "", True)
    assert ["through a tunnel that ends on this machine" in line for line in path.remarks if "ms" not in line] == [True]


def test_a_private_endpoint_a_proxy_and_a_slow_answer_are_remarks() -> None:
    private = NetworkPath("k8s.corp", 443, "10.1.2.3", True, "", 900)
    assert ["private endpoint" in line or "900 ms" in line for line in private.remarks] == [True, True]
    through = NetworkPath("k8s.corp", 443, "10.9.9.9", False, "proxy:3128", 20)
    assert through.remarks == ["k8s.corp is reached through the proxy proxy:3128; set it for Penstock, too."]


def test_a_tunnel_that_is_not_up_is_named_as_such() -> None:
    step, words = broken(f"https://127.0.0.1:{closed_port()}")
    assert (step, "The tunnel to the cluster is not up" in words) == ("tcp", True)


def test_a_connection_that_ends_in_the_handshake_is_a_tunnel_without_a_far_end() -> None:
    with listening(lambda _: None) as port:
        step, words = broken(f"https://127.0.0.1:{port}")
    assert (step, "ends it in the TLS handshake" in words) == ("tls", True), words


def test_a_far_end_that_says_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_path, "STEP_S", 0.2)
    over = threading.Event()

    def waits(_: socket.socket) -> None:
        over.wait(10)

    with listening(waits) as port:
        step, words = broken(f"https://127.0.0.1:{port}")
        over.set()
    assert (step, "says nothing" in words) == ("tls", True), words


def test_what_is_no_api_server_is_named(certificate: Path) -> None:
    with listening(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")) as port:
        assert "does not speak TLS" in broken(f"https://127.0.0.1:{port}")[1]
    with listening(over_tls(certificate, b"hello\r\n\r\n")) as port:
        assert "its answer is not HTTP" in broken(f"https://127.0.0.1:{port}", trusting(certificate))[1]
    with listening(over_tls(certificate, OK.replace(b"200 OK", b"502 Bad Gateway"))) as port:
        step, words = broken(f"https://127.0.0.1:{port}", trusting(certificate))
        assert (step, "the gateway is up" in words) == ("http", True)


def test_a_certificate_of_somebody_else_or_of_another_name_is_named(certificate: Path) -> None:
    with listening(over_tls(certificate, OK)) as port:
        assert "not signed by the kubeconfig's authority" in broken(f"https://127.0.0.1:{port}")[1]
    with listening(over_tls(certificate, OK), "127.0.0.2") as port:
        assert "is for another name" in broken(f"https://127.0.0.2:{port}", trusting(certificate))[1]


def test_a_name_that_dns_does_not_know_is_named() -> None:
    step, words = broken("https://no-such-cluster.invalid:6443")
    assert (step, "DNS does not know no-such-cluster.invalid" in words) == ("dns", True)


def test_an_address_that_drops_packets_is_told_apart_by_whether_it_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object, **__: object) -> socket.socket:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", late)
    assert "the VPN, peering or tunnel to it is down" in broken("https://10.255.255.1")[1]
    assert "a firewall drops the packets" in broken("https://192.88.99.1")[1]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "forbids connections to lab.example:443 (403)"),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "wants a password (407)"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "does not reach lab.example:443 (it answers 502)"),
        (b"220 mail.example ESMTP\r\n\r\n", "does not speak HTTP"),
        (b"", "does not speak HTTP"),
    ],
)
def test_a_proxy_that_refuses_is_named_without_its_password(answer: bytes, words: str) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer)

    with listening(serve) as port:
        step, sentence = broken("https://lab.example", proxy=f"http://me:secret@127.0.0.1:{port}")
    assert (step, words in sentence, "secret" in sentence) == ("proxy", True, False), sentence


def test_a_proxy_that_is_not_there_is_named() -> None:
    step, words = broken("https://lab.example", proxy=f"127.0.0.1:{closed_port()}")
    assert (step, words.startswith("The proxy 127.0.0.1:")) == ("proxy", True)


def test_through_a_proxy_the_cluster_is_reached(certificate: Path) -> None:
    serve_cluster = over_tls(certificate, OK)

    def serve(connection: socket.socket) -> None:
        assert connection.recv(4096).startswith(b"CONNECT 127.0.0.1:6443 HTTP/1.1\r\n")
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        serve_cluster(connection)

    with listening(serve) as port:
        path = walk("https://127.0.0.1:6443", trusting(certificate), f"http://127.0.0.1:{port}")
    assert path.proxy == f"127.0.0.1:{port}"
