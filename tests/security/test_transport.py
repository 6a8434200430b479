"""C42: addresses, proxies and certificates, over whole campaigns and every live adapter."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import suppress

import pytest

from orchestrator import rundir
from orchestrator.core.events import Arrived
from orchestrator.core.query import Judged, Missing, MissingReason
from orchestrator.testing.server import Say

VERDICT = '{"score": 4, "reason": "good"}'
PROXY_PASSWORD = "CANARY-0123456789"


class Tunnel:
    """A proxy that joins whoever asks for a tunnel to one server, whatever host was asked for."""

    def __init__(self, port):
        self.asked = []
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self):
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._open.append(near)
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += near.recv(1)
                self.asked.append(head.decode())
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open.append(far)
                near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(source, sink):
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def tunnel():
    opened = []

    def start(server):
        opened.append(Tunnel(int(server.url.rpartition(":")[2])))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Make a certificate authority and, signed by it, certificates for judge.test and another."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made by openssl, which is not installed")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        *("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2"),
        *("-subj", "/CN=A private authority", "-addext", "keyUsage=critical,keyCertSign"),
    )
    for name in ("judge.test", "other.test"):
        openssl(
            "req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"
        )
        (folder / f"{name}.ext").write_text(f"subjectAltName=DNS:{name}\n", encoding="ascii")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", "-days", "2"),
            *("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext"),
        )
    return folder


def identified(authority, name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / f"{name}.pem", authority / f"{name}.key")
    return context


def outcomes(run):
    with rundir.reading(run) as reader:
        return [row.event.outcome for row in reader.read() if isinstance(row.event, Arrived)]


@pytest.fixture
def run(sortition, tmp_path):
    """Run the campaign; gives what came of its questions, and all that was shown."""

    def carry_out():
        _, out, err = sortition(
            "run", "campaign.yaml", "-y", "--run-dir", "run", "--display", "log"
        )
        assert (tmp_path / "run").exists(), err
        return outcomes(tmp_path / "run"), out + err

    return carry_out


@pytest.mark.parametrize("prefix", ["", "/", "/gate/way", "/gate/way/"])
def test_each_address_is_asked_where_it_says(
    providers, serve, written, run, keys, prefix, tmp_path, monkeypatch
):
    """With and without a slash at its end, with and without a path; and nowhere else."""
    elsewhere = serve()
    there = {"Location": f"{elsewhere.url}/v1"}
    servers = {
        name: serve(Say(body=provider.good(VERDICT)), Say(status=307, headers=there))
        for name, provider in providers.items()
    }
    written(
        [
            {"adapter": name, "base_url": servers[name].url + prefix}
            for name in providers
            if name != "openai"
        ]
        + [{"adapter": "openai"}],
        texts=["Bern", "Rome"],
        output={"formats": []},
    )
    monkeypatch.setenv("OPENAI_BASE_URL", servers["openai"].url + prefix)
    found, _ = run()
    assert sum(isinstance(outcome, Judged) for outcome in found) == len(providers)
    for name, provider in providers.items():
        paths = {seen.path for seen in servers[name].seen}
        assert paths == {prefix.rstrip("/") + provider.path}, name
        assert servers[name].n_requests == 2
    assert elsewhere.n_requests == 0


def test_a_proxy_sees_what_goes_to_other_hosts_alone(
    providers, serve, written, run, keys, monkeypatch
):
    """HTTP_PROXY carries plain requests, NO_PROXY names whom it does not serve."""
    proxies = {name: Say(body=p.good(VERDICT)) for name, p in providers.items()}
    for name, provider in providers.items():
        proxy, near = serve(proxies[name]), serve(Say(body=provider.good(VERDICT)))
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        far = {"adapter": name, "base_url": "http://judge.test/v1", "name": "far"}
        written(
            [far, {"adapter": name, "base_url": f"{near.url}/v1", "name": "near"}],
            texts=["Bern"],
            output={"formats": []},
        )
        found, _ = run()
        shutil.rmtree("run")
        assert [type(outcome) for outcome in found] == [Judged, Judged]
        assert [seen.target for seen in proxy.seen] == [f"http://judge.test/v1{provider.path}"]
        assert [seen.path for seen in near.seen] == [f"/v1{provider.path}"]


def test_a_private_authority_is_trusted_where_it_is_named(
    provider, serve, tunnel, authority, written, run, keys, monkeypatch, tmp_path
):
    """SSL_CERT_FILE adds it, through the tunnel of HTTPS_PROXY, whose password is kept out of sight."""
    server = serve(
        Say(body=provider.good(VERDICT)),
        Say(status=400, body=provider.error(f"no route via http://me:{PROXY_PASSWORD}@proxy")),
        tls=identified(authority, "judge.test"),
    )
    proxy = tunnel(server)
    monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("//", f"//me:{PROXY_PASSWORD}@"))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    written(
        [{"adapter": provider.adapter, "base_url": "https://judge.test/v1"}], texts=["Bern", "Rome"]
    )
    found, shown = run()
    assert {type(outcome) for outcome in found} == {Judged, Missing}
    assert [seen.path for seen in server.seen] == [f"/v1{provider.path}"] * 2
    assert all(head.startswith("CONNECT judge.test:443 ") for head in proxy.asked)
    assert "proxy-authorization: basic" in proxy.asked[0].lower()
    assert not any("Bern" in head or "sk-none" in head for head in proxy.asked)
    assert PROXY_PASSWORD not in shown + str(list((tmp_path / "run").rglob("*")))
    assert not [
        path
        for path in (tmp_path / "run").rglob("*")
        if path.is_file() and PROXY_PASSWORD.encode() in path.read_bytes()
    ]


def test_an_authority_that_is_not_known_is_refused(
    provider, serve, tunnel, authority, written, run, keys, monkeypatch
):
    """Nothing is sent or charged: the judge is out of reach, however often it is tried."""
    for name, trusted in (("judge.test", None), ("other.test", "ca.pem")):
        server = serve(Say(body=provider.good(VERDICT)), tls=identified(authority, name))
        proxy = tunnel(server)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(authority / trusted))
        written(
            [{"adapter": provider.adapter, "base_url": "https://judge.test/v1"}], texts=["Bern"]
        )
        (outcome,), shown = run()
        shutil.rmtree("run")
        assert (outcome.reason, outcome.cost, outcome.uncertain) == (
            MissingReason.CONNECTION_LOST,
            0,
            0,
        )
        assert "certificate verify failed" in outcome.detail.lower()
        assert "certificate verify failed" in shown.lower()
        assert proxy.asked
        assert server.n_requests == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_a_proxy_that_refuses_is_no_reply_of_the_judge(
    provider, serve, written, run, keys, monkeypatch, is_there, tmp_path
):
    """Nothing went through, so nothing was billed; its own password does not show."""
    proxy = serve(Say(status=407, body=PROXY_PASSWORD.encode()))
    monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("//", f"//me:{PROXY_PASSWORD}@"))
    if not is_there:
        proxy.close()
    written([{"adapter": provider.adapter, "base_url": "https://judge.test/v1"}], texts=["Bern"])
    (outcome,), shown = run()
    assert outcome.reason is MissingReason.CONNECTION_LOST
    assert (outcome.cost, outcome.uncertain) == (0, 0)
    assert PROXY_PASSWORD not in shown
    assert PROXY_PASSWORD.encode() not in (tmp_path / "run" / "run.db").read_bytes()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSL_CERT_FILE", "/no/CANARY"),
        ("SSL_CERT_FILE", "campaign.yaml"),
        ("HTTPS_PROXY", "ftp://me:CANARY@proxy:1"),
        ("HTTPS_PROXY", "http://me:CANARY@proxy:port"),
        ("ALL_PROXY", "socks9://me:CANARY@127.0.0.1:1"),
    ],
)
def test_an_environment_that_makes_no_connections_is_refused_before_anything_is_sent(
    providers, serve, written, sortition, monkeypatch, tmp_path, name, value
):
    """It is never passed over, and no traceback shows a proxy's password."""
    server = serve(Say(body=providers["compatible"].good(VERDICT)))
    written([{"adapter": "compatible", "base_url": server.url}])
    monkeypatch.setenv(name, value)
    for command in (["run", "-y", "--run-dir", "run"], ["doctor"]):
        code, out, err = sortition(*command)
        assert code == 2
        assert name in err
        assert "nothing was sent" in err
        assert "CANARY" not in out + err
    assert server.n_requests == 0
    assert not (tmp_path / "run").exists()
    assert sortition("run", "-y", "--mock", "-q")[0] == 0
