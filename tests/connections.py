"""Ten thousand open connections, a thousand of them active, one of them stuck.

Checked: every connection is answered; an idle one costs at most 64 KB of the server's memory; a
client that reads nothing and one that sends half a message hold up nobody; `--maxConns` refuses
the one too many. With `--tls` the same of connections with TLS.
"""

import argparse
import asyncio
import resource
import struct
import time

import bson
from secured import Secured


def message(body, request_id=1):
    payload = struct.pack("<iB", 0, 0) + bson.encode(body)
    return struct.pack("<iiii", 16 + len(payload), request_id, 0, 2013) + payload


async def call(reader, writer, body):
    writer.write(message(body))
    await writer.drain()
    length = struct.unpack("<i", await reader.readexactly(4))[0]
    rest = await reader.readexactly(length - 4)
    return bson.decode(rest[17:])


def dial(port, context):
    """Without a certificate of the client's; the name is checked, as a driver does."""
    named = {"ssl": context, "server_hostname": "localhost"} if context else {}
    return asyncio.open_connection("127.0.0.1", port, **named)


async def open_all(port, count, context):
    connections = []
    for i in range(0, count, 200):
        batch = [dial(port, context) for _ in range(min(200, count - i))]
        opened = await asyncio.gather(*batch)
        replies = await asyncio.gather(*(call(r, w, {"hello": 1, "$db": "admin"})
                                         for r, w in opened))
        assert all(reply["ok"] == 1 for reply in replies)
        connections += opened
    return connections


async def active(connection, until, seed):
    done = 0
    while time.monotonic() < until:
        key = (seed * 7919 + done * 104729) % 1000
        reply = await call(*connection, {"find": "docs", "filter": {"_id": key}, "$db": "conns"})
        assert reply["cursor"]["firstBatch"][0]["_id"] == key, reply
        done += 1
    return done


async def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--open", type=int, default=10_000)
    p.add_argument("--active", type=int, default=1_000)
    p.add_argument("--seconds", type=float, default=5)
    p.add_argument("--tls", action="store_true", help="a server with `tlsMode: requireTLS`")
    a = p.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Secured("--cacheSize", "256M", "--maxConns", str(a.open + 20), auth=False, tls=a.tls) as server:
        context = server.context()
        with server.client() as client:
            client.conns.docs.insert_many([{"_id": i, "pad": "x" * 200} for i in range(1000)])
        await asyncio.sleep(1)
        before, cpu = server.resident(), server.cpu_seconds()
        connections = await open_all(server.port, a.open, context)
        cpu = (server.cpu_seconds() - cpu) / a.open
        await asyncio.sleep(2)
        idle = (server.resident() - before) / a.open
        print(f"{a.open} open{' with TLS' if a.tls else ''}: {idle / 1024:.1f} KB each when idle, "
              f"{cpu * 1e6:.0f} CPU us each to open, {server.threads()} threads")

        stuck_r, stuck_w = connections[-1]
        for _ in range(200):  # asks for much and reads nothing
            stuck_w.write(message({"find": "docs", "$db": "conns", "batchSize": 1000}))
        half_r, half_w = connections[-2]
        half_w.write(message({"ping": 1, "$db": "admin"})[:20])

        cpu, until = server.cpu_seconds(), time.monotonic() + a.seconds
        counts = await asyncio.gather(
            *(active(c, until, i) for i, c in enumerate(connections[: a.active])))
        cpu = server.cpu_seconds() - cpu
        assert min(counts) > 0, "an active connection was never answered"
        print(f"{a.active} active: {sum(counts) / a.seconds:.0f} finds/s, "
              f"{cpu / sum(counts) * 1e6:.1f} CPU us each, slowest client {min(counts)}, "
              f"{server.threads()} threads")
        half_w.write(message({"ping": 1, "$db": "admin"})[20:])
        assert struct.unpack("<i", await asyncio.wait_for(half_r.readexactly(4), 10))[0] > 16

        refused = 0
        for _ in range(60):
            try:
                extra = await dial(server.port, context)
                connections.append(extra)
                await asyncio.wait_for(call(*extra, {"ping": 1, "$db": "admin"}), 10)
            except (OSError, asyncio.IncompleteReadError):
                refused += 1
        assert refused > 0, "--maxConns did not refuse the one too many"
        for _, w in connections:
            w.close()
        await asyncio.sleep(1)
        with server.client() as client:
            assert client.conns.docs.count_documents({}) == 1000
        assert idle <= 64 * 1024, f"an idle connection costs {idle / 1024:.1f} KB"
        print("connections: 1 passed, 0 failed")


if __name__ == "__main__":
    asyncio.run(main())
