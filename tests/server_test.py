"""`fernd` as its operator meets it: options, files, refusals of one clear line, shutdown.

Each test says what holds; every refusal must be one line, a status other than 0, and lose nothing.
"""

import asyncio
import os
import resource
import signal
import socket
import struct
import subprocess
import time
import uuid

import bson
import pymongo
from bson import Binary, Int64
from fernd import Fernd, free_port, raw, run_tests


def refused(command, *words):
    """Runs `command`, which must end by itself with one line on stderr holding `words`."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode != 0, f"{command} ended well"
    assert len(lines) == 1, f"{command}: {lines}"
    for word in words:
        assert word.lower() in lines[0].lower(), f"{word!r} is not in {lines[0]!r}"


def a_second_server_on_the_same_directory_is_refused():
    with Fernd() as server, server.client() as client:
        client.a.b.insert_one({"_id": 1})
        command = server.command()
        command[command.index("--port") + 1] = str(free_port())
        refused(command, server.dbpath)
        assert client.a.b.count_documents({}) == 1


def a_port_in_use_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = Fernd()
        server.port = taken.getsockname()[1]
        refused(server.command(), str(server.port), "in use")
        server.remove()


def a_cache_above_the_memory_is_refused():
    server = Fernd("--cacheSize", "64T")
    refused(server.command(), "cacheSize", "memory")
    server.remove()


def an_unknown_option_is_refused():
    server = Fernd("--noSuchOption", "1")
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "noSuchOption" in done.stderr, done
    server.remove()


def options_that_cannot_be_honoured_are_refused():
    for options in (["--keyFile", "/k"], ["--tlsMode", "requireTLS"], ["--master"]):
        server = Fernd(*options)
        refused(server.command(), options[0].lstrip("-"))
        server.remove()


def a_configuration_file_is_read():
    server = Fernd()
    path = os.path.join(server.home, "fernd.conf")
    with open(path, "w") as f:
        f.write(f"storage:\n  dbPath: {server.dbpath}\nnet:\n  port: {server.port}\n"
                "  bindIp: 127.0.0.1\nsystemLog:\n  destination: file\n"
                f"  path: {server.home}/server.log\n")
    server.command = lambda: [server.binary, "--config", path]
    with server, server.client() as client:
        parsed = client.admin.command("getCmdLineOpts")["parsed"]
        assert parsed["net"]["port"] == server.port, parsed
        assert os.path.getsize(f"{server.home}/server.log") > 0


def an_old_ini_file_is_read():
    server = Fernd()
    path = os.path.join(server.home, "tokumx.conf")
    with open(path, "w") as f:
        f.write(f"# TokuMX\ndbpath={server.dbpath}\nport={server.port}\ncacheSize=134217728\n"
                "logFlushPeriod=100\ndirectio=off\ncleanerPeriod=2\ncleanerIterations=5\n"
                "fsRedzone=5\nlockTimeout=4000\nnohttpinterface=true\n")
    server.command = lambda: [server.binary, "--config", path]
    with server, server.client() as client:
        assert client.admin.command("ping")["ok"] == 1


def sigterm_shuts_down_and_keeps_everything():
    with Fernd("--cacheSize", "64M") as server:
        with server.client() as client:
            client.a.b.insert_many([{"_id": i} for i in range(5000)])
        assert server.stop() == 0, server.tail()
        server.start()
        with server.client() as client:
            assert client.a.b.count_documents({}) == 5000


def fork_leaves_a_daemon_behind():
    server = Fernd()
    pid_file = os.path.join(server.home, "pid")
    done = subprocess.run(
        [*server.command(), "--fork", "--logpath", f"{server.home}/log", "--pidfilepath", pid_file],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    with open(pid_file) as f:
        pid = int(f.read())
    try:
        with server.client() as client:
            assert client.admin.command("ping")["ok"] == 1
    finally:
        os.kill(pid, signal.SIGTERM)
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.05)
        server.remove()


def a_full_disk_loses_nothing():
    """A small tmpfs fills up: writes are refused clearly, reads go on, space brings writes back."""
    home = os.path.join(os.environ["FERN_TARGET"], "full-disk-test")
    os.makedirs(home, exist_ok=True)
    subprocess.run(["umount", "-q", home], check=False)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=320m", "tmpfs", home])
    if mounted.returncode != 0:
        print("  (no right to mount a tmpfs here: not run)")
        return
    ballast = os.path.join(home, "ballast")
    try:
        server = Fernd("--cacheSize", "64M", dbpath=os.path.join(home, "db"))
        with server, server.client() as client:
            bench = client.full.docs
            bench.insert_many([{"_id": i, "pad": os.urandom(500)} for i in range(1000)])
            with open(ballast, "wb") as f:
                try:
                    while True:
                        f.write(bytes(1 << 16))
                        f.flush()
                except OSError:
                    pass
            acked, error, deadline = 1000, None, time.monotonic() + 120
            while error is None and time.monotonic() < deadline:
                rows = [{"_id": acked + i, "pad": os.urandom(500)} for i in range(1000)]
                try:
                    bench.insert_many(rows)
                    acked += len(rows)
                except pymongo.errors.PyMongoError as e:
                    error = e
            assert error is not None, "a full disk went unnoticed"
            print(f"  refused after {acked}: {str(error)[:120]}")
            assert bench.find_one({"_id": 5}) is not None, "reads must go on"
            os.remove(ballast)
            deadline = time.monotonic() + 60
            while True:
                try:
                    bench.insert_one({"_id": "after"})
                    break
                except pymongo.errors.PyMongoError:
                    assert time.monotonic() < deadline, "writes did not come back"
                    time.sleep(0.5)
            assert bench.count_documents({"_id": {"$lt": acked}}) == acked
            assert server.stop() == 0
            server.start()
            assert server.client().full.docs.count_documents({"_id": {"$lt": acked}}) == acked
    finally:
        subprocess.run(["umount", "-l", home], check=False)


def numbered(command, session, number, **transaction):
    """`command` as a retryable write, or with `autocommit=False` as part of a transaction."""
    return {**command, "lsid": {"id": session}, "txnNumber": Int64(number), **transaction}


def a_write_sent_again_after_a_kill_is_done_once():
    session = Binary.from_uuid(uuid.uuid4())
    insert = {"insert": "b", "documents": [{"_id": n} for n in range(3)]}
    add = {"update": "b", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]}
    take = {"findAndModify": "b", "query": {"_id": 2}, "remove": True}
    with Fernd("--replSet", "rs0", "--replSetAutoInitiate") as server:
        for number, command in enumerate([insert, add, take]):
            first = raw(server, "a", numbered(command, session, number))
            server.kill()
            server.start()
            again = raw(server, "a", numbered(command, session, number))
            assert again["ok"] == 1 and again["retriedStmtIds"], again
            for field in ("n", "nModified", "value", "lastErrorObject"):
                assert first.get(field) == again.get(field), (first, again)
        with server.client() as client:
            assert list(client.a.b.find()) == [{"_id": 0}, {"_id": 1, "n": 1}]


def a_commit_sent_again_after_a_kill_is_answered():
    session = Binary.from_uuid(uuid.uuid4())
    insert = {"insert": "b", "documents": [{"_id": 1}]}
    end = {"commitTransaction": 1}
    with Fernd("--replSet", "rs0", "--replSetAutoInitiate") as server:
        start = numbered(insert, session, 0, autocommit=False, startTransaction=True)
        assert raw(server, "a", start)["ok"] == 1
        end = numbered(end, session, 0, autocommit=False)
        before = raw(server, "admin", end)
        server.kill()
        server.start()
        after = raw(server, "admin", end)
        assert before["ok"] == after["ok"] == 1, (before, after)
        assert before["operationTime"] < after["operationTime"], "time went back"
        with server.client() as client:
            assert client.a.b.count_documents({}) == 1
        never = raw(server, "admin", {**end, "txnNumber": Int64(1)})
        assert (never["code"], never["errorLabels"]) == (251, ["TransientTransactionError"]), never


async def tail_of(port, wanted):
    """A client that tails `a.log` over a connection of its own until it has seen so many documents."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def call(command):
        body = bson.encode({**command, "$db": "a"})
        writer.write(struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body)
        length = struct.unpack("<i", await reader.readexactly(4))[0]
        reply = bson.decode((await reader.readexactly(length - 4))[17:])
        assert reply["ok"] == 1, reply
        return reply["cursor"]

    first = await call({"find": "log", "tailable": True, "awaitData": True})
    seen = [document["_id"] for document in first["firstBatch"]]
    while len(seen) < wanted:
        more = await call({"getMore": first["id"], "collection": "log", "maxTimeMS": 600_000})
        assert more["nextBatch"], "it waits as long as nothing comes"
        seen += [document["_id"] for document in more["nextBatch"]]
    writer.close()
    return seen


async def tails_of(server, client, count, slowly, at_once):
    def waiting():
        return client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["pinned"]

    wanted = list(range(1 + slowly + at_once))
    tails = [asyncio.create_task(tail_of(server.port, len(wanted))) for _ in range(count)]
    most = 0
    for n in wanted[1:]:
        while n <= 1 + slowly:
            deadline = time.monotonic() + 60
            if await asyncio.to_thread(waiting) == count:
                break
            assert time.monotonic() < deadline, "they do not wait"
            await asyncio.sleep(0.05)
        most = max(most, server.threads())
        await asyncio.to_thread(client.a.log.insert_one, {"_id": n})
    for tail in tails:
        assert await asyncio.wait_for(tail, 120) == wanted
        most = max(most, server.threads())
    return most


def a_thousand_clients_tail_a_collection_with_few_threads():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Fernd() as server, server.client() as client:
        log = client.a.create_collection("log", capped=True, size=1 << 20)
        log.insert_one({"_id": 0})
        most = asyncio.run(tails_of(server, client, 1000, 3, 20))
        assert most < 40, f"{most} threads"
        # Each client left between two batches, and its cursor stays.
        opened = client.admin.command("serverStatus")["metrics"]["cursor"]["open"]
        assert opened["total"] == 1000 and opened["pinned"] == 0, opened


def a_tail_that_waits_ends_with_its_cursor_its_client_and_the_server():
    def waits(server, id):
        s = socket.create_connection(("127.0.0.1", server.port))
        body = bson.encode({"getMore": id, "collection": "log", "maxTimeMS": 600_000, "$db": "a"})
        s.sendall(struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body)
        return s

    def reply_to(s):
        reply = s.makefile("rb")
        return bson.decode(reply.read(struct.unpack("<i", reply.read(4))[0] - 4)[17:])

    def pinned(client, count):
        deadline = time.monotonic() + 20
        while True:
            opened = client.admin.command("serverStatus")["metrics"]["cursor"]["open"]
            if opened["pinned"] == count:
                return opened["total"]
            assert time.monotonic() < deadline, opened
            time.sleep(0.01)

    with Fernd() as server, server.client() as client:
        client.a.create_collection("log", capped=True, size=4096).insert_one({"_id": 0})
        tail = {"find": "log", "tailable": True, "awaitData": True}
        ids = [raw(server, "a", tail)["cursor"]["id"] for _ in range(3)]
        killed, left, stopped = (waits(server, id) for id in ids)
        assert pinned(client, 3) == 3
        running = client.admin.command("currentOp")["inprog"]
        assert not [op for op in running if "getMore" in op.get("command", {})], running
        assert raw(server, "a", {"getMore": ids[0], "collection": "log"})["codeName"] == "CursorInUse"
        assert raw(server, "a", {"killCursors": "log", "cursors": [ids[0]]})["cursorsKilled"] == [ids[0]]
        assert reply_to(killed)["codeName"] == "CursorKilled"
        left.close()
        assert pinned(client, 1) == 1
        # The end of the server ends the wait.
        assert server.stop() == 0
        stopped.close()


TESTS = [
    a_thousand_clients_tail_a_collection_with_few_threads,
    a_tail_that_waits_ends_with_its_cursor_its_client_and_the_server,
    a_second_server_on_the_same_directory_is_refused,
    a_port_in_use_is_refused,
    a_cache_above_the_memory_is_refused,
    an_unknown_option_is_refused,
    options_that_cannot_be_honoured_are_refused,
    a_configuration_file_is_read,
    an_old_ini_file_is_read,
    sigterm_shuts_down_and_keeps_everything,
    fork_leaves_a_daemon_behind,
    a_full_disk_loses_nothing,
    a_write_sent_again_after_a_kill_is_done_once,
    a_commit_sent_again_after_a_kill_is_answered,
]


if __name__ == "__main__":
    run_tests("server", TESTS)
