"""What clients can make the server hold: each case alone, then all of them at once beside an honest
client.

The bound is the manual's: the cache, a quarter of it and 64 MB. Each case is somebody who wants much
memory; each may get his answer, an error or a wait, and the process stays within the bound. With
`--together SECONDS` all cases run at once, and the time of the honest client's requests is compared
with what it was alone, and with what it is meanwhile at a second server that nobody attacks: three times
the greater is the bar. With `--collections N` so many collections with five indexes are made, and opened
again after kill -9.

Beside each case `serverStatus.memoryAccount` is asked again and again: what the allocator has given out
is never more than both accounts say, a tenth of it, and what the program takes by itself.
"""

import argparse
import multiprocessing
import os
import socket
import struct
import sys
import threading
import time

import bson
import pymongo
from fernd import Fernd, size
from pymongo.errors import PyMongoError

MEGABYTE = 1 << 20
LARGE = 16 * MEGABYTE - 1024


def numbers(count):
    return {"$range": [0, count]}


def aggregate(client, *stages):
    """One answer or one error; the server's memory is what counts."""
    list(client.admin.aggregate([{"$documents": [{"_id": 1}]}, *stages], maxTimeMS=20_000))


def concat_arrays(client, _):
    arrays = {"$concatArrays": [numbers(1_000_000)] * 20}
    aggregate(client, {"$project": {"n": {"$size": arrays}}})


def set_union(client, _):
    sets = {"$setUnion": [numbers(1_000_000), {"$range": [1_000_000, 3_000_000]}]}
    aggregate(client, {"$project": {"n": {"$size": sets}}})


def sort_array(client, _):
    items = {"$map": {"input": numbers(1_000_000), "in": {"a": {"$mod": ["$$this", 1009]}}}}
    aggregate(client, {"$project": {"n": {"$size": {"$sortArray": {"input": items, "sortBy": {"a": 1}}}}}})


def text_of_a_reduce(client, _):
    text = {"$reduce": {"input": numbers(30), "initialValue": "x" * 100, "in": {"$concat": ["$$value", "$$value"]}}}
    aggregate(client, {"$project": {"n": {"$strLenBytes": text}}})


def window_push(client, _):
    client.hostile.rows.aggregate([
        {"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"all": {
            "$push": "$text", "window": {"documents": ["unbounded", "current"]}}}}},
        {"$group": {"_id": None, "n": {"$sum": {"$size": "$all"}}}}], maxTimeMS=20_000).to_list()


def group_push(client, _):
    client.hostile.rows.aggregate(
        [{"$group": {"_id": None, "all": {"$push": "$text"}}}, {"$project": {"n": {"$size": "$all"}}}],
        maxTimeMS=20_000).to_list()


def write_batches(client, _):
    client.hostile.batches.insert_many([{"text": "x" * 1_300_000} for _ in range(36)])
    client.hostile.batches.delete_many({})


def write_large(client, number):
    client.hostile.written.replace_one({"_id": number}, {"text": "x" * LARGE}, upsert=True)


def read_large(client, _):
    for document in client.hostile.large.find():
        assert len(document["text"]) == LARGE


def message(command):
    body = bson.encode(command)
    return struct.pack("<iiiiIb", 21 + len(body), 1, 0, 2013, 0, 0) + body


def never_read(port, stop):
    """Asks for 16 MB and more and reads nothing of it."""
    sockets = []
    for _ in range(20):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(message({"find": "large", "batchSize": 1000, "$db": "hostile"}))
        sockets.append(s)
    stop.wait(10)
    for s in sockets:
        s.close()


def half_messages(port, stop):
    """Announces 48 MB, sends most of it, and waits."""
    sockets = []
    for _ in range(20):
        s = socket.create_connection(("127.0.0.1", port))
        s.settimeout(1)
        try:
            s.sendall(struct.pack("<iiii", 48_000_000, 1, 0, 2013))
            for _ in range(40):
                s.sendall(b"x" * MEGABYTE)
        except OSError:
            pass  # closed, or not read any further: both keep the memory
        sockets.append(s)
    stop.wait(10)
    for s in sockets:
        s.close()


# Name, clients, what each does: over a connection of the driver, or over sockets of its own.
CASES = [
    ("$concatArrays of $range", 1, concat_arrays),
    ("the same, four clients", 4, concat_arrays),
    ("$setUnion", 2, set_union),
    ("$sortArray", 2, sort_array),
    ("$concat in $reduce", 2, text_of_a_reduce),
    ("$setWindowFields with $push", 2, window_push),
    ("$group with $push", 2, group_push),
    ("writers of batches of 47 MB", 6, write_batches),
    ("writers of documents of 16 MB", 6, write_large),
    ("readers of documents of 16 MB", 6, read_large),
    ("clients that do not read replies", 1, never_read),
    ("messages that never end", 1, half_messages),
]
OVER_SOCKETS = (never_read, half_messages)


def attack(port, number, work, seconds):
    """Does it again and again until the time is over; errors are answers too."""
    stop, ends = threading.Event(), time.monotonic() + seconds
    answered = failed = 0
    with pymongo.MongoClient("127.0.0.1", port, directConnection=True) as client:
        while time.monotonic() < ends:
            try:
                work(port, stop) if work in OVER_SOCKETS else work(client, number)
                answered += 1
            except (PyMongoError, OSError) as error:
                failed += 1
                if not isinstance(error, pymongo.errors.OperationFailure):
                    time.sleep(0.05)
    return answered, failed


def attacker(port, number, work, seconds, results):
    # Attackers are machines of their own: what they compute takes nothing from the honest client. Their
    # share of the server's processors stays as it is.
    os.nice(10)
    results.put(attack(port, number, work, seconds))


def honest(port, seconds, results):
    """Finds and updates by `_id`; tells the 99th percentile in milliseconds."""
    # It is a machine of its own as well: it does not wait for a processor that the server or attackers have.
    try:
        os.nice(-10)
    except PermissionError:
        pass
    times, ends = [], time.monotonic() + seconds
    with pymongo.MongoClient("127.0.0.1", port, directConnection=True) as client:
        rows = client.honest.rows
        at = 0
        while time.monotonic() < ends:
            at += 1
            started = time.monotonic()
            if at % 10:
                rows.find_one({"_id": at % 1000})
            else:
                rows.update_one({"_id": at % 1000}, {"$inc": {"n": 1}})
            times.append(time.monotonic() - started)
            time.sleep(0.002)
    times.sort()
    results.put(("honest", len(times), times[len(times) * 99 // 100] * 1000, times[-1] * 1000))


def control(port, seconds, results):
    """The same at a server that nobody attacks: what the machine's processors alone make of the time."""
    asked = multiprocessing.Queue()
    honest(port, seconds, asked)
    _, _, p99, _ = asked.get()
    results.put(("control", p99))


def prepare(server):
    with server.client() as client:
        client.honest.rows.insert_many([{"_id": i, "n": 0, "text": "x" * 200} for i in range(1000)])
        client.hostile.rows.insert_many([{"_id": i, "text": "y" * 4000} for i in range(20_000)])
        for i in range(8):
            client.hostile.large.insert_one({"_id": i, "text": "z" * LARGE})


# What the program takes by itself: code's tables, threads, buffers of connections, the log.
PROGRAM = 24 * MEGABYTE


# What an idle collection or index takes at most: 60,000 of them fit a cache of 128 MB.
IDLE_DICTIONARY = 2048


def uncounted_of(account):
    """Bytes that the allocator gave out and no account knows, beyond a tenth; below 0 where there is room."""
    return account["allocator"]["allocated"] - account["total"] * 11 // 10 - PROGRAM


def uncounted(client):
    return uncounted_of(client.admin.command("serverStatus")["memoryAccount"])


def accountant(port, seconds, results):
    """Tells the most bytes that no account knew, and what was held when the process was largest."""
    most, before, largest, ends = -PROGRAM, -PROGRAM, None, time.monotonic() + seconds
    with pymongo.MongoClient("127.0.0.1", port, directConnection=True) as client:
        while time.monotonic() < ends:
            try:
                account = client.admin.command("serverStatus")["memoryAccount"]
                # The accounts and the allocator are not read at one moment, and a message may come between:
                # what no account knows is there at the next look too.
                now = uncounted_of(account)
                most, before = max(most, min(before, now)), now
                if largest is None or account["resident"] > largest["resident"]:
                    largest = account
            except PyMongoError:
                pass
            time.sleep(0.1)
    results.put(("uncounted", most, largest))


def show(account):
    """One line: what the kernel, the allocator and the accounts say, and each part of a megabyte and more."""
    parts = {**account["engine"]["parts"], **account["clients"]["parts"]}
    held = ", ".join(f"{name} {bytes / MEGABYTE:.0f}" for name, bytes in parts.items() if bytes >= MEGABYTE)
    sums = {"resident": account["resident"], "active": account["allocator"]["active"],
            "allocated": account["allocator"]["allocated"], "accounts": account["total"]}
    print("  largest seen: " + ", ".join(f"{name} {bytes / MEGABYTE:.0f}" for name, bytes in sums.items())
          + f" MB; of it {held}", flush=True)


def in_processes(jobs):
    results = multiprocessing.Queue()
    running = [multiprocessing.Process(target=work, args=(*given, results)) for work, given in jobs]
    for process in running:
        process.start()
    told = [results.get() for _ in running]
    for process in running:
        process.join()
    return told


def attackers(server, case, seconds):
    _, clients, work = case
    return [(attacker, (server.port, number, work, seconds)) for number in range(clients)]


def report(name, server, bound, told):
    peak = server.peak_resident()
    ((_, apart, largest),) = [t for t in told if t[0] == "uncounted"]
    told = [t for t in told if t[0] != "uncounted"]
    answered, failed = sum(a for a, *_ in told), sum(f for _, f, *_ in told)
    verdict = "within" if peak <= bound else "OVER"
    if apart > 0:
        verdict += f", {apart / MEGABYTE:.0f} MB in no account"
    print(f"| {name} | {peak / MEGABYTE:.0f} | {bound / MEGABYTE:.0f} | {verdict} | {answered} | {failed} |", flush=True)
    if verdict != "within" and largest:
        show(largest)
    return peak <= bound and apart <= 0


def alone(case, options, bound):
    with Fernd("--cacheSize", options.cache_size) as server:
        prepare(server)
        watch = (accountant, (server.port, options.seconds))
        told = in_processes([*attackers(server, case, options.seconds), watch])
        kept = report(case[0], server, bound, told)
        assert server.process.poll() is None, "the server is gone"
        return kept


def together(options, bound):
    seconds = options.together
    with Fernd("--cacheSize", options.cache_size) as server, Fernd("--cacheSize", options.cache_size) as quiet:
        prepare(server)
        prepare(quiet)
        ((*_, before, _),) = in_processes([(honest, (server.port, 10))])
        jobs = [(honest, (server.port, seconds)), (control, (quiet.port, seconds)), (accountant, (server.port, seconds))]
        for case in CASES:
            jobs += attackers(server, case, seconds)
        told = in_processes(jobs)
        ((_, count, beside, worst),) = [t for t in told if t[0] == "honest"]
        ((_, elsewhere),) = [t for t in told if t[0] == "control"]
        kept = report("all at once", server, bound, [t for t in told if t[0] not in ("honest", "control")])
        print(f"honest client: p99 {before:.1f} ms alone, {beside:.1f} ms beside ({count} requests, worst "
              f"{worst:.0f} ms), {elsewhere:.1f} ms at the same time at a server that nobody attacks", flush=True)
        return kept and beside <= 3 * max(before, elsewhere)


def idle_bytes(server, dictionaries):
    """What the allocator has given out for each dictionary of a server that was started over them and asked
    nothing: beyond what an empty one has, and without the pages of the catalog, which make room for others."""
    def allocated(of):
        with of.client() as client:
            account = client.admin.command("serverStatus")["memoryAccount"]
            return account["allocator"]["allocated"] - account["engine"]["parts"]["frames"]

    server.stop()
    server.start()
    with Fernd(*server.options) as empty:
        return (allocated(server) - allocated(empty)) // dictionaries


def collections(options, bound):
    """Many collections of five indexes: made at an even rate, within the bound, opened again soon. The rate is
    that of the server's processor time, which others on the machine do not change; a stall shows as the longest."""
    count, times, longest = options.collections, [], 0
    with Fernd("--cacheSize", options.cache_size) as server:
        with server.client() as client:
            indexes = [pymongo.IndexModel([(f"field{i}", 1)]) for i in range(5)]
            tenth = max(count // 10, 1)
            for at in range(0, count, tenth):
                before = server.cpu_seconds()
                for number in range(at, min(at + tenth, count)):
                    started = time.monotonic()
                    client.many[f"c{number}"].create_indexes(indexes)
                    longest = max(longest, time.monotonic() - started)
                times.append(server.cpu_seconds() - before)
            apart, peak = uncounted(client), server.peak_resident()
            client.admin.command("fsync")
        server.kill()
        started = time.monotonic()
        server.start()
        opened = time.monotonic() - started
        with server.client() as client:
            found = len(client.many.list_collection_names())
            after = server.peak_resident()
            client.admin.command("fsync")
            idle = idle_bytes(server, count * 6)
    mean = sum(times) / len(times)
    print(f"{count} collections of 5 indexes: {peak / MEGABYTE:.0f} MB, {after / MEGABYTE:.0f} MB when opened "
          f"again in {opened:.1f} s, {apart / MEGABYTE:.0f} MB in no account beyond the allowance; "
          f"each tenth took {', '.join(f'{t:.2f}' for t in times)} s of the server's processor time, the longest "
          f"{longest * 1000:.0f} ms", flush=True)
    print(f"an idle dictionary takes {idle} bytes; the slowest tenth went at {mean / max(times):.2f} of the mean rate")
    assert found == count, found
    return (max(peak, after) <= bound and apart <= 0 and opened <= 10 and idle <= IDLE_DICTIONARY
            and max(times) <= 2 * mean and longest <= 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache-size", default="128M")
    parser.add_argument("--seconds", type=float, default=5, help="for each case alone")
    parser.add_argument("--together", type=float, default=0, help="seconds of all cases at once")
    parser.add_argument("--collections", type=int, default=0, help="how many to make")
    parser.add_argument("--only", help="cases whose name holds this")
    options = parser.parse_args()
    cache = size(options.cache_size)
    bound = cache + cache // 4 + 64 * MEGABYTE
    print("| case | peak MB | bound MB | | answers | errors |\n|---|---|---|---|---|---|")
    cases = [case for case in CASES if not options.only or options.only in case[0]]
    kept = [alone(case, options, bound) for case in cases]
    if options.collections:
        kept.append(collections(options, bound))
    if options.together:
        kept.append(together(options, bound))
    print(f"memory bound: {kept.count(True)} passed, {kept.count(False)} failed")
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
