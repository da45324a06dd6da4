"""Change streams and the oplog tell all that happens, once, in order: also over kill -9.

Clients write at random (inserts, updates, replacements, deletes, bulks, transactions, DDL) while streams
of a collection, of a database and of the whole server are read (one collection has a primary key, so that
updates move its documents), and resumed from tokens that were given
at random. `--kills` times the server is killed and started again. At the end:

- the events, replayed on an empty copy, give the same documents;
- no stream gave an event twice or out of order, and all streams agree on what they share;
- the oplog's entries, applied by `applyOps` to another server, give the same documents.

`--seconds` writing in all, `--kills` kills. Short by default.
"""

import argparse
import random
import threading
import time

import bson
import pymongo
from bson import SON
from fernd import Fernd, validate
from pymongo.errors import PyMongoError

SET = ["--replSet", "rs0", "--replSetAutoInitiate"]
DATABASE = "streams"
COLLECTIONS = ["a", "b", "c"]


class Writer(threading.Thread):
    """Writes until it is told to stop; errors of a killed server are nobody's fault."""

    def __init__(self, number, server, seed):
        super().__init__(daemon=True)
        self.random = random.Random(seed * 100 + number)
        self.server, self.number = server, number
        self.ending = threading.Event()
        self.done = 0

    def run(self):
        while not self.ending.is_set():
            try:
                with self.server.client(serverSelectionTimeoutMS=2000, retryWrites=True) as client:
                    while not self.ending.is_set():
                        self.step(client)
                        self.done += 1
            except PyMongoError:
                time.sleep(0.05)

    def step(self, client):
        db, r = client[DATABASE], self.random
        coll = db[r.choice(COLLECTIONS)]
        key = r.randrange(200)
        what = r.randrange(100)
        if what < 25:
            coll.insert_many([self.document() for _ in range(r.randrange(1, 20))], ordered=False)
        elif what < 45:
            coll.update_one({"_id": key}, {"$set": {"v": r.random(), f"f{r.randrange(5)}": key}})
        elif what < 55:
            coll.update_many({"n": r.randrange(10)}, {"$inc": {"n": 1}, "$push": {"l": key}})
        elif what < 60:
            coll.update_one({"_id": key}, [{"$set": {"p": {"$add": [1, {"$ifNull": ["$p", 0]}]}}}])
        elif what < 68:
            coll.replace_one({"_id": key}, {"whole": r.random(), "n": r.randrange(10)}, upsert=True)
        elif what < 78:
            coll.delete_one({"_id": key})
        elif what < 82:
            coll.find_one_and_update({"_id": key}, {"$unset": {"v": 1}, "$pop": {"l": 1}})
        elif what < 95:
            self.transaction(client, db)
        elif what < 97:
            coll.create_index(r.choice(["n", "v"]))
        elif what < 98:
            coll.drop_indexes()
        elif self.number == 0:
            # One client alone: a name that goes while others write is made by them again.
            db[f"t{r.randrange(2)}"].insert_one(self.document())
            if r.random() < 0.5:
                db.drop_collection(f"t{r.randrange(2)}")

    def transaction(self, client, db):
        r = self.random
        with client.start_session() as session:
            try:
                with session.start_transaction():
                    for _ in range(r.randrange(1, 6)):
                        key = r.randrange(200)
                        coll = db[r.choice(COLLECTIONS)]
                        coll.update_one({"_id": key}, {"$inc": {"t": 1}}, upsert=True, session=session)
                        if r.random() < 0.3:
                            coll.delete_one({"_id": r.randrange(200)}, session=session)
                    if r.random() < 0.2:
                        raise InterruptedError
            except InterruptedError:
                pass

    def document(self):
        r = self.random
        return {"_id": r.choice([r.randrange(200), bson.ObjectId()]), "n": r.randrange(10), "l": []}


class Reader(threading.Thread):
    """Reads a stream, and opens it again from a token that it was given, now and then."""

    def __init__(self, server, target, seed, start):
        super().__init__(daemon=True)
        self.server, self.target, self.start_at = server, target, start
        self.random = random.Random(seed)
        self.events, self.token = [], None
        self.ending = threading.Event()
        self.failed = None

    def open(self, client):
        options = {"max_await_time_ms": 200, "batch_size": self.random.choice([1, 5, 100])}
        if self.token is None:
            options["start_at_operation_time"] = self.start_at
        else:
            options["resume_after"] = self.token
        on = {"collection": client[DATABASE]["a"], "database": client[DATABASE], "cluster": client}
        return on[self.target].watch([], show_expanded_events=False, **options)

    def run(self):
        while not self.ending.is_set():
            try:
                with self.server.client(serverSelectionTimeoutMS=2000) as client:
                    with self.open(client) as stream:
                        for _ in range(self.random.randrange(1, 200)):
                            if self.ending.is_set():
                                return
                            event = stream.try_next()
                            if event is not None:
                                self.events.append(event)
                            self.token = stream.resume_token
            except PyMongoError as error:
                if getattr(error, "code", None) in (280, 286):
                    self.failed = error
                    return
                time.sleep(0.05)


def written(server):
    """The documents of the database, collection by collection."""
    with server.client() as client:
        db = client[DATABASE]
        return {
            name: {bson.encode({"": d["_id"]}): bson.encode(d) for d in db[name].find(sort=[("_id", 1)])}
            for name in db.list_collection_names()
        }


def key_of(event):
    return bson.encode({"": event["documentKey"]["_id"]})


def changed(document, description):
    """The document after an update's description."""
    for path, value in description["updatedFields"].items():
        where, parts = document, path.split(".")
        for part in parts[:-1]:
            where = where[int(part)] if isinstance(where, list) else where[part]
        last = parts[-1]
        if isinstance(where, list):
            if int(last) == len(where):
                where.append(value)
            else:
                where[int(last)] = value
        else:
            where[last] = value
    for path in description["removedFields"]:
        where, parts = document, path.split(".")
        for part in parts[:-1]:
            where = where[int(part)] if isinstance(where, list) else where[part]
        del where[parts[-1]]
    for cut in description.get("truncatedArrays", []):
        where = document
        for part in cut["field"].split("."):
            where = where[int(part)] if isinstance(where, list) else where[part]
        del where[cut["newSize"]:]
    return document


def replayed(events):
    """What there is after these events."""
    state = {}
    for event in events:
        name = event["ns"].get("coll")
        kind = event["operationType"]
        if kind in ("insert", "replace"):
            before = state.setdefault(name, {})
            if kind == "insert" and key_of(event) in before:
                raise AssertionError(f"inserted twice: {event}")
            before[key_of(event)] = bson.encode(event["fullDocument"])
        elif kind == "update":
            document = bson.decode(state[name][key_of(event)])
            state[name][key_of(event)] = bson.encode(changed(document, event["updateDescription"]))
        elif kind == "delete":
            del state[name][key_of(event)]
        elif kind == "drop":
            state.pop(name, None)
        else:
            raise AssertionError(f"an event of no known kind: {event}")
    return state


def same(name, got, expected):
    """Field order may differ where a field was unset and set again; values may not."""
    names = {n for n, d in expected.items() if d} | {n for n, d in got.items() if d}
    for collection in names:
        mine, theirs = got.get(collection, {}), expected.get(collection, {})
        if mine.keys() != theirs.keys():
            missing, more = theirs.keys() - mine.keys(), mine.keys() - theirs.keys()
            raise AssertionError(f"{name}: {collection} misses {missing} and has besides {more}")
        for key, document in mine.items():
            if bson.decode(document) != bson.decode(theirs[key]):
                raise AssertionError(
                    f"{name}: {collection}: {bson.decode(document)} is not {bson.decode(theirs[key])}"
                )


def check_order(reader):
    tokens = [event["_id"]["_data"] for event in reader.events]
    for before, after in zip(tokens, tokens[1:]):
        if before >= after:
            raise AssertionError(f"{reader.target}: {after} came behind {before}")


def entries(server, start):
    with server.client() as client:
        oplog = client.local["oplog.rs"]
        found = list(oplog.find({"ts": {"$gt": start}}, cursor_type=pymongo.CursorType.NON_TAILABLE))
        newest = oplog.find().sort("$natural", -1).limit(1).next()
        if found and newest["ts"] != found[-1]["ts"]:
            raise AssertionError(f"the newest entry is {newest}, the last one read {found[-1]}")
        backward = [e["ts"] for e in oplog.find({"ts": {"$gt": start}}).sort("$natural", -1)]
        if backward != [e["ts"] for e in found][::-1]:
            raise AssertionError("backward the oplog is another")
        times = [e["ts"] for e in found]
        if times != sorted(set(times)):
            raise AssertionError("the oplog's times do not ascend")
        return found


def applied(found):
    """The documents of a server that was given these entries."""
    with Fernd() as other:
        with other.client() as client:
            for entry in found:
                operation = SON((k, v) for k, v in entry.items() if k not in ("ts", "t", "wall"))
                if operation["op"] == "n":
                    continue
                client.admin.command("applyOps", [operation])
        return written(other)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=8)
    arguments.add_argument("--kills", type=int, default=1)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--writers", type=int, default=3)
    options = arguments.parse_args()
    with Fernd(*SET) as server:
        with server.client() as client:
            hello = client.admin.command("ping")
            start = hello["operationTime"]
            client[DATABASE].command(SON([("create", "c"), ("primaryKey", SON([("n", -1), ("t", 1), ("_id", 1)]))]))
        targets = ["collection", "database", "cluster", "database"]
        readers = [Reader(server, t, options.seed + i, start) for i, t in enumerate(targets)]
        writers = [Writer(i, server, options.seed) for i in range(options.writers)]
        for thread in readers + writers:
            thread.start()
        for _ in range(options.kills):
            time.sleep(options.seconds / (options.kills + 1))
            server.kill()
            server.start()
        time.sleep(options.seconds / (options.kills + 1))
        for writer in writers:
            writer.ending.set()
        for writer in writers:
            writer.join(60)
        with server.client() as client:
            # Behind it nothing is on its way.
            client[DATABASE]["a"].with_options(write_concern=pymongo.WriteConcern(w="majority")).insert_one(
                {"_id": "last"}
            )
        deadline = time.monotonic() + 120
        is_last = lambda e: e.get("documentKey") == {"_id": "last"}
        while any(not (r.events and is_last(r.events[-1])) and r.failed is None for r in readers):
            if time.monotonic() > deadline:
                raise AssertionError("a stream does not come to the end")
            time.sleep(0.1)
        for reader in readers:
            reader.ending.set()
        for reader in readers:
            reader.join(60)
            if reader.failed is not None:
                raise AssertionError(f"the stream of the {reader.target} failed: {reader.failed}")
            check_order(reader)
        expected = written(server)
        with server.client() as client:
            for name in COLLECTIONS:
                validate(client[DATABASE][name])
            options_of_c = client[DATABASE].c.options()
        if "primaryKey" not in options_of_c:
            raise AssertionError(f"the primary key is gone: {options_of_c}")
        database, cluster, again = readers[1], readers[2], readers[3]
        if database.events != again.events:
            raise AssertionError("two streams of the database differ")
        if [e["_id"] for e in cluster.events if e["ns"]["db"] == DATABASE] != [e["_id"] for e in database.events]:
            raise AssertionError("the stream of the server differs from that of the database")
        of_a = [e for e in database.events if e["ns"].get("coll") == "a"]
        if [e["_id"] for e in readers[0].events] != [e["_id"] for e in of_a]:
            raise AssertionError("the stream of the collection differs from that of the database")
        same("events", replayed(database.events), expected)
        found = entries(server, start)
        same("oplog", applied(found), expected)
        writes = sum(writer.done for writer in writers)
        print(
            f"change streams: {writes} writes, {len(database.events)} events, {len(found)} entries, "
            f"{options.kills} kills: all equal"
        )


if __name__ == "__main__":
    main()
