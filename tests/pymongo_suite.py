"""PyMongo's own test suite, from its source package on PyPI, against `fernd`.

Prints what passed, and the failures grouped by their last line. `--at-least N` fails the run where
fewer pass.
"""

import argparse
import collections
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree

import pymongo
from fernd import Fernd, ReplicaSet

ISSUE_FILES = "collection,crud_unified,cursor,bulk,database"
# What drivers do only towards a replica set.
REPLICA_SET_FILES = ",".join([
    "causal_consistency", "change_stream", "connections_survive_primary_stepdown_spec",
    "operation_id_retry",
    "read_concern", "read_write_concern_spec", "retryable_reads", "retryable_reads_unified",
    "retryable_writes", "retryable_writes_unified", "session", "sessions_unified", "transactions",
    "transactions_unified", "write_concern",
])
# Needs what is not here: client-side timeouts ("needs" by the suite's own words).
NOT_COUNTED = re.compile(r"csot|timeoutMS", re.I)
# Ask for a secondary, and wait half a minute each for the one that a set of one has not: not run,
# and counted as failed.
NEED_A_SECONDARY = [
    "test_get_more_iteration", "test_run_command_fails_with_explicit_secondary_read_preference",
    "test_run_command_fails_with_secondary_read_preference_from_transaction_options",
    "test_secondary_readPreference",
]
# Where some cases look for a server whatever DB_PORT says.
SUITES_OWN_PORT = 27017
# Who the suite logs in as.
USER, PASSWORD = "user", "password"
# Of the suite's cases: those that need users or encryption skip themselves where there is neither.
MARKS = "default or auth or encryption"
# What issue 24 names: logins, TLS, client-side timeouts and client-side encryption.
SECURITY_FILES = "auth,auth_spec,ssl,csot,encryption,session,monitoring"
# The others of test_encryption want MongoDB's own mongocryptd, or keys of a cloud, and wait half a minute each for it.
WITHOUT_MONGOCRYPTD = "(not test_encryption or " + " or ".join([
    "TestAutoEncryptionOpts", "TestClientOptions", "TestClientMaxWireVersion", "TestExplicitSimple",
    "TestUniqueIndexOnKeyAltNamesProse", "test_bypassAutoEncryption",
]) + ")"


class Server(Fernd):
    """One that the suite's certificates are for, where it is to speak TLS; its user is the suite's, where it asks for users."""

    tls = None

    def __init__(self, *options):
        super().__init__(*options)
        self.administrator = {"username": USER, "password": PASSWORD, "authSource": "admin"}

    def client(self, **options):
        return super().client(**{**(self.tls or {}), **options})


def certificates(folder, home):
    """What the suite brings along: options of the server and of a client. A key must be its owner's alone."""
    given = os.path.join(folder, "test", "certificates")
    key = os.path.join(home, "server.pem")
    shutil.copyfile(os.path.join(given, "server.pem"), key)
    os.chmod(key, 0o600)
    ca = os.path.join(given, "ca.pem")
    server = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", key, "--tlsCAFile", ca,
              "--tlsAllowConnectionsWithoutCertificates"]
    return server, {"tls": True, "tlsCAFile": ca, "tlsCertificateKeyFile": os.path.join(given, "client.pem")}


def sources(target):
    """The suite's folder, fetched once as the version of the driver that is installed."""
    home = os.path.join(target, "pymongo-suite")
    folder = os.path.join(home, f"pymongo-{pymongo.version}")
    if not os.path.isdir(folder):
        os.makedirs(home, exist_ok=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
             "--disable-pip-version-check", "-d", home, f"pymongo=={pymongo.version}"],
            check=True,
        )
        with tarfile.open(f"{folder}.tar.gz") as archive:
            archive.extractall(home)
    # The tests run against the installed driver, with its C extension, not against the sources.
    for package in ("pymongo", "bson", "gridfs"):
        path = os.path.join(folder, package)
        if os.path.isdir(path):
            os.rename(path, path + ".not-installed")
    return folder


def is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def outcomes(report):
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rsplit('.', 1)[-1]}.{case.get('name')}"
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            yield name, "failed", bad.text or bad.get("message") or ""
        elif case.find("skipped") is not None:
            yield name, "skipped", case.find("skipped").get("message") or ""
        else:
            yield name, "passed", ""


def reason(text):
    """The line that says why: the last error line, its numbers and names made alike."""
    lines = [l[4:].strip() for l in text.splitlines() if l.startswith("E   ")] or [text.strip()]
    line = lines[0] if lines else ""
    line = re.sub(r"ObjectId\('[0-9a-f]+'\)", "ObjectId(..)", line)
    return line.split(", full error")[0][:160]


def unrunnable(a):
    """The cases that are not run, and why."""
    if a.replica_set and a.members == 1:
        return NEED_A_SECONDARY, "asks for a secondary, and a set of one has none"
    return [], ""


@contextlib.contextmanager
def served(a, options, encrypted):
    """The server that the suite is told of: the only one, or the primary of several."""
    if a.members > 1:
        cluster = ReplicaSet(*options, members=a.members, name="rs0")
        if is_free(SUITES_OWN_PORT):
            cluster.members[0].port = SUITES_OWN_PORT
        with cluster:
            yield cluster.wait_for_primary()
        return
    server = Server(*options)
    server.tls = encrypted
    if a.replica_set and is_free(SUITES_OWN_PORT):
        server.port = SUITES_OWN_PORT
    with server:
        yield server


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--files", default=ISSUE_FILES, help="test_X.py, or `all`, or `security`")
    p.add_argument("--at-least", type=int, default=0)
    p.add_argument("--at-most-failed", type=int)
    p.add_argument("-k", help="pytest's -k")
    p.add_argument("--show", action="store_true", help="every failure's text")
    p.add_argument("--verbose", action="store_true", help="pytest's own output")
    p.add_argument("--server-options", default="")
    p.add_argument("--replica-set", action="store_true",
                   help="against a replica set of one, the files that need one")
    p.add_argument("--members", type=int, default=1, help="so many of them, with --replica-set")
    p.add_argument("--auth", action="store_true",
                   help="the server asks for users, and the suite logs in as one that may do everything")
    p.add_argument("--tls", action="store_true",
                   help="the server takes nothing but TLS, with the suite's own certificates")
    p.add_argument("--compressors", help="of zstd, zlib, snappy: what the suite asks for")
    p.add_argument("--api-version", help="`1`: every command of the suite says so")
    p.add_argument("--not-more-than", metavar="REPORT",
                   help="fails where a case fails that did not in the run that left this report")
    p.add_argument("--report", metavar="FILE", help="where the report is kept")
    p.add_argument("--percent", type=float, default=0,
                   help="fails where fewer of the cases that need nothing missing pass")
    a = p.parse_args()
    if a.replica_set and a.files == ISSUE_FILES:
        a.files = REPLICA_SET_FILES
    target = os.path.abspath(os.environ["FERN_TARGET"])
    folder = sources(target)
    if a.files == "security":
        a.files = SECURITY_FILES
    home = os.path.join(target, "pymongo-suite")
    report = os.path.abspath(a.report or os.path.join(home, "report-auth.xml" if a.auth else "report.xml"))
    names = ["test"] if a.files == "all" else [
        name for name in (f"test/test_{f}.py" for f in a.files.split(","))
        if os.path.exists(os.path.join(folder, name))
    ]
    options = ["--cacheSize", "512M"]
    if a.replica_set:
        options += ["--setParameter", "enableTestCommands=1"]
        if a.members == 1:
            options += ["--replSet", "rs0", "--replSetAutoInitiate"]
    if a.auth:
        key = os.path.join(target, "pymongo-suite", "key")
        with open(key, "w") as file:
            file.write("a2V5IG9mIHRoZSBzdWl0ZSdzIHNldA==")
        os.chmod(key, 0o600)
        options += ["--auth", *(["--keyFile", key] if a.replica_set else [])]
    unrun, why_unrun = unrunnable(a)
    if "encryption" in a.files.split(",") and not a.k:
        a.k = WITHOUT_MONGOCRYPTD
    selection = " and ".join([*(f"not {name}" for name in unrun), *([f"({a.k})"] if a.k else [])])
    secure, encrypted = certificates(folder, home) if a.tls else ([], None)
    with served(a, [*options, *secure, *a.server_options.split()], encrypted) as server:
        environment = {**os.environ, "DB_IP": "127.0.0.1", "DB_PORT": str(server.port)}
        environment.pop("FERND")
        if a.compressors:
            environment["COMPRESSORS"] = a.compressors
        if a.api_version:
            environment["MONGODB_API_VERSION"] = a.api_version
        if a.auth:
            with server.client() as nobody:
                nobody.admin.command("createUser", USER, pwd=PASSWORD, roles=["root"])
            environment.update(DB_USER=USER, DB_PASSWORD=PASSWORD)
        here = os.path.dirname(os.path.abspath(__file__))
        environment["PYTHONPATH"] = os.pathsep.join([here, environment.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "pytest", "-vv" if a.verbose else "-q", "-m", MARKS, "-p", "no:cacheprovider",
                   "-p", "no_container", "--tb=short",
                   "-o", f"addopts=--junitxml={report}", "-o", "log_cli=false", *names]
        if selection:
            command += ["-k", selection]
        output = None if a.verbose else subprocess.DEVNULL
        if os.path.exists(report):
            os.remove(report)
        # A shell starts what it runs in the background deaf to SIGINT, which some cases send.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        done = subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=output,
                              timeout=3000)
        if not os.path.exists(report):
            raise SystemExit(f"pytest ended with {done.returncode} and wrote no report; --verbose")
        if server.process.poll() is not None:
            raise SystemExit(f"fernd died:\n{server.tail()}")
    groups, counts = collections.defaultdict(list), collections.Counter()
    counted = collections.Counter()
    for name, outcome, text in outcomes(report):
        counts[outcome] += 1
        if not NOT_COUNTED.search(name):
            counted[outcome] += 1
        if outcome == "failed":
            groups[reason(text)].append(name)
            if a.show:
                print(f"--- {name}\n{text}\n")
    if unrun and not a.k:
        counts["failed"] += len(unrun)
        counted["failed"] += len(unrun)
        groups[f"not run: {why_unrun}"] = unrun
    for why, cases in sorted(groups.items(), key=lambda g: -len(g[1])):
        print(f"{len(cases):4}  {why}")
        for case in cases[:6]:
            print(f"          {case}")
    print(f"pymongo: {counts['passed']} passed, {counts['failed']} failed, "
          f"{counts['skipped']} skipped")
    if a.not_more_than:
        before = {name for name, outcome, _ in outcomes(a.not_more_than) if outcome == "failed"}
        more = sorted({name for name, outcome, _ in outcomes(report) if outcome == "failed"} - before)
        print(f"pymongo: {len(more)} fail that did not before{':' if more else ''} {', '.join(more)}")
        if more:
            raise SystemExit(1)
    ran = counted["passed"] + counted["failed"]
    percent = 100 * counted["passed"] / max(ran, 1)
    if a.replica_set:
        print(f"pymongo: {percent:.1f} % of the {ran} cases that need no "
              "client-side timeouts")
    if percent < a.percent:
        raise SystemExit(f"fewer than {a.percent} % passed")
    if counts["passed"] < a.at_least:
        raise SystemExit(f"fewer than {a.at_least} passed")
    if a.at_most_failed is not None and counts["failed"] > a.at_most_failed:
        raise SystemExit(f"more than {a.at_most_failed} failed")


if __name__ == "__main__":
    main()
