"""TLS of `fernd` through PyMongo: the modes of the port, certificates of clients and logins by them, what is refused at a
start, rotation under load."""

import os
import socket
import ssl
import subprocess
import tempfile
import threading

import pymongo
from fernd import Fernd, free_port, run_tests
from pymongo.errors import OperationFailure, PyMongoError


class Certificates:
    """An authority and what it signs, made by openssl in a directory of its own."""

    def __init__(self):
        self.home = tempfile.TemporaryDirectory(prefix="fernd-certificates-")
        self.authority("ca")
        self.authority("other")
        self.sign("server", "/O=Fern/CN=server", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.sign("renewed", "/O=Fern/CN=renewed", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.sign("expired", "/O=Fern/CN=expired", "subjectAltName=IP:127.0.0.1", days=-1)
        self.sign("nameless", "/O=Fern/CN=127.0.0.1", "keyUsage=digitalSignature")
        self.sign("client", "/O=Fern/OU=Apps/CN=app", "extendedKeyUsage=clientAuth")
        self.sign("stranger", "/O=Fern/OU=Apps/CN=app", "extendedKeyUsage=clientAuth", by="other")

    def path(self, name):
        return os.path.join(self.home.name, name)

    def openssl(self, *arguments):
        done = subprocess.run(["openssl", *arguments], cwd=self.home.name, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)

    def key(self, name):
        self.openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", f"{name}.key")

    def authority(self, name):
        self.key(name)
        self.openssl("req", "-x509", "-new", "-key", f"{name}.key", "-subj", f"/CN={name}", "-days", "30", "-out", f"{name}.pem",
                     "-addext", "basicConstraints=critical,CA:TRUE")

    def sign(self, name, subject, extension, days=30, by="ca"):
        """A certificate and its key in one file, `name`.pem."""
        self.key(name)
        with open(self.path("extensions"), "w") as file:
            file.write(f"basicConstraints=CA:FALSE\n{extension}\n")
        self.openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial",
                     "-extfile", "extensions", "-days", str(days), "-out", f"{name}.crt")
        with open(self.path(f"{name}.pem"), "w") as whole:
            for part in ("crt", "key"):
                with open(self.path(f"{name}.{part}")) as file:
                    whole.write(file.read())
        os.chmod(self.path(f"{name}.pem"), 0o600)

    def pem(self, name):
        return self.path(f"{name}.pem")


MADE = Certificates()


class Secure(Fernd):
    """A server with a certificate; a start is waited for at its port, for it may speak nothing but TLS."""

    def __init__(self, mode, *options, certificate="server"):
        super().__init__("--tlsMode", mode, "--tlsCertificateKeyFile", MADE.pem(certificate), *options)

    def client(self, **options):
        # Shown only where the server asks for it.
        return tls(self, "client", **options)


def tls(server, certificate=None, authority="ca", **options):
    named = {"tlsCertificateKeyFile": MADE.pem(certificate)} if certificate else {}
    return pymongo.MongoClient("127.0.0.1", server.port, directConnection=True, tls=True, tlsCAFile=MADE.pem(authority),
                               **{"serverSelectionTimeoutMS": 5000, **named, **options})


def plain(server, **options):
    return pymongo.MongoClient("127.0.0.1", server.port, directConnection=True, **{"serverSelectionTimeoutMS": 1500, **options})


def works(client):
    with client:
        try:
            return client.admin.command("ping")["ok"] == 1
        except (PyMongoError, OSError):
            return False


def each_mode_takes_what_it_says():
    for mode, by_plain in (("allowTLS", True), ("preferTLS", True), ("requireTLS", False)):
        with Secure(mode) as server:
            assert works(tls(server)), mode
            assert works(plain(server)) == by_plain, mode
            assert not works(tls(server, authority="other", serverSelectionTimeoutMS=1500)), "a client that trusts another authority"
            counts = tls(server).admin.command("serverStatus")["transportSecurity"]
            assert counts["1.3"] > 0 and counts["1.2"] == 0, counts
    with Fernd() as server:
        assert not works(tls(server, serverSelectionTimeoutMS=1500))
        assert works(plain(server))


def what_is_written_is_read_in_any_size_and_number():
    with Secure("requireTLS") as server:
        for compressor in ("", "zstd", "snappy", "zlib"):
            with tls(server, compressors=compressor) as client:
                client.d.c.drop()
                client.d.c.insert_many([{"_id": i, "x": "x" * 50_000} for i in range(320)])
                client.d.c.insert_one({"_id": "large", "x": os.urandom(15 << 20)})
                # Of sixteen megabytes each.
                assert sum(len(one["x"]) for one in client.d.c.find(batch_size=100_000)) == 320 * 50_000 + (15 << 20)
        clients = [tls(server) for _ in range(100)]

        def count(client):
            assert all(client.d.c.find_one({"_id": at})["_id"] == at for at in range(20))

        threads = [threading.Thread(target=count, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()


def certificates_of_clients_are_asked_for_and_log_in():
    with Secure("requireTLS", "--tlsCAFile", MADE.pem("ca"), "--auth") as server:
        assert not works(pymongo.MongoClient("127.0.0.1", server.port, tls=True, tlsCAFile=MADE.pem("ca"), serverSelectionTimeoutMS=1500))
        assert not works(tls(server, "stranger", serverSelectionTimeoutMS=1500)), "of another authority"
        with tls(server, "client") as nobody:
            nobody.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        with tls(server, "client", username="root", password="pencil") as root:
            root["$external"].command("createUser", "CN=app,OU=Apps,O=Fern", roles=[{"role": "readWrite", "db": "d"}])
        for named in ({}, {"username": "CN=app,OU=Apps,O=Fern"}):
            with tls(server, "client", authMechanism="MONGODB-X509", **named) as app:
                app.d.c.insert_one({})
                users = app.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
                assert users == [{"user": "CN=app,OU=Apps,O=Fern", "db": "$external"}], users
        for certificate, named in (("client", {"username": "CN=other,OU=Apps,O=Fern"}), ("server", {})):
            with tls(server, certificate, authMechanism="MONGODB-X509", **named) as other:
                try:
                    other.admin.command("ping")
                    raise AssertionError("it logged in")
                except OperationFailure as error:
                    assert error.code == 18, error


def who_shows_no_good_certificate_is_nobody_where_that_is_let_pass():
    options = ("--tlsCAFile", MADE.pem("ca"), "--tlsAllowInvalidCertificates", "--tlsAllowConnectionsWithoutCertificates", "--auth")
    with Secure("requireTLS", *options) as server:
        with tls(server) as nobody:
            nobody.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        with tls(server, username="root", password="pencil") as root:
            root["$external"].command("createUser", "CN=app,OU=Apps,O=Fern", roles=[])
        assert works(tls(server)) and works(tls(server, "stranger"))
        with tls(server, "stranger", authMechanism="MONGODB-X509") as stranger:
            try:
                stranger.admin.command("ping")
                raise AssertionError("a certificate of a stranger's authority logged in")
            except OperationFailure as error:
                assert error.code == 18, error
        assert works(tls(server, "client", authMechanism="MONGODB-X509"))


def mistakes_get_one_line_that_says_what_to_do():
    readable = MADE.path("readable.pem")
    with open(MADE.pem("server")) as good, open(readable, "w") as file:
        file.write(good.read())
    os.chmod(readable, 0o644)
    own = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile"]
    rows = [
        (["--tlsMode", "requireTLS"], "tlsCertificateKeyFile"),
        ([*own, "/no/such/file"], "/no/such/file"),
        ([*own, readable], "chmod 600"),
        ([*own, MADE.path("server.crt")], "key"),
        ([*own, MADE.pem("nameless")], "subjectAltName"),
        ([*own, MADE.pem("server"), "--tlsCAFile", "/no/such/ca"], "/no/such/ca"),
        ([*own, MADE.pem("expired")], "expired"),
        (["--tlsMode", "nosuch"], "tlsMode"),
        ([*own, MADE.pem("server"), "--tlsFIPSMode"], "tlsFIPSMode"),
        ([*own, MADE.pem("server"), "--tlsDisabledProtocols", "TLS1_2,TLS1_3"], "tlsDisabledProtocols"),
    ]
    for options, word in rows:
        server = Fernd(*options)
        done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
        lines = done.stderr.strip().splitlines()
        assert done.returncode == 2 and len(lines) == 1 and word in lines[0], (options, done.stderr)
        server.remove()


def a_new_certificate_is_taken_under_load_and_a_bad_one_is_not():
    own = MADE.path("current.pem")

    def put(name):
        with open(MADE.pem(name)) as good, open(own, "w") as file:
            file.write(good.read())
        os.chmod(own, 0o600)

    def shown(server):
        context = ssl.create_default_context(cafile=MADE.pem("ca"))
        with socket.create_connection(("127.0.0.1", server.port), 10) as s, context.wrap_socket(s, server_hostname="127.0.0.1") as secure:
            return dict(part[0] for part in secure.getpeercert()["subject"])["commonName"]

    put("server")
    server = Secure("requireTLS")
    server.options = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", own]
    with server:
        failures, ending = [], threading.Event()

        def load():
            while not ending.is_set():
                try:
                    with tls(server) as client:
                        for _ in range(20):
                            client.d.c.insert_one({})
                except PyMongoError as error:
                    failures.append(error)

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        with tls(server) as admin:
            for name in ("renewed", "server") * 5:
                put(name)
                assert admin.admin.command("rotateCertificates", 1)["ok"] == 1
                assert shown(server) == name
            with open(own, "w") as file:
                file.write("no certificate")
            try:
                admin.admin.command("rotateCertificates", 1)
                raise AssertionError("a file without a certificate was taken")
            except OperationFailure as error:
                assert own in str(error), error
            assert shown(server) == "server"
        ending.set()
        for thread in threads:
            thread.join()
        assert not failures, failures[:3]


def silent_and_half_handshakes_harm_nobody():
    with Secure("requireTLS") as server:
        sockets = [socket.create_connection(("127.0.0.1", server.port), 10) for _ in range(200)]
        for at, half in enumerate(sockets):
            half.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(at % 50))
        assert works(tls(server))
        for half in sockets:
            half.close()
        garbage = socket.create_connection(("127.0.0.1", server.port), 10)
        garbage.sendall(b"\x16\x03\x01\x02\x00\x01" + os.urandom(600))
        assert works(tls(server))
        garbage.close()


def a_set_of_several_is_refused_where_its_members_would_be_plain():
    for mode, code in (("requireTLS", 72), ("preferTLS", 72)):
        with Secure(mode, "--replSet", "rs") as server, tls(server) as client:
            hosts = [{"_id": at, "host": f"127.0.0.1:{port}"} for at, port in enumerate([server.port, free_port()])]
            try:
                client.admin.command("replSetInitiate", {"_id": "rs", "members": hosts})
                raise AssertionError("it was begun")
            except OperationFailure as error:
                assert error.code == code and "allowTLS" in str(error), error


TESTS = [
    each_mode_takes_what_it_says,
    what_is_written_is_read_in_any_size_and_number,
    certificates_of_clients_are_asked_for_and_log_in,
    who_shows_no_good_certificate_is_nobody_where_that_is_let_pass,
    mistakes_get_one_line_that_says_what_to_do,
    a_new_certificate_is_taken_under_load_and_a_bad_one_is_not,
    silent_and_half_handshakes_harm_nobody,
    a_set_of_several_is_refused_where_its_members_would_be_plain,
]


if __name__ == "__main__":
    run_tests("tls", TESTS)
