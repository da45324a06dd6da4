"""`fernd` with TLS through PyMongo: the modes, certificates of clients and logins by them, files that are not good,
rotation under load, large replies and small ones, many connections, compressors, the status port.

The certificates are made with the `openssl` command.
"""

import concurrent.futures
import contextlib
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import bson
import pymongo
from pymongo.errors import OperationFailure, PyMongoError
from certificates import HOME, authority, issue, join, openssl, path
from fernd import PATIENCE, Fernd, ReplicaSet, fails, free_port, run_tests

def revoke(name):
    """Makes `crl.pem`, which has this certificate."""
    with open(path("ca.cnf"), "w") as f:
        f.write("[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\ndefault_md=sha256\ndefault_crl_days=30\n"
                "crlnumber=crlnumber\ncertificate=ca.pem\nprivate_key=ca.key\n")
    open(path("index.txt"), "w").close()
    with open(path("crlnumber"), "w") as f:
        f.write("01\n")
    openssl("ca", "-config", "ca.cnf", "-revoke", f"{name}.crt")
    openssl("ca", "-config", "ca.cnf", "-gencrl", "-out", "crl.pem")


def make_all():
    authority("ca")
    authority("other")
    issue("server", "/O=Tests/CN=server")
    issue("server2", "/O=Tests/CN=server two")
    issue("anna", "/C=DE/O=Tests, Inc./OU=Clients/CN=anna", extensions="extendedKeyUsage=clientAuth")
    issue("nobody", "/O=Tests/CN=nobody", extensions="extendedKeyUsage=clientAuth")
    issue("foreign", "/C=DE/O=Tests, Inc./OU=Clients/CN=anna", by="other", extensions="extendedKeyUsage=clientAuth")
    issue("expired", "/O=Tests/CN=expired", days="-1")
    issue("unnamed", "/O=Tests/CN=unnamed", extensions="keyUsage=digitalSignature")
    issue("version1", "/O=Tests/CN=version one", extensions=None)
    join("mixed.pem", "server.crt", "anna.key")
    join("keyless.pem", "server.crt")
    join("open.pem", "server.crt", "server.key")
    os.chmod(path("open.pem"), 0o644)
    openssl("pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in", "server.key", "-passout", "pass:pencil", "-out", "locked.key")
    join("locked.pem", "server.crt", "locked.key")
    openssl("ec", "-in", "server.key", "-aes128", "-passout", "pass:pencil", "-out", "oldlocked.key")
    join("oldlocked.pem", "server.crt", "oldlocked.key")
    revoke("nobody")
    client = "extendedKeyUsage=clientAuth"
    issue("writer", "/O=Clients/CN=writer", extensions=with_roles(client, ("readWrite", "d"), ("own", "admin")))
    issue("impostor", "/O=Clients/CN=impostor", extensions=with_roles(client, ("__system", "admin")))
    issue("garbled", "/O=Clients/CN=garbled", extensions=f"{client}\n{ROLES}=ASN1:UTF8:readWrite")
    issue("peer", "/O=Tests/OU=Members/CN=peer")
    issue("peer2", "/O=Others/OU=Members/CN=peer two")
    issue("marked", "/O=Tests/CN=marked", extensions="subjectAltName=DNS:localhost,IP:127.0.0.1\n"
          "1.3.6.1.4.1.34601.2.1.2=ASN1:UTF8:set one")


ROLES = "1.3.6.1.4.1.34601.2.1.1"


def with_roles(extensions, *roles):
    """Extensions of a certificate beside one that holds these roles."""
    lines = [extensions, f"{ROLES}=ASN1:SET:roles", "[roles]"]
    lines += [f"{at}=SEQUENCE:role{at}" for at in range(len(roles))]
    for at, (role, database) in enumerate(roles):
        lines += [f"[role{at}]", f"a=UTF8:{role}", f"b=UTF8:{database}"]
    return "\n".join(lines)


SUBJECT = "CN=anna,OU=Clients,O=Tests\\, Inc.,C=DE"


class Secure(Fernd):
    """A server whose own client speaks TLS, with a certificate if one is named."""

    def __init__(self, *options, mode="requireTLS", certificate="server.pem", shows=None, **more):
        super().__init__("--tlsMode", mode, "--tlsCertificateKeyFile", path(certificate), *options, **more)
        self.shows = shows

    def client(self, shows=None, plain=False, **options):
        if not plain:
            options = {"tls": True, "tlsCAFile": path("ca.pem"), **options}
            if shows := shows or self.shows:
                options["tlsCertificateKeyFile"] = path(shows)
        return super().client(**options)


def works(server, **options):
    with server.client(**{"serverSelectionTimeoutMS": 700, **options}) as client:
        try:
            return client.admin.command("ping")["ok"] == 1
        except PyMongoError:
            return False


def refused(*options):
    """What a server says that does not start: one line."""
    server = Fernd(*options)
    try:
        done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, (options, done)
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr
    finally:
        server.remove()


def each_mode_takes_who_it_is_to_take():
    for mode, plain, secure in (("allowTLS", True, True), ("preferTLS", True, True), ("requireTLS", False, True)):
        with Secure(mode=mode) as server:
            assert works(server, plain=True) == plain, mode
            assert works(server) == secure, mode
            # A socket of this machine's files is always plain.
            with pymongo.MongoClient(f"/tmp/mongodb-{server.port}.sock".replace("/", "%2F")) as client:
                assert client.admin.command("ping")["ok"] == 1
            assert ("speaks without TLS" in server.tail(100_000)) == (not plain), mode
    with Fernd() as server:
        with Secure.client.__get__(server_like(server))(serverSelectionTimeoutMS=700) as client:
            try:
                client.admin.command("ping")
                raise AssertionError("TLS is off")
            except PyMongoError:
                pass
        assert "tlsMode is disabled" in server.tail(100_000)


def server_like(server):
    """The same server, asked by a client with TLS."""
    other = Secure.__new__(Secure)
    other.__dict__.update(server.__dict__)
    other.shows = None
    return other


def files_that_are_not_good_are_refused_in_a_line():
    tls = ("--tlsMode", "requireTLS", "--tlsCertificateKeyFile")
    for certificate, words in (
        ("expired.pem", ("has expired on", "CN=expired")), ("unnamed.pem", ("subjectAltName",)),
        ("version1.pem", ("version 1",)), ("mixed.pem", ("not the one",)), ("keyless.pem", ("no private key",)),
        ("server.csr", ("permissions" if os.stat(path("server.csr")).st_mode & 0o007 else "no certificate",)),
        ("open.pem", ("chmod 600",)), ("none.pem", ("No such file",)),
        ("locked.pem", ("tlsCertificateKeyFilePassword",)), ("oldlocked.pem", ("Proc-Type",)),
    ):
        line = refused(*tls, path(certificate))
        assert "tlsCertificateKeyFile" in line and path(certificate) in line, line
        assert all(word in line for word in words), line
    wrong = refused(*tls, path("locked.pem"), "--tlsCertificateKeyFilePassword", "wrong")
    assert "password is another" in wrong and "pencil" not in wrong, wrong
    assert "no certificate" in refused(*tls, path("server.pem"), "--tlsCAFile", path("crl.pem"))
    assert "tlsCAFile" in refused(*tls, path("server.pem"), "--tlsCRLFile", path("crl.pem"))
    assert "no list" in refused(*tls, path("server.pem"), "--tlsCAFile", path("ca.pem"), "--tlsCRLFile", path("ca.pem"))
    assert "tlsCertificateKeyFile" in refused("--tlsMode", "requireTLS")
    assert "tlsMode" in refused("--tlsCertificateKeyFile", path("server.pem"))
    assert "tlsMode" in refused("--tlsClusterFile", path("server.pem"))
    line = refused(*tls, path("server.pem"), "--tlsClusterFile", path("keyless.pem"))
    assert "tlsClusterFile" in line and "no private key" in line, line
    with Secure("--tlsCertificateKeyFilePassword", "pencil", certificate="locked.pem") as server:
        assert works(server)
        with server.client() as client:
            shown = client.admin.command("getCmdLineOpts")
            assert "pencil" not in str(shown) and "<password>" in str(shown), shown
        assert "pencil" not in server.tail(1_000_000)


def old_names_work_and_are_warned_of():
    server = Fernd("--sslMode", "requireSSL", "--sslPEMKeyFile", path("server.pem"))
    server.__class__, server.shows = Secure, None
    with server:
        with server.client() as client:
            warnings = client.admin.command("getLog", "startupWarnings")["log"]
            assert sum("deprecated" in line for line in warnings) == 2, warnings


def certificates_of_clients_are_looked_at():
    ca = ("--tlsCAFile", path("ca.pem"))
    with Secure(*ca, shows="anna.pem") as server:
        assert works(server)
        assert not works(server, shows="foreign.pem") and not works(server, shows="expired.pem")
        server.shows = None
        assert not works(server), "without a certificate"
        log = server.tail(1_000_000)
        for word in ("UnknownIssuer", "Expired", "peer sent no certificates"):
            assert word in log, (word, [line for line in log.splitlines() if "TLS" in line])
    with Secure(*ca, "--tlsAllowConnectionsWithoutCertificates") as server:
        assert works(server) and works(server, shows="anna.pem") and not works(server, shows="foreign.pem")
    with Secure(*ca, "--tlsAllowInvalidCertificates", shows="foreign.pem") as server:
        assert works(server) and works(server, shows="anna.pem")
    with Secure(*ca, "--tlsCRLFile", path("crl.pem"), shows="anna.pem") as server:
        assert works(server) and not works(server, shows="nobody.pem")


def versions_can_be_switched_off():
    for disabled, dead, alive in (("TLS1_2", ssl.TLSVersion.TLSv1_2, "1.3"), ("TLS1_0,TLS1_3", ssl.TLSVersion.TLSv1_3, "1.2")):
        with Secure("--tlsDisabledProtocols", disabled) as server:
            context = ssl.create_default_context(cafile=path("ca.pem"))
            context.minimum_version = context.maximum_version = dead
            with socket.create_connection(("127.0.0.1", server.port), 10) as plain:
                try:
                    context.wrap_socket(plain, server_hostname="localhost").recv(1)
                    raise AssertionError(f"{dead} is spoken")
                except ssl.SSLError:
                    pass
            with server.client() as client:
                status = client.admin.command("serverStatus")
                counts = status["transportSecurity"]
                assert counts[alive] > 0 and sum(counts.values()) == counts[alive], counts
                assert status["security"]["SSLServerSubjectName"] == "CN=server,O=Tests", status["security"]


X509 = {"authMechanism": "MONGODB-X509"}


def who_has_a_certificate_logs_in_by_it():
    options = ("--auth", "--tlsCAFile", path("ca.pem"), "--tlsAllowConnectionsWithoutCertificates")
    with Secure(*options) as server:
        with server.client() as first:
            first.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        with server.client(username="root", password="pencil") as root:
            root["$external"].command("createUser", SUBJECT, roles=[{"role": "readWrite", "db": "d"}])
            root.d.command("createUser", SUBJECT, pwd="pencil", roles=["read"])
        for more in ({}, {"username": SUBJECT}):
            with server.client(shows="anna.pem", **X509, **more) as anna:
                anna.d.c.insert_one({})
                users = anna.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
                assert users == [{"user": SUBJECT, "db": "$external"}], users
                fails(13, lambda: anna.e.c.find_one())
        # Another name than the certificate's, no user of the certificate's name, no certificate.
        for shows, more in (("anna.pem", {"username": "CN=root"}), ("nobody.pem", {}), (None, {"username": SUBJECT})):
            with server.client(shows=shows, **X509, **more) as one:
                fails(18, lambda: one.d.c.find_one())
        with server.client(shows="anna.pem") as anna:
            login = {"authenticate": 1, "mechanism": "MONGODB-X509"}
            fails(17, lambda: anna.d.command(login))
            fails(334, lambda: anna["$external"].command({**login, "mechanism": "PLAIN"}))
            reply = anna["$external"].command({**login, "user": SUBJECT})
            assert (reply["dbname"], reply["user"]) == ("$external", SUBJECT), reply
        # The whole of the login is in the first answer.
        with server.client(shows="anna.pem") as anna:
            hello = anna.admin.command({"hello": 1, "speculativeAuthenticate": {
                "authenticate": 1, "mechanism": "MONGODB-X509", "db": "$external"}})
            assert hello["speculativeAuthenticate"] == {"dbname": "$external", "user": SUBJECT}, hello
        with server.client(shows="nobody.pem") as nobody:
            hello = nobody.admin.command({"hello": 1, "speculativeAuthenticate": {
                "authenticate": 1, "mechanism": "MONGODB-X509", "db": "$external"}})
            assert "speculativeAuthenticate" not in hello, hello
        # A password is none of a user who has none.
        with server.client(username=SUBJECT, password="pencil", authSource="$external",
                           authMechanism="SCRAM-SHA-256") as one:
            fails(18, lambda: one.d.c.find_one())
        with server.client(username="root", password="pencil") as root, server.client(shows="anna.pem", **X509) as anna:
            assert anna.d.c.find_one() is not None
            root["$external"].command("dropUser", SUBJECT)
            fails(13, lambda: anna.d.c.find_one())
    # A certificate that is only let pass is nobody's.
    with Secure("--auth", "--tlsCAFile", path("ca.pem"), "--tlsAllowInvalidCertificates", shows="foreign.pem") as server:
        with server.client() as first:
            first.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        with server.client(username="root", password="pencil") as root:
            root["$external"].command("createUser", SUBJECT, roles=[{"role": "root", "db": "admin"}])
        with server.client(**X509) as foreign:
            fails(18, lambda: foreign.d.c.find_one())
        with server.client(shows="anna.pem", **X509) as anna:
            anna.d.c.find_one()
    without = ("--setParameter", "authenticationMechanisms=SCRAM-SHA-256")
    with Secure(*options, *without) as server:
        with server.client(shows="anna.pem", **X509) as anna:
            fails(334, lambda: anna.d.c.find_one())


def roles_stand_in_certificates():
    options = ("--auth", "--tlsCAFile", path("ca.pem"), "--tlsAllowConnectionsWithoutCertificates")
    login = {"username": "root", "password": "pencil"}
    with Secure(*options) as server:
        with server.client() as first:
            first.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        with server.client(shows="writer.pem", **X509) as writer, server.client(**login) as root:
            # Nobody has stored this user.
            writer.d.c.insert_one({"_id": 1})
            fails(13, lambda: writer.e.c.find_one())
            info = writer.admin.command("connectionStatus")["authInfo"]
            assert info["authenticatedUsers"] == [{"user": "CN=writer,O=Clients", "db": "$external"}], info
            assert {"role": "readWrite", "db": "d"} in info["authenticatedUserRoles"], info
            # A role that is made, changed or dropped later is looked up again.
            right = {"resource": {"db": "e", "collection": ""}, "actions": ["find"]}
            root.admin.command("createRole", "own", privileges=[right], roles=[])
            assert writer.e.c.find_one() is None
            root.admin.command("dropRole", "own")
            fails(13, lambda: writer.e.c.find_one())
            # What is stored of the same name does not count.
            root["$external"].command("createUser", "CN=writer,O=Clients", roles=[{"role": "root", "db": "admin"}])
            fails(13, lambda: writer.e.c.find_one())
        with server.client(shows="impostor.pem", **X509) as impostor:
            fails(18, lambda: impostor.d.c.find_one())
        assert not works(server, shows="garbled.pem")
        assert "extension cannot be read" in server.tail(100_000)
    with Secure(*options, "--setParameter", "allowRolesFromX509Certificates=false") as server:
        with server.client() as first:
            first.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        with server.client(shows="writer.pem", **X509) as writer:
            fails(18, lambda: writer.d.c.find_one())


def members_are_known_by_what_is_said_of_their_certificates():
    attributes, text = "--tlsClusterAuthX509Attributes", "--tlsClusterAuthX509ExtensionValue"
    other = ("--setParameter", "tlsX509ClusterAuthDNOverride=O=Others,OU=Members")
    base = ("--clusterAuthMode", "x509", "--tlsCAFile", path("ca.pem"))
    for certificate, options, members in (
        ("peer.pem", (), ("peer.pem",)),
        ("peer.pem", other, ("peer.pem", "peer2.pem")),
        ("peer.pem", (attributes, "OU=Members"), ("peer.pem", "peer2.pem")),
        ("marked.pem", (text, "set one"), ("marked.pem",)),
    ):
        with Secure(*base, *options, certificate=certificate, shows=certificate) as server:
            for shows in ("peer.pem", "peer2.pem", "marked.pem", "anna.pem"):
                with server.client(shows=shows, **X509) as one:
                    if shows not in members:
                        fails(18, lambda: one.d.c.find_one())
                        continue
                    users = one.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
                    assert users == [{"user": "__system", "db": "local"}], (options, shows, users)
    tls = ("--tlsMode", "requireTLS", "--tlsCertificateKeyFile", path("peer.pem"), *base)
    assert "clusterAuthX509" in refused(*tls, attributes, "OU=Elsewhere")
    assert "clusterAuthX509" in refused(*tls, text, "set one")
    assert "NOSUCH" in refused(*tls, attributes, "NOSUCH=1")
    assert "leave one out" in refused(*tls, attributes, "OU=Members", text, "set one")
    assert "DNOverride" in refused(*tls, "--setParameter", "tlsX509ClusterAuthDNOverride=CN=x")


def shown_by(server):
    """The serial number of the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=path("ca.pem"))
    with socket.create_connection(("127.0.0.1", server.port), 10) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as stream:
            return dict(part[0] for part in stream.getpeercert()["subject"])["commonName"]


def files_are_exchanged_under_load():
    shutil.copy(path("server.pem"), path("live.pem"))
    with Secure(certificate="live.pem") as server, server.client() as client:
        client.d.c.insert_many([{"_id": i, "filler": "x" * 1000} for i in range(100)])
        ended, counts, errors = threading.Event(), [0] * 4, []

        def load(at):
            while not ended.is_set():
                try:
                    # A new connection each time, and some requests on it.
                    with server.client(retryReads=False) as one:
                        for i in range(10):
                            assert one.d.c.find_one({"_id": i})["_id"] == i
                            counts[at] += 1
                except Exception as error:
                    errors.append(error)

        threads = [threading.Thread(target=load, args=(at,)) for at in range(4)]
        for thread in threads:
            thread.start()
        assert shown_by(server) == "server"
        for round in range(10):
            name = ("server2", "server")[round % 2]
            # As a whole: no half file is ever read.
            shutil.copy(path(f"{name}.pem"), path("new.pem"))
            os.replace(path("new.pem"), path("live.pem"))
            assert client.admin.command("rotateCertificates", 1, message="a test")["ok"] == 1
            assert shown_by(server) == ("server two", "server")[round % 2]
            shutil.copy(path("expired.pem"), path("new.pem"))
            os.replace(path("new.pem"), path("live.pem"))
            text = str(fails(140, lambda: client.admin.command("rotateCertificates")))
            assert "live.pem" in text and "has expired" in text, text
            assert shown_by(server) == ("server two", "server")[round % 2]
            time.sleep(0.1)
        ended.set()
        for thread in threads:
            thread.join()
        assert not errors and min(counts) > 0, (errors[:3], counts)
        print(f"  {sum(counts)} requests")
        subject = client.admin.command("serverStatus")["security"]["SSLServerSubjectName"]
        assert subject == "CN=server,O=Tests", subject
    with Fernd() as server, server.client() as client:
        fails(20, lambda: client.admin.command("rotateCertificates"))


def a_signal_loads_the_files_again():
    shutil.copy(path("server.pem"), path("live.pem"))
    with Secure(certificate="live.pem") as server:
        for name, shown in (("server2", "server two"), ("server", "server")):
            shutil.copy(path(f"{name}.pem"), path("new.pem"))
            os.replace(path("new.pem"), path("live.pem"))
            server.process.send_signal(signal.SIGUSR2)
            until(lambda: shown_by(server) == shown)
        shutil.copy(path("expired.pem"), path("new.pem"))
        os.replace(path("new.pem"), path("live.pem"))
        server.process.send_signal(signal.SIGUSR2)
        until(lambda: "Failed to rotate" in server.tail(100_000))
        assert shown_by(server) == "server" and works(server)
        assert server.tail(100_000).count("Successfully rotated") == 2
    # Without TLS the signal ends nothing.
    with Fernd() as server, server.client() as client:
        server.process.send_signal(signal.SIGUSR2)
        until(lambda: "SIGUSR2" in server.tail(100_000))
        assert client.admin.command("ping")["ok"] == 1


def until(holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)


def versions_are_told_of_in_the_log():
    for option, told in (("TLS1_3", True), ("TLS1_2", False), ("TLS1_0,TLS1_1", False)):
        with Secure("--tlsLogVersions", option) as server:
            assert works(server)
            assert ("Accepted connection with TLS" in server.tail(100_000)) == told, option
    assert "TLS1_9" in refused("--tlsMode", "requireTLS", "--tlsCertificateKeyFile", path("server.pem"),
                               "--tlsLogVersions", "TLS1_9")


def the_end_of_a_certificate_is_warned_of_as_many_days_before_as_are_asked_for():
    for days, warned in ((None, True), ("5", False), ("60", True)):
        more = ("--setParameter", f"tlsX509ExpirationWarningThresholdDays={days}") if days else ()
        with Secure(*more) as server, server.client() as client:
            lines = client.admin.command("getLog", "startupWarnings")["log"]
            # It is good for 30 days, of which a moment has passed.
            assert any(" ends in 29 days" in line for line in lines) == warned, (days, lines)
            shown = client.admin.command("getParameter", 1, tlsX509ExpirationWarningThresholdDays=1)
            assert shown["tlsX509ExpirationWarningThresholdDays"] == int(days or 30)


def the_systems_authorities_are_taken_where_that_is_asked_for():
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = path("ca.pem")
    try:
        with Secure("--setParameter", "tlsUseSystemCA=true", shows="anna.pem") as server:
            assert works(server) and not works(server, shows="foreign.pem")
            server.shows = None
            assert not works(server), "without a certificate"
        os.environ["SSL_CERT_FILE"] = path("none.pem")
        line = refused("--tlsMode", "requireTLS", "--tlsCertificateKeyFile", path("server.pem"),
                       "--setParameter", "tlsUseSystemCA=true")
        assert "tlsUseSystemCA" in line and path("none.pem") in line, line
    finally:
        del os.environ["SSL_CERT_FILE"]
        if before is not None:
            os.environ["SSL_CERT_FILE"] = before


def cipher_suites_are_those_that_are_named():
    def agreed(server, ciphers, version):
        context = ssl.create_default_context(cafile=path("ca.pem"))
        context.minimum_version = context.maximum_version = version
        if ciphers:
            context.set_ciphers(ciphers)
        with socket.create_connection(("127.0.0.1", server.port), 10) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="localhost") as stream:
                    return stream.cipher()[0]
            except ssl.SSLError:
                return None

    wanted, other = "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"
    for option in (("--tlsCipherConfig", wanted), ("--setParameter", f"opensslCipherConfig={wanted}")):
        with Secure(*option, "--setParameter", "opensslCipherSuiteConfig=TLS_CHACHA20_POLY1305_SHA256") as server:
            assert works(server)
            assert agreed(server, None, ssl.TLSVersion.TLSv1_2) == wanted
            assert agreed(server, other, ssl.TLSVersion.TLSv1_2) is None
            assert agreed(server, None, ssl.TLSVersion.TLSv1_3) == "TLS_CHACHA20_POLY1305_SHA256"
    line = refused("--tlsMode", "requireTLS", "--tlsCertificateKeyFile", path("server.pem"),
                   "--setParameter", "opensslCipherConfig=AES128-SHA")
    assert "AES128-SHA" in line and wanted in line, line


def large_replies_and_many_small_ones():
    with Secure() as server, server.client() as client:
        large = {"_id": 1, "filler": os.urandom(16 * 1024 * 1024 - 100)}
        client.d.c.insert_one(large)
        for _ in range(5):
            assert client.d.c.find_one({"_id": 1}) == large
        client.d.s.insert_many([{"_id": i, "x": "y" * (i % 300)} for i in range(20_000)])
        assert sum(1 for _ in client.d.s.find(batch_size=7)) == 20_000
        for i in range(3000):
            assert client.d.s.find_one({"_id": i})["_id"] == i
        # Many at once on one connection, without waiting, and their answers taken late.
        context = ssl.create_default_context(cafile=path("ca.pem"))
        with socket.create_connection(("127.0.0.1", server.port), 60) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as stream:
                body = bson.encode({"find": "s", "filter": {"_id": {"$lt": 300}}, "batchSize": 300, "$db": "d"})
                message = struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body
                sender = threading.Thread(target=lambda: stream.sendall(message * 200))
                sender.start()
                time.sleep(0.5)
                reader = stream.makefile("rb")
                for _ in range(200):
                    length = struct.unpack("<i", reader.read(4))[0]
                    reply = bson.decode(reader.read(length - 4)[17:])
                    assert len(reply["cursor"]["firstBatch"]) == 300
                sender.join()


def two_hundred_connections():
    with Secure() as server, server.client() as client:
        client.d.c.insert_one({"_id": 1})
        before = server.resident()
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(server.client(maxPoolSize=1)) for _ in range(200)]

            def ask(one):
                return [one.d.c.find_one({"_id": 1})["_id"] for _ in range(20)]

            with concurrent.futures.ThreadPoolExecutor(50) as pool:
                assert all(answers == [1] * 20 for answers in pool.map(ask, clients))
            status = client.admin.command("serverStatus")
            assert status["connections"]["current"] >= 200, status["connections"]
            assert status["transportSecurity"]["1.3"] >= 200
            connections = status["connections"]["current"]
            print(f"  {(server.resident() - before) // connections} bytes a connection, {server.threads()} threads")
            assert server.threads() < 100


def compressors_and_tls():
    for name in ("snappy", "zlib", "zstd"):
        with Secure() as server, server.client(compressors=name) as client:
            client.d.c.insert_many([{"_id": i, "filler": "x" * 10_000} for i in range(300)])
            assert sum(len(found["filler"]) for found in client.d.c.find()) == 3_000_000


def slow_and_wrong_clients_hold_nothing():
    with Secure() as server, server.client() as client:
        client.d.c.insert_one({"_id": 1})
        context = ssl.create_default_context()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            session.do_handshake()
        hello = outgoing.read()
        with contextlib.ExitStack() as stack:
            def connect():
                return stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10))

            slow = [connect() for _ in range(20)]
            for at in range(200):
                for one in slow:
                    one.sendall(hello[at:at + 1])
                if at % 10 == 0:
                    assert client.d.c.find_one() is not None
            # Bytes that are no TLS behind a beginning that is.
            for _ in range(50):
                one = connect()
                one.sendall(hello[:60] + os.urandom(500))
            assert client.d.c.find_one() is not None
        status = client.admin.command("serverStatus")
        assert status["asserts"]["user"] < 5


def the_status_port_speaks_tls_too():
    context = ssl.create_default_context(cafile=path("ca.pem"))

    def ask(scheme, port):
        url = f"{scheme}://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=10, context=context if scheme == "https" else None) as reply:
            return reply.status, reply.headers.get("Strict-Transport-Security")

    for mode in ("requireTLS", "allowTLS"):
        port = free_port()
        # Who asks the page shows no certificate, whatever clients have to show.
        with Secure("--statusPort", str(port), "--tlsCAFile", path("ca.pem"), mode=mode, shows="anna.pem"):
            status, told = ask("https", port)
            assert status == 200 and (told is not None) == (mode == "requireTLS"), (status, told)
            if mode == "allowTLS":
                assert ask("http", port) == (200, None)
            else:
                try:
                    ask("http", port)
                    raise AssertionError("the status port answers plainly")
                except (urllib.error.URLError, ConnectionError, OSError):
                    pass


def members_need_an_authority_where_they_are_to_speak_tls():
    for mode in ("preferTLS", "requireTLS"):
        one, two = Secure("--replSet", "s", mode=mode), Fernd("--replSet", "s")
        with one, two, one.client() as client:
            members = [{"_id": i, "host": f"127.0.0.1:{server.port}"} for i, server in enumerate((one, two))]
            text = str(fails(72, lambda: client.admin.command("replSetInitiate", {"_id": "s", "members": members})))
            assert "tlsCAFile" in text, text
            # A set of one has no links.
            client.admin.command("replSetInitiate", {"_id": "s", "members": members[:1]})
            client.d.c.insert_one({})
    tls = ("--tlsMode", "allowTLS", "--tlsCertificateKeyFile", path("server.pem"))
    with ReplicaSet(*tls, members=2) as members:
        server = members.members[0]
        assert works(server_like(server))
        assert server.stop() == 0
        options = server.options
        server.options = [word.replace("allowTLS", "requireTLS") for word in options]
        done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "tlsCAFile" in done.stderr, done
        server.options = options
        server.start()


TESTS = [
    each_mode_takes_who_it_is_to_take,
    files_that_are_not_good_are_refused_in_a_line,
    old_names_work_and_are_warned_of,
    certificates_of_clients_are_looked_at,
    versions_can_be_switched_off,
    who_has_a_certificate_logs_in_by_it,
    roles_stand_in_certificates,
    members_are_known_by_what_is_said_of_their_certificates,
    files_are_exchanged_under_load,
    a_signal_loads_the_files_again,
    versions_are_told_of_in_the_log,
    the_end_of_a_certificate_is_warned_of_as_many_days_before_as_are_asked_for,
    the_systems_authorities_are_taken_where_that_is_asked_for,
    cipher_suites_are_those_that_are_named,
    large_replies_and_many_small_ones,
    two_hundred_connections,
    compressors_and_tls,
    slow_and_wrong_clients_hold_nothing,
    the_status_port_speaks_tls_too,
    members_need_an_authority_where_they_are_to_speak_tls,
]


if __name__ == "__main__":
    try:
        make_all()
        run_tests("tls", TESTS)
    finally:
        shutil.rmtree(HOME, ignore_errors=True)
