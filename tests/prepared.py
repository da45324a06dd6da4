"""Clients that cost little beside the server that is measured: requests are encoded beforehand, and of a reply no more is
looked at than whether it is good. A driver would take more of the processors than the server.
"""

import datetime
import mmap
import random
import selectors
import socket
import struct
import tempfile
import time

import bson
from bson import ObjectId
from iibench import document

OP_MSG, BATCH = 2013, 1000
HEAD = 21
# `ok: 1.0`, as replies have it.
GOOD = b"\x01ok\0" + struct.pack("<d", 1.0)
BAD = (b"writeErrors\0", b"writeConcernError\0")


def message(number, body, documents=None):
    """The bytes of a request, the documents of an insert in a section of their own."""
    sections = b"\0" + bson.encode(body)
    if documents is not None:
        name = b"documents\0"
        sections += b"\1" + struct.pack("<i", 4 + len(name) + len(documents)) + name + documents
    return struct.pack("<iiiiI", 20 + len(sections), number, 0, OP_MSG, 0) + sections


def batches(count, seed):
    """iiBench's documents. Their `_id`s one process made, 50,000 in a second: they ascend, as a counter does that does not
    wrap."""
    rng = random.Random(seed)
    now = datetime.datetime(2026, 11, 28)
    process = rng.randbytes(5)
    for first in range(0, count, BATCH):
        rows = [document(rng, now) for _ in range(min(BATCH, count - first))]
        for number, row in enumerate(rows, first):
            seconds = int(now.timestamp()) + number // 50_000
            row["_id"] = ObjectId(struct.pack(">I", seconds) + process + struct.pack(">I", number)[1:])
        yield rows


class Prepared:
    """Requests that insert iiBench's documents, encoded once, one behind the other in a file."""

    def __init__(self, count, seed, **concern):
        self.file, self.ends, self.bson_bytes, self.documents = tempfile.TemporaryFile(), [0], 0, count
        insert = {"insert": "purchases", "ordered": False, "$db": "iibench", **concern}
        for number, rows in enumerate(batches(count, seed)):
            documents = b"".join(map(bson.encode, rows))
            self.bson_bytes += len(documents)
            request = message(number + 1, insert, documents)
            self.file.write(request)
            self.ends.append(self.ends[-1] + len(request))
        self.file.flush()
        self.bytes = memoryview(mmap.mmap(self.file.fileno(), 0, prot=mmap.PROT_READ))

    def requests(self):
        for start, end in zip(self.ends, self.ends[1:]):
            yield self.bytes[start:end]


def check(reply):
    """Fails where a reply is not good."""
    if GOOD not in reply or any(name in reply for name in BAD):
        raise AssertionError(f"a request failed: {bson.decode(bytes(reply[HEAD:]))}")


class Client:
    """A connection that sends bytes, and reads a reply before the next request."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reply, self.got = bytearray(1 << 16), 0

    def receive(self):
        """What is there of the reply; the whole of it once it is."""
        more = self.socket.recv_into(memoryview(self.reply)[self.got:])
        assert more > 0, "the server closed the connection"
        self.got += more
        if self.got < 4 or self.got < struct.unpack_from("<i", self.reply)[0]:
            return None
        whole, self.got = self.reply[:self.got], 0
        return whole

    def send(self, request):
        self.socket.sendall(request)
        while (reply := self.receive()) is None:
            pass
        return reply

    def command(self, body):
        reply = bson.decode(self.send(message(1, body))[HEAD:])
        assert reply["ok"] == 1, reply
        return reply

    def insert_all(self, prepared):
        for request in prepared.requests():
            check(self.send(request))

    def close(self):
        self.socket.close()


def send_all(port, connections, requests, rate=None):
    """Sends requests by so many connections, each its next one once it has its reply; `rate` bounds the requests a second.
    Returns how long each took, in the order in which they ended, and the seconds that all of them took."""
    requests, took = iter(requests), []
    clients = [Client(port) for _ in range(connections)]
    began = time.perf_counter()
    sent = 0
    with selectors.DefaultSelector() as selector:

        def next_request(client):
            nonlocal sent
            request = next(requests, None)
            if request is None:
                return False
            sent += 1
            client.began = time.perf_counter()
            client.socket.sendall(request)
            return True

        idle, busy = list(clients), 0
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        is_over = False
        while busy or not is_over:
            while idle and not is_over and (rate is None or sent < rate * (time.perf_counter() - began)):
                is_over = not next_request(idle[-1])
                if not is_over:
                    idle.pop()
                    busy += 1
            for key, _ in selector.select(None if rate is None else 0.001):
                client = key.data
                if (reply := client.receive()) is None:
                    continue
                took.append(time.perf_counter() - client.began)
                check(reply)
                if rate is None and not is_over and next_request(client):
                    continue
                is_over = is_over or rate is None
                busy -= 1
                idle.append(client)
    seconds = time.perf_counter() - began
    for client in clients:
        client.close()
    return took, seconds
