"""TokuMX's bulk loader, index builds past the log and `$out`, through PyMongo: what is seen when, by whom, what is refused,
what kills, disconnects and duplicates leave, and how much memory they take.

A load belongs to a transaction, and a transaction to a connection: its client has one (`alone`).

`--kills N` kills the server so many times in the middle of loads (8 unless said).
"""

import argparse
import contextlib
import random
import sys
import threading
import time

from bson import SON
from fernd import Fernd, ReplicaSet, fails, kills, run_tests, validate, wait_until
from pymongo import IndexModel
from pymongo.errors import OperationFailure, PyMongoError

MIB = 1 << 20
KILLS = kills(8)


def alone(server, **options):
    return server.client(maxPoolSize=1, retryWrites=False, **options)


def begin(db, ns="c", indexes=None, options=None):
    db.command("beginTransaction")
    return begin_load(db, ns, indexes, options)


def begin_load(db, ns="c", indexes=None, options=None):
    command = SON([("beginLoad", 1), ("ns", ns), ("indexes", indexes or []), ("options", options or {})])
    told = db.command(command)
    assert told["status"] == "load began", told
    return told


def commit_load(db, n):
    told = db.command("commitLoad")
    assert told["status"] == "load committed" and told["n"] == n, told


def by(*fields, **options):
    return {"key": SON([(field, 1) for field in fields]), "name": "_".join(fields), **options}


def documents(count, start=0, size=40):
    return [{"_id": i, "a": i * 7919 % 10007, "b": [i % 5, i % 3], "s": "x" * size} for i in range(start, start + count)]


def names(db):
    return sorted(db.list_collection_names())


def a_load_is_the_transactions_until_it_commits():
    with Fernd() as server, alone(server) as client, server.client() as other:
        db = client.shop
        told = begin(db, indexes=[by("a", ns="shop.c"), by("b", ns="shop.c"), by("a", "b", ns="shop.c", unique=False)])
        assert "note" not in told, told
        db.c.insert_many(documents(3000))
        db.c.insert_one({"_id": -1, "a": 5})
        assert list(db.c.find()) == [] and db.command("count", "c")["n"] == 0
        assert list(other.shop.c.find()) == [] and "c" not in names(other.shop)
        commit_load(db, 3001)
        # From now on it is a collection of the transaction.
        assert db.command("count", "c")["n"] == 3001
        assert [d["_id"] for d in db.c.find({"a": 5}).sort("_id", 1)][0] == -1
        db.c.update_one({"_id": -1}, {"$set": {"a": 6}})
        db.c.insert_one({"_id": 5000, "a": 1})
        db.c.delete_one({"_id": 7})
        assert list(other.shop.c.find()) == []
        db.command("commitTransaction")
        coll = other.shop.c
        assert coll.estimated_document_count() == coll.count_documents({}) == 3001
        assert [d["_id"] for d in coll.find().limit(2)] == [-1, 0]
        assert sorted(coll.index_information()) == ["_id_", "a", "a_b", "b"]
        wanted = sorted(d["_id"] for d in documents(3000) if d["a"] == 7919 and d["_id"] != 7)
        assert sorted(d["_id"] for d in coll.find({"a": 7919}).hint("a")) == wanted
        assert coll.count_documents({"b": 2}, hint="b") == sum(2 in d["b"] for d in documents(3000) if d["_id"] != 7)
        validate(coll)


def each_refusal_has_tokumx_number():
    with Fernd() as server, alone(server) as client, server.client() as other:
        db = client.shop
        load = SON([("beginLoad", 1), ("ns", "c"), ("indexes", []), ("options", {})])
        fails(16892, lambda: db.command(load))
        fails(16876, lambda: db.command("commitLoad"))
        fails(16888, lambda: db.command("abortLoad"))
        other.shop.there.insert_one({})
        db.command("beginTransaction")
        fails(16873, lambda: db.command({**load, "ns": "there"}))
        fails(16998, lambda: db.command({**load, "ns": "system.x"}))
        fails(16999, lambda: db.command({**load, "options": {"capped": True, "size": 4096}}))
        fails(17000, lambda: db.command({**load, "options": {"natural": 1}}))
        fails(16876, lambda: db.command("commitLoad"))
        fails(16888, lambda: db.command("abortLoad"))
        begin_load(db)
        fails(16915, lambda: db.command({**load, "ns": "d"}))
        fails(16889, lambda: db.command("commitTransaction"))
        fails(16890, lambda: db.command("rollbackTransaction"))
        db.c.insert_one({"_id": 1})
        for command in [
            {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
            {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
            {"findAndModify": "c", "query": {}, "remove": True},
            {"createIndexes": "c", "indexes": [by("z")]},
            {"dropIndexes": "c", "index": "*"},
            {"drop": "c"},
        ]:
            fails(263, lambda command=command: db.command(command))
        # Others go on in the same transaction.
        db.there.insert_one({"_id": 2})
        db.command("abortLoad")
        fails(16888, lambda: db.command("abortLoad"))
        db.command("commitTransaction")
        assert names(other.shop) == ["there"] and other.shop.there.count_documents({}) == 2
        fails(16892, lambda: db.command(load))


def what_is_given_up_leaves_nothing():
    with Fernd() as server, server.client() as other:
        for end in ["abortLoad", "commitLoad", "disconnect"]:
            with alone(server) as client:
                db = client.shop
                begin(db, indexes=[by("a")])
                db.c.insert_many(documents(2000))
                if end == "disconnect":
                    continue
                db.command(end)
                db.command("rollbackTransaction")
            wait_until(lambda: names(other.shop) == [], f"{end} leaves {names(other.shop)}")
        # The name is free.
        other.shop.c.insert_one({})
        assert other.shop.c.count_documents({}) == 1


def documents_in_any_order_and_by_primary_keys():
    with Fernd() as server, alone(server) as client, server.client() as other:
        db, chance = client.shop, random.Random(5)
        for ordered in [True, False]:
            all_ = documents(4000)
            if not ordered:
                chance.shuffle(all_)
            key = SON([("a", 1), ("_id", 1)])
            begin(db, ns="shop.byid", indexes=[by("s", "a")])
            db.byid.insert_many(all_)
            commit_load(db, 4000)
            begin_load(db, ns="bykey", indexes=[by("b", clustering=True)], options={"primaryKey": key, "compression": "quicklz"})
            db.bykey.insert_many(all_)
            commit_load(db, 4000)
            db.command("commitTransaction")
            assert [d["_id"] for d in other.shop.byid.find()] == list(range(4000))
            found = [(d["a"], d["_id"]) for d in other.shop.bykey.find().hint([("$natural", 1)])]
            assert found == sorted((d["a"], d["_id"]) for d in all_)
            for name in ["byid", "bykey"]:
                validate(other.shop[name])
                other.shop.drop_collection(name)


def two_documents_of_one_key_end_the_load():
    with Fernd() as server, alone(server) as client, server.client() as other:
        db = client.shop
        for index, twice in [([], {"_id": 5}), ([by("u", unique=True)], {"_id": 9000, "u": 17})]:
            begin(db, indexes=index)
            db.c.insert_many([{"_id": i, "u": i} for i in range(1000)])
            db.c.insert_one(twice)
            told = fails(11000, lambda: db.command("commitLoad"))
            assert "E11000" in str(told), told
            # It has failed: all that is left is to abort it.
            fails(96, lambda: db.command("commitLoad"))
            fails(16889, lambda: db.command("commitTransaction"))
            db.command("abortLoad")
            db.command("commitTransaction")
            assert names(other.shop) == []


def a_set_writes_what_is_loaded_through_its_log():
    with ReplicaSet(members=3) as members:
        primary = members.primary()
        with alone(primary) as client:
            db = client.shop
            told = begin(db, indexes=[by("a")])
            assert "through the log" in told["note"], told
            db.c.insert_many(documents(500))
            assert list(db.c.find()) == []
            commit_load(db, 500)
            db.command("commitTransaction")
        for member in members.secondaries():
            with member.client(readPreference="secondaryPreferred") as own:
                count = lambda own=own: own.shop.c.count_documents({})
                wait_until(lambda count=count: count() == 500, "a member lacks what was loaded")
                validate(own.shop.c)


def kills_leave_each_load_whole_or_not_at_all():
    with Fernd("--checkpointPeriod", "1", "--cacheSize", "64M") as server:
        chance, acknowledged, last = random.Random(8), set(), [0]
        with server.client() as client:
            client.admin.command("setParameter", 1, loaderMaxMemory=32 * MIB)

        def work():
            with contextlib.suppress(PyMongoError), alone(server, serverSelectionTimeoutMS=2000) as client:
                db = client.shop
                while True:
                    number = last[0] = last[0] + 1
                    # More than fits in memory for sorting, now and then the documents too.
                    begin(db, ns=f"c{number}", indexes=[by("a"), by("b"), by("s", "a")])
                    starts = list(range(0, 20_000, 2000))
                    if number % 2:
                        chance.shuffle(starts)
                    for start in starts:
                        db[f"c{number}"].insert_many(documents(2000, start, 300))
                    db.command("commitLoad")
                    db.command(SON([("commitTransaction", 1), ("writeConcern", {"w": 1, "j": True})]))
                    acknowledged.add(f"c{number}")
                    if number > 3:
                        # So that the disk does not fill up; it need not be there after a kill.
                        acknowledged.discard(f"c{number - 3}")
                        db.drop_collection(f"c{number - 3}")

        for turn in range(KILLS):
            worker = threading.Thread(target=work)
            worker.start()
            time.sleep(0.3 + chance.random() * 1.5)
            server.kill()
            worker.join()
            server.start()
            with server.client() as client:
                there = set(names(client.shop))
                assert acknowledged <= there, (turn, acknowledged - there)
                for name in there:
                    coll = client.shop[name]
                    assert coll.count_documents({}) == coll.estimated_document_count() == 20_000, (turn, name)
                    validate(coll)
        with server.client() as client:
            for name in names(client.shop):
                client.shop.drop_collection(name)
            client.admin.command("checkpoint")
            client.admin.command("checkpoint")
            live = lambda: client.admin.command("serverStatus")["mem"] and server.disk_bytes()
            wait_until(lambda: live() < 40 * MIB, "space of loads that were killed stays taken")


def kills_leave_index_builds_whole_or_not_at_all():
    with Fernd("--checkpointPeriod", "1", "--cacheSize", "64M") as server:
        chance = random.Random(9)
        with server.client(journal=True) as client:
            for start in range(0, 120_000, 4000):
                client.shop.c.insert_many(documents(4000, start))
        for turn in range(6):

            def work():
                with contextlib.suppress(PyMongoError), server.client(serverSelectionTimeoutMS=2000) as client:
                    while True:
                        client.shop.c.create_index("a", name=f"a{turn}")
                        client.shop.c.insert_one({"_id": 1_000_000 + turn, "a": -turn - 1})
                        client.shop.c.drop_index(f"a{turn}")

            worker = threading.Thread(target=work)
            worker.start()
            time.sleep(0.2 + chance.random())
            server.kill()
            worker.join()
            server.start()
            with server.client() as client:
                coll = client.shop.c
                for name in coll.index_information():
                    assert coll.count_documents({"a": {"$gte": 0}}, hint=name) == 120_000
                validate(coll)
                with contextlib.suppress(OperationFailure):
                    coll.drop_indexes()


def writers_beside_an_index_build_are_in_it():
    with Fernd() as server, server.client() as client:
        coll = client.shop.c
        for start in range(0, 200_000, 5000):
            coll.insert_many(documents(5000, start))
        ended, written = threading.Event(), []

        def write():
            with server.client() as own:
                for i in range(1 << 30):
                    if ended.is_set():
                        return
                    own.shop.c.insert_one({"_id": 1_000_000 + i, "a": -1 - i})
                    own.shop.c.update_one({"_id": i * 37 % 200_000}, {"$set": {"a": -1_000_000 - i}})
                    own.shop.c.delete_one({"_id": 100_000 + i})
                    written.append(i)

        writer = threading.Thread(target=write)
        writer.start()
        coll.create_index("a")
        coll.create_index([("a", 1), ("_id", 1)], unique=True)
        ended.set()
        writer.join()
        assert len(written) > 5, len(written)
        validate(coll)
        all_ = coll.count_documents({})
        assert coll.count_documents({"a": {"$gte": -10_000_000}}, hint="a_1") == all_
        failed = fails(11000, lambda: coll.create_index("s", unique=True))
        assert "E11000 duplicate key error collection: shop.c index: s_1 dup key" in str(failed), failed


def memory_is_bounded():
    with Fernd("--cacheSize", "128M") as server, alone(server) as client:
        client.admin.command("setParameter", 1, loaderMaxMemory=32 * MIB)
        before = server.resident()
        db, chance = client.shop, random.Random(4)
        begin(db, indexes=[by("a"), by("b"), by("s")])
        order = list(range(150))
        chance.shuffle(order)
        for block in order:
            db.c.insert_many(documents(2000, block * 2000, 200))
        commit_load(db, 300_000)
        db.command("commitTransaction")
        peak = server.peak_resident()
        # What the cache may hold, and what clients' requests take beside it.
        assert peak < 128 * MIB * 5 // 4 + 64 * MIB, (before, peak)
        assert db.c.count_documents({}) == 300_000
        validate(db.c)


def parameters_are_obeyed():
    with Fernd("--loaderMaxMemory", "48M") as server, server.client() as client:
        told = client.admin.command("getParameter", 1, loaderMaxMemory=1, loaderCompressTmp=1)
        assert (told["loaderMaxMemory"], told["loaderCompressTmp"]) == (48 * MIB, True), told
        assert client.admin.command("setParameter", 1, loaderMaxMemory=64 * MIB)["was"] == 48 * MIB
        assert client.admin.command("setParameter", 1, loaderCompressTmp=False)["was"] is True
        try:
            client.admin.command("setParameter", 1, loaderMaxMemory=MIB)
            raise AssertionError("less than TokuMX's least was taken")
        except OperationFailure as error:
            assert error.code == 2, error


def watched(server, work):
    """What `currentOp` says of the progress of an operation while it runs: its message, and how far it is."""
    ended, seen = threading.Event(), []

    def watch():
        with server.client() as own:
            while not ended.is_set():
                for operation in own.admin.command(SON([("currentOp", 1), ("progress", {"$exists": True})]))["inprog"]:
                    place = operation["progress"]
                    assert operation["msg"].endswith(f"{place['done']}/{place['total']} {place['done'] * 100 // place['total']}%"), operation
                    seen.append((operation["msg"].rsplit(" ", 2)[0], place["done"], place["total"]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    ended.set()
    watcher.join()
    for before, after in zip(seen, seen[1:]):
        assert before[1] <= before[2] and (before[0] != after[0] or before[1] <= after[1]), (before, after)
    return {message: [done for said, done, _ in seen if said == message] for message, _, _ in seen}


def current_op_tells_how_far_they_are():
    with Fernd() as server, server.client() as client, alone(server) as loader:
        for start in range(0, 300_000, 5000):
            client.shop.built.insert_many(documents(5000, start))
        seen = watched(server, lambda: client.shop.built.create_indexes([IndexModel("a"), IndexModel("b")]))
        scanned, inserted = seen["Index Build: scanning collection"], seen["Index Build: inserting keys from external sorter into index"]
        assert len(set(scanned)) > 3 and max(scanned) <= 300_000, seen
        assert len(set(inserted)) > 3, seen
        db = loader.shop
        begin(db, indexes=[by("a"), by("b")])
        for start in reversed(range(0, 300_000, 5000)):
            db.c.insert_many(documents(5000, start))
        seen = watched(server, lambda: commit_load(db, 300_000))
        assert len(set(seen["Bulk load: writing documents and index entries"])) > 3, seen
        db.command("commitTransaction")
        validate(client.shop.c)


def out_fills_its_collection():
    with Fernd() as server, server.client() as client:
        db = client.shop
        db.c.insert_many(documents(40_000))
        db.target.insert_one({"_id": "old", "a": 1})
        db.target.create_index("a")
        for name in ["target", "fresh"]:
            db.c.aggregate([{"$match": {"_id": {"$gte": 0}}}, {"$sort": {"a": 1}}, {"$out": name}])
            assert db[name].count_documents({}) == db[name].estimated_document_count() == 40_000
            validate(db[name])
        assert db.target.count_documents({"a": 7919}, hint="a_1") == sum(d["a"] == 7919 for d in documents(40_000))
        twice = [{"$project": {"_id": {"$mod": ["$_id", 100]}}}, {"$out": "target"}]
        fails(11000, lambda: db.c.aggregate(twice))
        assert db.target.count_documents({}) == 40_000
        assert names(db) == ["c", "fresh", "target"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("tests", nargs="*")
    given = parser.parse_args()
    KILLS, sys.argv[1:] = given.kills, given.tests
    run_tests(
        "loader",
        [
            a_load_is_the_transactions_until_it_commits,
            each_refusal_has_tokumx_number,
            what_is_given_up_leaves_nothing,
            documents_in_any_order_and_by_primary_keys,
            two_documents_of_one_key_end_the_load,
            a_set_writes_what_is_loaded_through_its_log,
            kills_leave_each_load_whole_or_not_at_all,
            kills_leave_index_builds_whole_or_not_at_all,
            writers_beside_an_index_build_are_in_it,
            memory_is_bounded,
            parameters_are_obeyed,
            current_op_tells_how_far_they_are,
            out_fills_its_collection,
        ],
    )
