"""Mistakes that a new operator makes, as he meets them in mongosh and at the server's start: a wrong password, a certificate
that has expired, a CA file that was forgotten, TLS forgotten. Each is one line that says what is wrong, and the server's
log says it of the client; the manual (`When a client does not get in`) says what to do about each of these lines.

    FERND=… python tests/operator_test.py MONGOSH [TEST…]
"""

import json
import os
import socket
import ssl
import subprocess
import sys

import certificates
from fernd import Fernd, run_tests, wait_until
from secured import CA, SERVER, Secured, certify

MONGOSH = None


def shell(server, uri):
    """How it ended and what it says of it, in one line."""
    done = subprocess.run([MONGOSH, "--quiet", "--norc", uri, "--eval", "db.c.countDocuments()"],
                          capture_output=True, text=True, timeout=60, env={**os.environ, "HOME": server.home, "NO_COLOR": "1"})
    if done.returncode == 0:
        assert done.stdout.strip() == "0", done
        return None
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done
    return lines[0]


def told(server, words):
    """The first line of the log with these words, once it is there."""
    def line():
        for text in server.tail(1 << 22).splitlines():
            if text.startswith("{") and all(word in text for word in words):
                return json.loads(text)

    return wait_until(line, f"no line of the log has {words}", server.tail)


def start(*options):
    """What a server says that does not start."""
    server = Fernd(*options)
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
    server.remove()
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    return done.stderr.strip()


def a_wrong_password():
    with Secured(tls=False) as server:
        assert shell(server, server.uri()) is None
        for uri in (server.uri(password="wrong"), server.uri(user="nobody"), server.uri(authSource="test")):
            assert shell(server, uri) == "MongoServerError: Authentication failed."
        # The client is not told which of the three it was; the log names what was tried.
        line = told(server, ["Failed to authenticate", '"root"', '"test"'])
        assert line["attr"]["mechanism"] == "SCRAM-SHA-256" and line["attr"]["client"].startswith("127.0.0.1:"), line
        assert "requires authentication" in shell(server, server.uri(user=None))


def a_certificate_that_has_expired():
    certify()
    certificates.issue("expired", "/O=Tests/CN=server", days="-1")
    expired = certificates.path("expired.pem")
    line = start("--tlsMode", "requireTLS", "--tlsCertificateKeyFile", expired)
    assert all(words in line for words in ("tlsCertificateKeyFile", expired, "has expired on", "have a new one made")), line
    certificates.issue("late", "/O=Clients/CN=late", days="-1", extensions="extendedKeyUsage=clientAuth")
    with Secured() as server:
        # A client's: the server refuses it, and both sides name it.
        line = shell(server, server.uri(tlsCertificateKeyFile=certificates.path("late.pem"), serverSelectionTimeoutMS=2000))
        assert "certificate expired" in line, line
        told(server, ["Closing a connection", "the client's certificate (CN=late,O=Clients) has ended"])


def a_ca_file_that_was_forgotten():
    with Secured() as server:
        assert shell(server, server.uri()) is None
        # By the client, which cannot know then whom it speaks to.
        forgotten = server.uri(ca=False, serverSelectionTimeoutMS=2000)
        assert "unable to get local issuer certificate" in shell(server, forgotten)
        assert shell(server, forgotten + "&tlsAllowInvalidCertificates=true") is None
        # mongosh looks at the certificate when the handshake is over. Most others say why they go.
        with socket.create_connection(("127.0.0.1", server.port)) as one:
            try:
                ssl.create_default_context().wrap_socket(one, server_hostname="localhost")
            except ssl.SSLCertVerificationError as error:
                assert "unable to get local issuer certificate" in str(error), error
        told(server, ["Closing a connection", "it does not know its authority, and needs tlsCAFile"])
    # By the server: whoever logs in by a certificate cannot, and a warning says so at the start.
    server = Fernd("--tlsMode", "requireTLS", "--tlsCertificateKeyFile", SERVER, "--auth")
    server.client = lambda **options: Fernd.client(server, tls=True, tlsCAFile=CA, **options)
    with server:
        assert "tlsCAFile" in told(server, ["startupWarnings", "certificates of clients"])["msg"]
    line = start("--tlsMode", "requireTLS", "--tlsCertificateKeyFile", SERVER, "--tlsCAFile", "/no/such/ca.pem")
    assert "/no/such/ca.pem" in line and "tlsCAFile" in line, line


def tls_that_was_forgotten():
    with Secured() as server:
        plain = f"mongodb://root:pencil@127.0.0.1:{server.port}/?authSource=admin&serverSelectionTimeoutMS=2000"
        assert "closed" in shell(server, plain)
        told(server, ["Closing a connection", "speaks without TLS", "requireTLS"])
    line = start("--tlsMode", "requireTLS")
    assert "tlsCertificateKeyFile" in line, line


TESTS = [a_wrong_password, a_certificate_that_has_expired, a_ca_file_that_was_forgotten, tls_that_was_forgotten]


if __name__ == "__main__":
    MONGOSH = sys.argv.pop(1)
    run_tests("operator", TESTS)
