"""A server with users and TLS, with honest clients on it and hostile ones beside them.

The hostile ones are a process of their own and never log in: thousands of silent connections, messages that come a byte
at a time, halves of long messages, messages packed by each compressor that would unpack to much, floods of TLS's first
message and of handshakes that stop half way, rubbish, wrong passwords by the hundred, deep documents, a flood of
connections. One of them has a user with few rights, and asks for a thousand sessions and collections that do not exist.

Checked: no honest login is refused and no honest operation fails; the server's memory stays below what it was given and
a bound for its clients; it serves as before once they have left. Shown: how long honest operations and logins take,
alone, beside a process that does nothing but take a processor, and beside the hostile ones. With `--rounds` these take
turns, for a machine that does other things as well, and the ratios are medians. With `--bars` it fails where 99 % of the
honest finds take more than twice as long as alone. The hostile process comes last on the processors (`--nice`), for a
network's attackers have machines of their own: what is measured is what the server does for them.
"""

import argparse
import base64
import collections
import contextlib
import multiprocessing
import os
import random
import resource
import socket
import ssl
import statistics
import struct
import threading
import time
import zlib

import bson
import cramjam
import pymongo
from backports import zstd
from fernd import fails
from pymongo.errors import PyMongoError
from secured import Secured


def message(body, request_id=1):
    payload = struct.pack("<iB", 0, 0) + (body if isinstance(body, bytes) else bson.encode(body))
    return struct.pack("<iiii", 16 + len(payload), request_id, 0, 2013) + payload


def half_of_a_long_message(length):
    return struct.pack("<iiii", length, 1, 0, 2013) + b"\0" * 3000


def packed_bombs():
    """They unpack to 47 MB, by each compressor, out of a few KB to 2 MB; half of them say so."""
    plain = b"\0" * 47_000_000
    packed = {1: bytes(cramjam.snappy.compress_raw(plain)), 2: zlib.compress(plain, 9), 3: zstd.compress(plain, 19)}
    bombs = []
    for compressor, body in packed.items():
        for said in (len(plain), 1000):
            payload = struct.pack("<iiB", 2013, said, compressor) + body
            bombs.append(struct.pack("<iiii", 16 + len(payload), 1, 0, 2012) + payload)
    return bombs


def client_hello():
    """The first message of TLS, with a key share of its own."""
    context = ssl.create_default_context()
    came, gone = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(came, gone, server_hostname="localhost").do_handshake()
    return gone.read()


def deep_document():
    document = b""
    for _ in range(3000):
        document = struct.pack("<i", len(document) + 8) + b"\x03a\0" + document + b"\0"
    return document


def ask(one, command):
    one.sendall(message(command))
    length = struct.unpack("<i", one.recv(4, socket.MSG_WAITALL))[0]
    return bson.decode(one.recv(length - 4, socket.MSG_WAITALL)[17:])


# How much longer honest finds may take.
BAR = 2.0
HARMS = ("byte_by_byte", "half_messages", "bombs", "rubbish", "client_hellos", "half_handshakes", "handshakes", "deep",
         "flood", "wrong_passwords", "greedy_user")


class Hostile:
    """Threads that do harm until they are told to end."""

    def __init__(self, port, silent):
        self.port, self.silent = port, silent
        self.ended = threading.Event()
        self.sockets = []
        self.counts = {}
        self.threads = []
        self.packed = packed_bombs()

    def connect(self):
        """From one of forty addresses, none of which is that of the honest clients."""
        one = socket.create_connection(("127.0.0.1", self.port), 5, (f"127.0.1.{random.randint(1, 40)}", 0))
        one.settimeout(5)
        return one

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def repeat(self, what, pause=0.0):
        def run():
            while not self.ended.is_set():
                # To be refused or closed is what they are there for.
                with contextlib.suppress(OSError, PyMongoError):
                    what()
                    self.count(what.__name__)
                time.sleep(pause)

        self.threads.append(threading.Thread(target=run, daemon=True))

    def silence(self):
        """Keeps so many connections that say nothing."""
        while len(self.sockets) < self.silent and not self.ended.is_set():
            self.sockets.append(self.connect())
            self.count("silent connection")
        self.sockets = [one for one in self.sockets if self.is_open(one)]
        time.sleep(0.2)

    @staticmethod
    def is_open(one):
        one.setblocking(False)
        try:
            if one.recv(1) == b"":
                one.close()
                return False
        except BlockingIOError:
            return True
        except OSError:
            one.close()
            return False
        return True

    def byte_by_byte(self):
        with self.connect() as one:
            for byte in message({"hello": 1, "$db": "admin", "filler": "x" * 500}):
                one.sendall(bytes([byte]))
                if self.ended.wait(0.05):
                    break

    def half_messages(self):
        halves = [self.connect() for _ in range(50)]
        for one in halves:
            with contextlib.suppress(OSError):
                one.sendall(half_of_a_long_message(48_000_000))
        self.ended.wait(1)
        for one in halves:
            one.close()

    def bombs(self):
        for bomb in self.packed:
            with self.connect() as one, contextlib.suppress(OSError):
                # Without a hello that agrees on it no packed message is looked at.
                if random.random() < 0.8:
                    ask(one, {"hello": 1, "compression": ["snappy", "zlib", "zstd"], "$db": "admin"})
                one.sendall(bomb)
                one.recv(1)

    def client_hellos(self):
        """The server answers each with its key share, its certificate and a signature, for nobody."""
        for _ in range(20):
            with self.connect() as one:
                one.sendall(client_hello())

    def half_handshakes(self):
        """Fifty that stop behind the server's answer, fifty that stop in the middle of the first message."""
        first, halves = client_hello(), []
        for at in range(100):
            one = self.connect()
            halves.append(one)
            one.sendall(first if at % 2 else first[:len(first) // 2])
        self.ended.wait(1)
        for one in halves:
            one.close()

    def handshakes(self):
        """Whole ones, and then nothing."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for _ in range(10):
            with self.connect() as one, context.wrap_socket(one):
                pass

    def rubbish(self):
        for bytes_sent in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(600), os.urandom(300), b"GET / HTTP/1.1\r\n\r\n"):
            with self.connect() as one:
                one.sendall(bytes_sent)
                one.recv(1)

    def deep(self, body=message(deep_document())):
        with self.connect() as one:
            one.sendall(body)
            one.recv(1)

    def flood(self):
        for _ in range(200):
            self.connect().close()

    def hellos(self):
        """Ask once, and stay; those that the server has closed go here, too."""
        for _ in range(20 if len(self.sockets) < self.silent + 1000 else 0):
            one = self.connect()
            one.sendall(message({"hello": 1, "$db": "admin"}))
            self.sockets.append(one)

    def wrong_passwords(self):
        with self.connect() as one:
            begin = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=root,r=guess", "$db": "admin"}
            answer = ask(one, begin)
            nonce = answer["payload"].split(b",")[0][2:]
            guess = b"c=biws,r=" + nonce + b",p=" + base64.b64encode(os.urandom(32))
            go_on = {"saslContinue": 1, "conversationId": 1, "payload": guess, "$db": "admin"}
            assert ask(one, go_on)["code"] == 18, "somebody has guessed"

    def greedy_user(self):
        with pymongo.MongoClient("127.0.0.1", self.port, username="small", password="pencil", authSource="test",
                                 directConnection=True, serverSelectionTimeoutMS=3000) as client:
            ids = [{"id": bson.Binary(os.urandom(16), 4)} for _ in range(10_000)]
            with contextlib.suppress(PyMongoError):
                client.admin.command("refreshSessions", ids)
            for _ in range(500):
                client.test[f"c{random.getrandbits(60)}"].find_one()

    def start(self):
        for what in (self.silence, self.byte_by_byte, self.byte_by_byte, self.half_messages, self.bombs, self.rubbish,
                     self.client_hellos, self.half_handshakes, self.handshakes, self.deep, self.flood, self.hellos, self.wrong_passwords, self.wrong_passwords, self.greedy_user):
            self.repeat(what, pause=0.02)
        for thread in self.threads:
            thread.start()
        return self

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        for one in self.sockets:
            one.close()


def harm(port, silent, nice, ended, counts):
    """What the hostile process does."""
    os.nice(nice)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    hostile = Hostile(port, min(silent, hard - 4000)).start()
    ended.wait()
    hostile.end()
    counts.put(hostile.counts)


def take_a_processor(ended, counts):
    while not ended.is_set():
        sum(range(100_000))
    counts.put({})


@contextlib.contextmanager
def beside(what, *given):
    """A process beside; gives where its counts are once it has ended."""
    context = multiprocessing.get_context("spawn")
    ended, counts, told = context.Event(), context.Queue(), {}
    process = context.Process(target=what, args=(*given, ended, counts))
    process.start()
    try:
        yield told
    finally:
        ended.set()
        told.update(counts.get(timeout=60))
        process.join()


class Honest:
    """Clients that log in and do their work, each with a connection of its own; and some that log in again and again."""

    def __init__(self, server):
        self.server, self.ended = server, threading.Event()
        self.times, self.logins, self.failed = [], [], []

    def client(self):
        return self.server.client(maxPoolSize=1)

    def work(self):
        with self.client() as client:
            n = 0
            while not self.ended.is_set():
                n += 1
                self.timed(self.times, lambda: client.test.docs.find_one({"_id": n * 7919 % 1000}))

    def log_in(self):
        def once():
            with self.client() as client:
                assert client.test.docs.find_one({"_id": 1}) is not None

        while not self.ended.is_set():
            self.timed(self.logins, once)
            time.sleep(0.05)

    def timed(self, times, action):
        began = time.monotonic()
        try:
            action()
        except Exception as error:  # noqa: BLE001: whatever fails is what is looked for
            self.failed.append(repr(error))
            time.sleep(0.1)
        times.append(time.monotonic() - began)

    def run(self, seconds):
        threads = [threading.Thread(target=self.work) for _ in range(4)] + [threading.Thread(target=self.log_in)]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.ended.set()
        for thread in threads:
            thread.join()
        assert not self.failed, (len(self.failed), self.failed[:3])
        return self

    def late(self):
        """What a find in a hundred takes longer than."""
        return sorted(self.times)[len(self.times) * 99 // 100]

    def shown(self):
        def of(times):
            ordered = sorted(times)
            return f"{statistics.median(ordered) * 1e3:.2f} / {ordered[len(ordered) * 99 // 100] * 1e3:.2f}"

        return f"{len(self.times)} finds {of(self.times)} ms, {len(self.logins)} logins {of(self.logins)} ms (median / 99 %)"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--silent", type=int, default=20_000)
    p.add_argument("--rounds", type=int, default=1, help="the seconds are shared by so many")
    p.add_argument("--nice", type=int, default=19, help="of the hostile process; 0: as important as the server and its clients")
    p.add_argument("--bars", action="store_true", help="fail where the bar is missed")
    a = p.parse_args()
    seconds = a.seconds / a.rounds
    calm = min(seconds, 20)
    # Plain messages, too, so that the hostile ones reach what lies behind TLS.
    with Secured("--cacheSize", "128M", mode="preferTLS") as server, server.client() as root:
        root.test.docs.insert_many([{"_id": i, "filler": "x" * 200} for i in range(1000)])
        root.test.command("createUser", "small", pwd="pencil", roles=[{"role": "read", "db": "test"}])
        before, peak, counts, ratios = server.resident(), 0, collections.Counter(), []
        for _ in range(a.rounds):
            alone = Honest(server).run(calm)
            print("alone:           ", alone.shown(), flush=True)
            with beside(take_a_processor):
                busy = Honest(server).run(calm)
            print("beside a process:", busy.shown(), flush=True)
            with beside(harm, server.port, a.silent, a.nice) as done:
                harmed = Honest(server).run(seconds)
                status = root.admin.command("serverStatus")
            peak = server.peak_resident()
            counts.update(done)
            print("beside the others:", harmed.shown(), flush=True)
            ratios.append((harmed.late() / alone.late(), harmed.late() / busy.late()))
        to_alone, to_busy = (statistics.median(ratio) for ratio in zip(*ratios))
        print(f"99 % beside the others: {to_alone:.2f} times that alone, {to_busy:.2f} times that beside a process")
        print("they did:        ", ", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
        told = status["connections"]
        print(f"connections: {told['current']} at the end, {told['closedBeforeLogin']} closed before a login;"
              f" resident memory {before >> 20} MiB before, at most {peak >> 20} MiB")
        # Each kind of harm was done.
        assert all(counts.get(what, 0) > 0 for what in HARMS), counts
        # The cache, a quarter more for clients, and what the process takes beside them.
        assert peak < (128 << 20) * 5 / 4 + (256 << 20), peak
        fails(18, lambda: server.client(password="wrong").test.c.find_one())
        after = Honest(server).run(5)
        print("afterwards:      ", after.shown())
    if a.bars and to_alone > BAR:
        raise SystemExit(f"99 % of the honest finds took {to_alone:.2f} times as long, and {BAR} is the bar")


if __name__ == "__main__":
    main()
