"""A `fernd` of the tests' own: started on a free loopback port in a temporary directory, measured
through /proc, stopped (or killed) by process id.

The binary is named by the environment variable FERND, as `cargo xtask` sets it.
"""

import base64
import contextlib
import functools
import hashlib
import hmac
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

import bson
import pymongo

TICKS = os.sysconf("SC_CLK_TCK")
# How many seconds a test waits for something before it calls it missing. It measures nothing: a machine that compiles beside
# the tests, or whose disk is slow, is to come through.
PATIENCE = 120
# Who most tests make as the first user of a server that asks for users.
ROOT = {"username": "root", "password": "pencil", "authSource": "admin"}
# The log's line of a request that opened what it was not judged by.
PERMIT_MISS = b'"id":9016776'


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def lasting_port():
    """A free port below those that the kernel gives to connections that go out.

    A member of a set is dialled all the time while it is down. At another port such a connection
    could meet itself, and the port would be taken when the member comes back.
    """
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


class Fernd:
    """One server process over one data directory; `start` again after `kill` or `stop`."""

    def __init__(self, *options, dbpath=None):
        self.binary = os.environ["FERND"]
        self.home = tempfile.mkdtemp(prefix="fernd-test-")
        self.dbpath = dbpath or os.path.join(self.home, "db")
        self.port = free_port()
        self.options = list(options)
        self.process = None
        self.log = os.path.join(self.home, "fernd.log")
        # What an administrator logs in by, where the server asks for users.
        self.administrator = ROOT

    def command(self):
        command = [self.binary, "--dbpath", self.dbpath, "--port", str(self.port), *self.options]
        if "--statusPort" not in command:
            command += ["--statusPort", "0"]
        return command

    def start(self, wait=PATIENCE):
        self.process = subprocess.Popen(
            self.command(), stdout=open(self.log, "ab"), stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"fernd ended with {self.process.returncode}:\n{self.tail()}")
            try:
                with self.client(serverSelectionTimeoutMS=1000) as client:
                    client.admin.command("ping")
                    return self
            except pymongo.errors.PyMongoError:
                time.sleep(0.02)
        raise RuntimeError(f"fernd does not answer:\n{self.tail()}")

    def client(self, **options):
        return pymongo.MongoClient(
            "127.0.0.1", self.port, directConnection=True,
            **{"serverSelectionTimeoutMS": 20000, **options},
        )

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def hello(self):
        return raw(self, "admin", {"hello": 1})

    def tail(self, size=4000):
        with open(self.log, "rb") as f:
            return f.read()[-size:].decode(errors="replace")

    def kill(self):
        """kill -9: what the process had not written is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def permit_misses(self):
        """How many requests opened what the gate had not judged them by; None where nobody here may ask."""
        for who in ({}, self.administrator):
            try:
                with self.client(**{"serverSelectionTimeoutMS": 2000, "connectTimeoutMS": 2000,
                                    "socketTimeoutMS": 5000, **who}) as client:
                    return client.admin.command("serverStatus")["security"]["permitMisses"]
            except pymongo.errors.OperationFailure:
                continue
            except pymongo.errors.PyMongoError:
                break
        return None

    def check_permits(self, misses=None):
        """Every command's needs name what it opens: a gap in them fails the test that goes through it."""
        with open(self.log, "rb") as log:
            told = [line for line in log if PERMIT_MISS in line]
        if misses or told:
            shown = b"".join(told[:3]).decode(errors="replace")
            raise RuntimeError(f"security.permitMisses is {misses}, the log tells of {len(told)}:\n{shown}")

    def stop(self, wait=PATIENCE):
        """SIGTERM; returns the exit status. A server that has ended by itself is no server that stopped."""
        ended = self.process.poll()
        if ended is not None:
            raise RuntimeError(f"fernd had ended with {ended}:\n{self.tail()}")
        # It counts from its start on: what it has counted is asked for before it is gone.
        misses = self.permit_misses()
        self.process.terminate()
        try:
            ended = self.process.wait(wait)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"fernd did not stop within {wait} s:\n{self.tail()}") from None
        self.check_permits(misses)
        return ended

    def remove(self):
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *error):
        """A server that crashed fails its test, even one that has asked it nothing since."""
        ended = self.process.poll() if self.process else 0
        try:
            if ended is None:
                ended = self.stop()
            if error[0] is None and ended not in (0, -signal.SIGKILL):
                raise RuntimeError(f"fernd ended with {ended}:\n{self.tail()}")
            if error[0] is None and self.process:
                self.check_permits()
        finally:
            if error[0] is not None:
                print(f"fernd ended with {ended}:\n{self.tail()}", file=sys.stderr)
        self.remove()

    # What the kernel says of the process.

    def _status(self, field):
        with open(f"/proc/{self.process.pid}/status") as f:
            for line in f:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
        return 0

    def resident(self):
        return self._status("VmRSS")

    def peak_resident(self):
        return self._status("VmHWM")

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            words = f.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / TICKS

    def bytes_written(self):
        with open(f"/proc/{self.process.pid}/io") as f:
            return {k: int(v) for k, v in (line.split(": ") for line in f)}["write_bytes"]

    def disk_bytes(self, but=("log.",)):
        """Bytes the data directory takes on disk, the log's recycled segments left out."""
        total = 0
        for folder, _, files in os.walk(self.dbpath):
            for name in files:
                # The server goes on beside: a file may be gone before it is looked at.
                with contextlib.suppress(FileNotFoundError):
                    if not name.startswith(tuple(but)):
                        total += os.stat(os.path.join(folder, name)).st_blocks * 512
        return total


class Raw:
    """A connection that sends commands as they stand: a driver would put a session of its own into them.

    With a user it logs in by SCRAM-SHA-256; `context` is that of `ssl`, for a connection with TLS.
    """

    def __init__(self, server, user=None, database="admin", password="pencil", timeout=PATIENCE, context=None):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.replies = self.socket.makefile("rb")
        if user:
            self.log_in(user, database, password)

    def ask(self, database, command):
        body = bson.encode({**command, "$db": database})
        self.socket.sendall(struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body)
        length = struct.unpack("<i", self.replies.read(4))[0]
        return bson.decode(self.replies.read(length - 4)[17:])

    def log_in(self, user, database, password, skips_empty=True):
        """The last reply; without `skips_empty` one more exchange is to follow."""
        first = f"n={user},r=fixed"
        begin = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": f"n,,{first}".encode(),
                 "options": {"skipEmptyExchange": skips_empty}}
        challenge = self.ask(database, begin)["payload"].decode()
        told = dict(part.split("=", 1) for part in challenge.split(","))
        key = salted(password, told["s"], int(told["i"]))
        last = f"c=biws,r={told['r']}"
        client = hmac.digest(key, b"Client Key", "sha256")
        stored = hashlib.sha256(client).digest()
        signature = hmac.digest(stored, f"{first},{challenge},{last}".encode(), "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client, signature))).decode()
        end = self.ask(database, {"saslContinue": 1, "conversationId": 1, "payload": f"{last},p={proof}".encode()})
        if end["ok"] != 1:
            raise pymongo.errors.OperationFailure(str(end), end.get("code"), end)
        return end

    def close(self):
        self.replies.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


@functools.lru_cache(maxsize=64)
def salted(password, salt, iterations):
    return hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), iterations)


def raw(server, database, command, timeout=PATIENCE):
    """One command on a connection of its own."""
    with Raw(server, timeout=timeout) as connection:
        return connection.ask(database, command)


class ReplicaSet:
    """Several `fernd`s of one replica set, each in a directory of its own.

    As a context it is started and (but with `initiated=False`) initiated, and ends with all members stopped.
    """

    member_class = Fernd

    def __init__(self, *options, members=3, name="rs", initiated=True):
        self.name, self.initiated = name, initiated
        self.members = [self.member_class("--replSet", name, *options) for _ in range(members)]
        for member in self.members:
            member.port = lasting_port()

    def config(self):
        members = [{"_id": i, "host": host(member)} for i, member in enumerate(self.members)]
        return {"_id": self.name, "members": members}

    def start(self):
        for member in self.members:
            if not member.is_running():
                member.start()
        return self

    def initiate(self):
        with self.members[0].client() as client:
            client.admin.command("replSetInitiate", self.config())
        self.wait_for_all()

    def uri(self):
        hosts = ",".join(host(member) for member in self.members)
        return f"mongodb://{hosts}/?replicaSet={self.name}"

    def client(self, **options):
        return pymongo.MongoClient(self.uri(), **{"serverSelectionTimeoutMS": 30000, **options})

    def primary(self):
        """The member that says it is primary, or None."""
        for member in self.members:
            if member.is_running() and member.hello().get("isWritablePrimary"):
                return member
        return None

    def others(self, member):
        return [other for other in self.members if other is not member]

    def secondaries(self):
        return self.others(self.wait_for_primary())

    def wait_for_primary(self, but=None):
        """The primary, once one of the members is; `but` names one that was it before."""

        def there():
            primary = self.primary()
            return None if primary is but else primary

        return wait_until(there, "no member becomes primary", self.tails)

    def wait_for_all(self):
        """The primary, once each running member has its role."""

        def there():
            running = [member.hello() for member in self.members if member.is_running()]
            roles = ("secondary", "isWritablePrimary", "arbiterOnly")
            return all(any(hello.get(role) for role in roles) for hello in running)

        wait_until(there, "a member finds no role", self.tails)
        return self.wait_for_primary()

    def tails(self):
        """The last lines of the logs, without those about connections."""

        def lines(member):
            told = [line for line in member.tail(1 << 20).splitlines() if '"c":"NETWORK"' not in line]
            return "\n".join([f"{host(member)}:", *told[-12:]])

        return "\n".join(lines(member) for member in self.members)

    def __enter__(self):
        try:
            self.start()
            if self.initiated:
                self.initiate()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, *error):
        """All are stopped at once: one after the other the last ones would have to elect."""
        misses = {host(member): error[0] is None and member.permit_misses()
                  for member in self.members if member.is_running()}
        for member in self.members:
            if member.is_running():
                member.process.terminate()
        for member in self.members:
            if member.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    member.process.wait(60)
        failed = [f"{name}: security.permitMisses is {count}" for name, count in misses.items() if count]
        for member in self.members:
            if member.process is None:
                member.remove()
                continue
            try:
                member.__exit__(*error)
            except RuntimeError as failure:
                failed.append(str(failure))
        if failed and error[0] is None:
            raise RuntimeError("\n".join(failed))


def host(member):
    return f"127.0.0.1:{member.port}"


def wait_until(there, otherwise, tails=lambda: "", wait=PATIENCE):
    """What `there` gives, once it is something. A member that does not answer is asked again."""
    deadline = time.monotonic() + wait
    while True:
        # A connection that is closed before its reply is there ends in `struct.error`.
        with contextlib.suppress(pymongo.errors.ConnectionFailure, OSError, struct.error):
            found = there()
            if found:
                return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{otherwise} within {wait} s\n{tails()}")
        time.sleep(0.02)


def fails(code, action):
    """The error that an action fails with, which has this code."""
    try:
        action()
    except pymongo.errors.OperationFailure as error:
        assert error.code == code, error
        return error
    raise AssertionError(f"it was done, and should have failed with {code}")


def validate(collection):
    """Full validate; raises where an index and the documents disagree."""
    report = collection.database.command("validate", collection.name, full=True)
    if not report["valid"] or report.get("errors"):
        raise AssertionError(f"validate of {collection.full_name}: {report}")
    return report


def fern(*words, timeout=300, **options):
    """Runs `fern`, which lies beside the server."""
    program = os.path.join(os.path.dirname(os.environ["FERND"]), "fern")
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=timeout, **options)


def fern_restore(*words, fails=None, status=2):
    """`fern restore`, which succeeds, or says in one line why it does not; with status 1, what is damaged."""
    done = fern("restore", *words)
    if fails is None:
        assert done.returncode == 0, done
        return done.stdout
    lines = 1 if status == 2 else 0
    assert done.returncode == status and fails in done.stderr and done.stderr.count("\n") == lines, (fails, done)
    return done.stderr + done.stdout


def refuses_to_start(text, *options, dbpath):
    """A server that is started on a directory ends and says why."""
    server = Fernd(*options, dbpath=dbpath)
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and text in done.stdout + done.stderr, (text, done)
    server.remove()


def size(text):
    """`64M` as bytes, binary units as TokuMX's options take them."""
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    text = text.lower().rstrip("b")
    return int(float(text[:-1]) * units[text[-1]]) if text[-1] in units else int(text)


def kills(usual):
    """How often a test kills what it tests: FERN_KILLS, or as often as is usual."""
    return int(os.environ.get("FERN_KILLS", usual))


def run_tests(suite, tests):
    """Runs the tests, or those named on the command line. Each stands alone; all of them report."""
    only, failed = sys.argv[1:], 0
    tests = [t for t in tests if not only or t.__name__ in only]
    for test in tests:
        print(test.__name__.replace("_", " "), flush=True)
        began = time.monotonic()
        try:
            test()
            print(f"  {time.monotonic() - began:.1f} s", flush=True)
        except Exception as e:
            failed += 1
            lines = [f"{os.path.basename(f.filename)}:{f.lineno}" for f in traceback.extract_tb(e.__traceback__)]
            print(f"  FAILED: {type(e).__name__}: {e} (at {', '.join(lines[1:])})")
    print(f"{suite}: {len(tests) - failed} passed, {failed} failed")
    if failed:
        raise SystemExit(1)
