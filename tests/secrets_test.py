"""A marker through every secret field of the commands of logins, users and TLS, and of the options; then it is looked
for in whatever the server shows or keeps: the log, profiles, operations that run, the audit log, getLog, the history,
getCmdLineOpts, parameters, the status page, each reply, and every file of its directory.

Each field has a marker of its own, so that a failure says which one is shown. A payload travels as binary data, which is
shown in base64: that is looked for as well.
"""

import base64
import contextlib
import os
import threading
import urllib.request

import bson
import bson.json_util
import certificates
from bson import Binary
from fernd import Raw, free_port, run_tests, wait_until
from secured import CA, Secured, certify

SECRET = "QZMARK"
SHA_256, SHA_1 = "SCRAM-SHA-256", "SCRAM-SHA-1"


class Markers:
    def __init__(self):
        self.names = {}

    def __call__(self, name):
        """A marker; where it is found tells the name."""
        return self.names.setdefault(name, f"{SECRET}{len(self.names):03}END")

    def payload(self, name, text="n,,n=root,r={}"):
        return Binary(text.format(self(name)).encode())

    def found(self, text):
        """The names of those that are in the text, plain or in any of the three alignments of base64."""
        if isinstance(text, str):
            text = text.encode()
        return sorted(name for name, marker in self.names.items() if any(form in text for form in forms(marker)))


def forms(marker):
    yield marker.encode()
    yield marker.encode("utf-16-le")
    yield marker.encode().hex().encode()
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + marker.encode())
        # The first and the last characters hang on what stands beside the marker.
        yield whole[4 if before else 0:len(whole) // 4 * 4 - 4]


def commands(mark):
    """Database, command; whether it succeeds does not matter, the failed ones are logged and told of, too."""
    users = "admin"
    yield users, {"createUser": "one", "pwd": mark("createUser.pwd"), "roles": []}
    yield users, {"createUser": "one", "pwd": mark("createUser.pwd of one that exists"), "roles": []}
    yield users, {"createUser": "two", "pwd": mark("createUser.pwd digested"), "roles": [], "digestPassword": False,
                  "mechanisms": [SHA_1]}
    yield users, {"createUser": "three", "pwd": mark("createUser.pwd beside an unknown field"), "roles": [], "x": 1}
    yield users, {"createUser": "three", "pwd": {"a": mark("createUser.pwd of a wrong type")}, "roles": []}
    yield users, {"createUser": "three", "pwd": [mark("createUser.pwd in an array")], "roles": []}
    yield users, {"createUser": "three", "pwd": mark("createUser.pwd before a wrong role"), "roles": ["nosuch"]}
    yield users, {"createUser": "three", "pwd": mark("createUser.pwd that SASLprep refuses") + "\u0221\u0007", "roles": []}
    yield users, {"createUser": "three", "pwd": mark("createUser.pwd twice"), "roles": [], "comment": "c", "maxTimeMS": 1}
    yield "$external", {"createUser": "CN=x", "pwd": mark("createUser.pwd of $external"), "roles": []}
    yield users, {"updateUser": "one", "pwd": mark("updateUser.pwd")}
    yield users, {"updateUser": "ghost", "pwd": mark("updateUser.pwd of nobody")}
    yield users, {"updateUser": "one", "pwd": 7, "customData": {}, "digestPassword": mark("updateUser.digestPassword")[:0]}
    yield users, {"explain": {"createUser": "four", "pwd": mark("explain createUser.pwd"), "roles": []}}
    yield users, {"explain": {"explain": {"updateUser": "one", "pwd": mark("explain explain updateUser.pwd")}}}
    for mechanism in (SHA_256, SHA_1, "PLAIN", "MONGODB-X509", "nosuch"):
        yield users, {"saslStart": 1, "mechanism": mechanism, "payload": mark.payload(f"saslStart.payload {mechanism}")}
    yield users, {"saslStart": 1, "mechanism": SHA_256, "payload": mark("saslStart.payload as a text")}
    yield users, {"saslStart": 1, "mechanism": SHA_256, "payload": mark.payload("saslStart.payload, rubbish", "{}"), "x": 1}
    yield users, {"explain": {"saslStart": 1, "mechanism": SHA_256, "payload": mark.payload("explain saslStart.payload")}}
    yield users, {"saslStart": 1, "mechanism": SHA_256, "payload": mark.payload("saslStart.payload before another")}
    yield users, {"saslContinue": 1, "conversationId": 1, "payload": mark.payload("saslContinue.payload", "c=biws,r={},p=AA==")}
    yield users, {"saslContinue": 1, "conversationId": 9, "payload": mark.payload("saslContinue.payload of none", "{}")}
    yield users, {"authenticate": 1, "user": "one", "nonce": mark("authenticate.nonce"), "key": mark("authenticate.key")}
    yield users, {"authenticate": 1, "user": "one", "pwd": mark("authenticate.pwd"), "mechanism": "PLAIN"}
    yield "$external", {"authenticate": 1, "mechanism": "MONGODB-X509", "user": "CN=x", "pwd": mark("authenticate.pwd x509")}
    for hello in ("hello", "isMaster"):
        for mechanism in (SHA_256, "MONGODB-X509", "nosuch"):
            yield users, {hello: 1, "speculativeAuthenticate": {
                "saslStart": 1, "mechanism": mechanism, "db": "admin",
                "payload": mark.payload(f"{hello}.speculativeAuthenticate {mechanism}")}}
        yield users, {hello: 1, "speculativeAuthenticate": {"authenticate": 1, "mechanism": "MONGODB-X509", "db": "$external",
                                                            "pwd": mark(f"{hello}.speculativeAuthenticate.pwd")}}
        yield users, {hello: 1, "speculativeAuthenticate": mark(f"{hello}.speculativeAuthenticate as a text")}


@contextlib.contextmanager
def watched(mark):
    """A server that logs, profiles and audits everything, with a key of TLS under a password, in a file of options."""
    certify()
    certificates.openssl("pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in", "server.key",
                         "-passout", f"pass:{mark('certificateKeyFilePassword')}", "-out", "locked.key")
    certificates.join("locked.pem", "server.crt", "locked.key")
    status = free_port()
    server = Secured("--auditDestination", "file", "--slowms", "0", "--statusPort", str(status), tls=False)
    server.status = status
    options = os.path.join(server.home, "options.yaml")
    with open(options, "w") as file:
        file.write(f"""net:
  tls:
    mode: allowTLS
    certificateKeyFile: {certificates.path('locked.pem')}
    certificateKeyFilePassword: {mark('certificateKeyFilePassword')}
    CAFile: {CA}
    allowConnectionsWithoutCertificates: true
setParameter:
  auditAuthorizationSuccess: true
""")
    os.chmod(options, 0o600)
    server.options += ["--config", options]
    with server, server.client() as root:
        for name in ("admin", "test", "$external"):
            with contextlib.suppress(Exception):
                root[name].command("profile", 2, slowms=0)
        yield server, root


def shown(server, root):
    """Whatever the server tells: place and text."""
    def text(reply):
        return bson.json_util.dumps(reply)

    yield "the log", server.tail(1 << 24)
    for name in ("global", "startupWarnings"):
        yield f"getLog {name}", text(root.admin.command("getLog", name))
    for name in root.list_database_names():
        yield f"the profile of {name}", text(list(root[name]["system.profile"].find()))
    for command in ("serverStatus", "getCmdLineOpts", "top", "connPoolStats", "hostInfo", "connectionStatus"):
        yield command, text(root.admin.command(command))
    yield "getParameter", text(root.admin.command("getParameter", "*"))
    yield "serverHistory", text(root.admin.command("serverHistory", 1))
    yield "currentOp", text(root.admin.command("currentOp", True))
    yield "usersInfo", text(root.admin.command("usersInfo", {"forAllDBs": True}, showCredentials=True))
    for path in ("/", "/metrics", "/api/now", "/api/collections", "/api/history?step=1"):
        request = urllib.request.Request(f"http://127.0.0.1:{server.status}{path}")
        request.add_header("Authorization", "Basic " + base64.b64encode(b"root:pencil").decode())
        with urllib.request.urlopen(request, timeout=20) as answer:
            yield f"the status page's {path}", answer.read()
    for folder, _, files in os.walk(server.dbpath):
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                yield f"the file {name}", file.read()


def a_secret_is_shown_nowhere():
    mark = Markers()
    with watched(mark) as (server, root):
        leaks = []
        # With a login, and without one: then most are refused before they are looked at.
        for user in ("root", None):
            for database, command in commands(mark):
                # A connection each: one login more, or less, is another reply.
                with Raw(server, user) as connection:
                    told = bson.json_util.dumps(connection.ask(database, command))
                    # What SCRAM answers begins with what the client chose, to it alone.
                    leaks += [f"the reply to {next(iter(command))}: {name}" for name in mark.found(told)
                              if "payload" not in name and "speculativeAuthenticate" not in name]
        # What a driver says that means another command than there is.
        with Raw(server, "root") as connection:
            for command in ({"createusers": 1, "pwd": mark("pwd of an unknown command")},
                            {"copydbsaslstart": 1, "payload": mark.payload("payload of an unknown command")}):
                assert connection.ask("admin", command)["code"] == 59
            # What is no secret is shown: else nothing would be looked at here.
            connection.ask("admin", {"find": "c", "filter": {"a": mark("a control"), "b": mark.payload("a control of bytes")}})
        assert root.admin.command("rotateCertificates")["ok"] == 1
        assert len(mark.names) > 35
        wait_until(lambda: "saslContinue" in server.tail(1 << 24), "the log tells of no login")
        places = list(shown(server, root))
        seen = {place for place, _ in places}
        assert {"the profile of admin", "the file auditLog.json", "the log"} <= seen, seen
        assert any("createUser" in str(text) for place, text in places if place == "the profile of admin")
        found = {place: mark.found(text) for place, text in places}
        controls = {"a control", "a control of bytes"}
        assert all(controls <= set(found[place]) for place in ("the log", "the profile of admin")), found
        leaks += [f"{place}: {name}" for place, names in found.items() for name in names if name not in controls]
        assert not leaks, "\n    ".join(["", *leaks])


def who_watches_operations_sees_no_password():
    mark = Markers()
    with Secured("--setParameter", "scramSHA256IterationCount=1000000", tls=False) as server, server.client() as root:
        seen, ended = [], threading.Event()

        def make():
            with Raw(server, "root") as connection:
                for at in range(6):
                    connection.ask("admin", {"createUser": f"u{at}", "pwd": mark("createUser.pwd, running"), "roles": []})
            ended.set()

        thread = threading.Thread(target=make)
        thread.start()
        while not ended.is_set():
            running = root.admin.command("currentOp", True)["inprog"]
            seen += [op for op in running if "createUser" in op.get("command", {})]
        thread.join()
        assert seen, "none was seen at work"
        assert not mark.found(bson.json_util.dumps(seen)), seen[0]
        assert all(op["command"]["pwd"] == "xxx" for op in seen), seen[0]


TESTS = [a_secret_is_shown_nowhere, who_watches_operations_sees_no_password]


if __name__ == "__main__":
    run_tests("secrets", TESTS)
