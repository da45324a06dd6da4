"""Operations that compute for ever end by `maxTimeMS`, by `killOp` and by SIGTERM, soon.

A sample through the wire of what `pipeline`'s test over the registries has for every operator: what a
client found that ran on, patterns over a large string, code that sleeps. Prints the slowest reaction.
What is wanted is half a second; what fails is several, for the machine may be busy.
"""

import sys
import threading
import time

import pymongo
from fernd import Fernd
from pymongo.errors import OperationFailure, PyMongoError

LIMIT_MS = 200
PATIENCE_S = 4
EXPIRED, INTERRUPTED, SHUTDOWN = 50, 11601, (91, 11600)

NUMBERS = {"$range": [0, 60_000]}
NESTED = {"$reduce": {"input": NUMBERS, "initialValue": 0, "in": {"$add": ["$$value", {"$reduce": {
    "input": NUMBERS, "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}]}}}
BACK_REFERENCE = "(.+)\\1{3}z|.*.*.*[yz]"


def each(expression):
    """The expression for each of many elements."""
    return {"$map": {"input": NUMBERS, "in": expression}}


def computed(expression):
    def work(client, limit):
        return list(client.hostile.one.aggregate([{"$project": {"n": expression}}, {"$project": {"n": 1}}], **limit))
    return work


def find(query):
    return lambda client, limit: list(client.hostile.text.find(query, max_time_ms=limit.get("maxTimeMS")))


def write(command):
    return lambda client, limit: client.hostile.command({**command, **limit})


def stages(*pipeline):
    return lambda client, limit: list(client.hostile.rows.aggregate(list(pipeline), **limit))


SLEEP = "function() { sleep(60000); return true }"
OPERATIONS = [
    ("nested $reduce", computed(NESTED)),
    ("$setUnion of arrays", computed(each({"$setUnion": ["$numbers", [-1]]}))),
    ("$filter with $in", computed({"$filter": {"input": NUMBERS, "cond": {"$in": [{"$add": ["$$this", 1e6]}, "$numbers"]}}})),
    ("$indexOfArray", computed(each({"$indexOfArray": ["$numbers", -1]}))),
    ("$indexOfBytes", computed(each({"$indexOfBytes": ["$text", "zz"]}))),
    ("$strLenCP", computed(each({"$strLenCP": "$text"}))),
    ("$sortArray", computed(each({"$sortArray": {"input": "$numbers", "sortBy": -1}}))),
    ("$zip", computed(each({"$zip": {"inputs": ["$numbers", "$numbers"]}}))),
    ("$eq of arrays", computed(each({"$eq": ["$numbers", "$numbers"]}))),
    ("$regexMatch", computed({"$regexMatch": {"input": "$text", "regex": BACK_REFERENCE}})),
    ("$regexFindAll", computed({"$regexFindAll": {"input": "$text", "regex": BACK_REFERENCE}})),
    ("find by $regex", find({"text": {"$regex": BACK_REFERENCE}})),
    ("find by $expr", find({"$expr": {"$regexMatch": {"input": "$text", "regex": BACK_REFERENCE}}})),
    ("update by $regex", write({"update": "text", "updates": [{"q": {"text": {"$regex": BACK_REFERENCE}}, "u": {"$set": {"a": 1}}}]})),
    ("find with sleep", find({"$where": SLEEP})),
    ("update with sleep", write({"update": "text", "updates": [{"q": {"$where": SLEEP}, "u": {"$set": {"a": 1}}}]})),
    ("delete with sleep", write({"delete": "text", "deletes": [{"q": {"$where": SLEEP}, "limit": 0}]})),
    ("$function that sleeps", computed({"$function": {"body": SLEEP, "args": [], "lang": "js"}})),
    ("$function that loops", computed({"$function": {"body": "function() { for (;;); }", "args": [], "lang": "js"}})),
    ("$lookup by a condition", stages({"$lookup": {"from": "rows", "let": {"x": "$x"}, "pipeline": [
        {"$match": {"$expr": {"$lt": ["$x", {"$multiply": ["$$x", 0]}]}}}], "as": "found"}})),
    ("$graphLookup", stages({"$graphLookup": {"from": "rows", "startWith": "$x", "connectFromField": "next",
                                              "connectToField": "x", "as": "found", "maxDepth": 2000}})),
    ("$setWindowFields", stages({"$setWindowFields": {"sortBy": {"x": 1}, "output": {"all": {
        "$addToSet": "$x", "window": {"documents": ["unbounded", "current"]}}}}},
        {"$project": {"n": {"$size": "$all"}}})),
]

worst = (0.0, "nothing")


def reacted(name, seconds):
    global worst
    worst = max(worst, (seconds, name))
    assert seconds < PATIENCE_S, f"{name}: {seconds:.1f} s"


def by_itself(error):
    """A fast machine reaches the limit of a match before anybody interrupts it."""
    return "match limit exceeded" in str(error)


def prepare(client):
    client.hostile.one.insert_one({"_id": 1, "numbers": list(range(60_000)), "text": "ab" * 3_000_000})
    client.hostile.text.insert_many([{"_id": i, "text": "ab" * 3_000_000} for i in range(2)])
    client.hostile.rows.insert_many([{"_id": i, "x": i, "next": i + 1} for i in range(3000)])


def by_time(client):
    for name, work in OPERATIONS:
        started = time.monotonic()
        try:
            work(client, {"maxTimeMS": LIMIT_MS})
        except OperationFailure as error:
            if by_itself(error):
                print(f"{name}: ended by the limit of a match in {time.monotonic() - started:.1f} s")
                continue
            assert error.code == EXPIRED, f"{name}: {error}"
            reacted(f"{name}, maxTimeMS", time.monotonic() - started - LIMIT_MS / 1000)
        else:
            # Done in time is no fault, but no test either.
            assert time.monotonic() - started < LIMIT_MS / 1000 + 0.1, f"{name} answered as if in time"
            print(f"{name}: done in time")


def running(client):
    operations = client.admin.aggregate([{"$currentOp": {}}])
    return [op for op in operations if op.get("ns", "").startswith("hostile.") and op.get("active")]


def by_kill(server, client):
    for name, work in OPERATIONS:
        told = []

        def run():
            try:
                with server.client() as own:
                    told.append(work(own, {}))
            except PyMongoError as error:
                told.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        deadline = time.monotonic() + 10
        while not (found := running(client)) and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        killed = time.monotonic()
        for operation in found:
            client.admin.command("killOp", op=operation["opid"])
        thread.join(30)
        assert not thread.is_alive(), f"{name} runs on after killOp"
        if isinstance(told[0], OperationFailure) and not by_itself(told[0]):
            assert told[0].code == INTERRUPTED, f"{name}: {told[0]}"
            reacted(f"{name}, killOp", time.monotonic() - killed)


def by_signal(server):
    def run(work):
        try:
            with server.client() as own:
                work(own, {})
        except PyMongoError:
            pass

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for _, work in OPERATIONS]
    for thread in threads:
        thread.start()
    time.sleep(2)
    started = time.monotonic()
    status = server.stop(60)
    seconds = time.monotonic() - started
    assert status == 0, f"ended with {status}:\n{server.tail()}"
    assert seconds < PATIENCE_S, f"SIGTERM took {seconds:.1f} s beside {len(threads)} operations"
    return seconds


def main():
    with Fernd("--cacheSize", "512M") as server:
        with server.client() as client:
            prepare(client)
            by_time(client)
            by_kill(server, client)
        seconds = by_signal(server)
    print(f"the slowest to react: {worst[1]} with {worst[0] * 1000:.0f} ms; SIGTERM beside "
          f"{len(OPERATIONS)} operations: {seconds:.1f} s")
    print(f"interrupts: {len(OPERATIONS)} operations passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
