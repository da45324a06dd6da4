"""A `fernd` that asks for users, takes TLS alone, or both, and what each kind of client needs to reach it.

Always true: once it has started with users there is an administrator `root`, and `client` and `uri` log in as him.
"""

import contextlib
import os
import shutil
import ssl
import subprocess
import time
import urllib.parse

import certificates
import pymongo
from fernd import ROOT, Fernd

CA, SERVER, CLIENT = (certificates.path(name) for name in ("ca.pem", "server.pem", "client.pem"))
# Of the file that Java trusts by; it holds no secret.
TRUST_STORE, TRUST_PASSWORD = certificates.path("trust.p12"), "trusted"


def certify():
    """The authority, the server's certificate and a client's, made once a process."""
    if not os.path.exists(CLIENT):
        certificates.authority("ca")
        certificates.issue("server", "/O=Tests/CN=server")
        certificates.issue("client", "/C=DE/O=Clients/CN=client", extensions="extendedKeyUsage=clientAuth")


def java_trust():
    """What makes a Java client trust the server: options for `java`."""
    if not os.path.exists(TRUST_STORE):
        subprocess.run(["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", CA, "-keystore", TRUST_STORE,
                        "-storetype", "PKCS12", "-storepass", TRUST_PASSWORD], check=True, capture_output=True)
    return [f"-Djavax.net.ssl.trustStore={TRUST_STORE}", f"-Djavax.net.ssl.trustStorePassword={TRUST_PASSWORD}"]


class Secured(Fernd):
    """With `auth` it asks for users, with `tls` it takes nothing but TLS; with `--replSet` it has a key file."""

    def __init__(self, *options, auth=True, tls=True, mode="requireTLS", **more):
        self.auth, self.tls, self.has_root = auth, tls, False
        if tls:
            certify()
            options = ("--tlsMode", mode, "--tlsCertificateKeyFile", SERVER, "--tlsCAFile", CA,
                       "--tlsAllowConnectionsWithoutCertificates", *options)
        super().__init__(*options, **more)
        if auth:
            self.options.append("--auth")
            if "--replSet" in options:
                key = os.path.join(self.home, "key")
                with open(key, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                    file.write("a2V5IG9mIGEgdGVzdCdzIHNldA==")
                self.options += ["--keyFile", key]

    def start(self, **more):
        super().start(**more)
        if self.auth and not self.has_root:
            with self.nobody() as first:
                for _ in range(200):
                    # A member that has just initiated itself is not primary yet.
                    with contextlib.suppress(pymongo.errors.NotPrimaryError):
                        first.admin.command("createUser", ROOT["username"], pwd=ROOT["password"], roles=["root"])
                        self.has_root = True
                        break
                    time.sleep(0.05)
            assert self.has_root, "there is no first user"
        return self

    def nobody(self, **options):
        """A client that has not logged in."""
        encrypted = {"tls": True, "tlsCAFile": CA} if self.tls else {}
        return super().client(**{**encrypted, **options})

    def client(self, **options):
        return self.nobody(**{**(ROOT if self.has_root else {}), **options})

    def context(self):
        """TLS for a plain socket, or None."""
        return ssl.create_default_context(cafile=CA) if self.tls else None

    def uri(self, database="", user=ROOT["username"], password=ROOT["password"], ca=True, **parameters):
        """A connection string; without `ca` for a client that is told elsewhere whom to trust."""
        who = f"{user}:{password}@" if self.auth and user else ""
        if who:
            parameters = {"authSource": "admin", **parameters}
        if self.tls:
            # `ssl` is the name that drivers of any age know.
            parameters = {**({"tls": "true", "tlsCAFile": CA} if ca else {"ssl": "true"}), **parameters}
        query = urllib.parse.urlencode(parameters, safe="/")
        return f"mongodb://{who}127.0.0.1:{self.port}/{database}{'?' if query else ''}{query}"

    def tool_options(self):
        """Of the MongoDB Database Tools."""
        words = ["--host", "127.0.0.1", "--port", str(self.port)]
        if self.auth:
            words += ["--username", ROOT["username"], "--password", ROOT["password"], "--authenticationDatabase", "admin"]
        return words + (["--ssl", "--sslCAFile", CA] if self.tls else [])


def add_options(parser):
    """`--auth` and `--tls` for a script that runs a client's tests."""
    parser.add_argument("--auth", action="store_true", help="the server asks for users, the client logs in")
    parser.add_argument("--tls", action="store_true", help="the server takes nothing but TLS")


def missing(a):
    """Why it cannot be run here, or None."""
    return "no openssl to make certificates with" if a.tls and not shutil.which("openssl") else None
