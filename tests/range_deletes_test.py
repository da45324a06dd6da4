"""Deletes of ranges of the primary key, told in one step: counts, indexes, snapshots, kills and space, through PyMongo."""

import contextlib
import os
import random
import threading
import time

from bson import SON, MaxKey
from fernd import Fernd, fails, kills, run_tests, validate, wait_until
from pymongo.errors import DuplicateKeyError, PyMongoError

KEY = SON([("day", 1), ("_id", 1)])
SET = ["--replSet", "rs0", "--replSetAutoInitiate"]


def document(i):
    return {"_id": i, "day": i // 1000, "n": i * 7919 % 100003, "tags": [i % 5, i % 3], "s": "w%d" % (i % 13), "text": "some words %d" % i}


def filled(client, count=6000, name="c", indexes=True, **options):
    db = client.shop
    db.drop_collection(name)
    db.create_collection(name, **options)
    coll = db[name]
    if indexes:
        coll.create_index("n")
        coll.create_index([("tags", 1), ("n", -1)])
        coll.create_index([("s", 1), ("_id", -1)], unique=True)
    for first in range(0, count, 10000):
        coll.insert_many([document(i) for i in range(first, min(count, first + 10000))])
    return coll


def stage(coll, filter_):
    explained = coll.database.command("explain", {"delete": coll.name, "deletes": [{"q": filter_, "limit": 0}]}, verbosity="queryPlanner")
    return explained["queryPlanner"]["winningPlan"]["stage"]


def agrees(coll, ids):
    """The documents and each index hold exactly these."""
    expected = sorted(ids)
    assert coll.estimated_document_count() == coll.count_documents({}) == len(expected), (len(expected), coll.count_documents({}))
    assert [d["_id"] for d in coll.find({}, {"_id": 1}).sort("_id", 1)] == expected
    assert [d["_id"] for d in coll.find({}, {"_id": 1}).sort("_id", -1)] == expected[::-1]
    for hint, filter_ in (("n_1", {"n": {"$gte": 0}}), ("tags_1_n_-1", {"tags": {"$gte": 0}}), ("s_1__id_-1", {"s": {"$gte": ""}})):
        if hint in coll.index_information():
            assert sorted(d["_id"] for d in coll.find(filter_, {"_id": 1}).hint(hint)) == expected, hint
    report = validate(coll)
    assert report["nrecords"] == len(expected), report
    stats = coll.database.command("collStats", coll.name)
    assert stats["count"] == len(expected) and (stats["size"] > 0) == bool(expected), stats


def ranges_go_with_their_index_entries():
    with Fernd() as server, server.client() as client:
        coll = filled(client)
        ids = set(range(6000))
        for filter_, gone in (
            ({"_id": {"$gte": 1000, "$lt": 3000}}, range(1000, 3000)),
            ({"_id": {"$gt": 4500}}, range(4501, 6000)),
            ({"_id": {"$lte": 999}}, range(1000)),
        ):
            assert stage(coll, filter_) == "DELETE_RANGE", filter_
            assert coll.delete_many(filter_).deleted_count == len(gone)
            ids -= set(gone)
            agrees(coll, ids)
        # What is gone can come again, with the same unique keys, and nothing else can.
        coll.insert_many([document(i) for i in range(1500, 2500)])
        ids |= set(range(1500, 2500))
        for i in (1600, 3500):
            try:
                coll.insert_one(document(i))
                raise AssertionError(i)
            except DuplicateKeyError:
                pass
        agrees(coll, ids)
        coll.update_many({"_id": {"$lt": 1700}}, {"$set": {"n": 5}})
        assert coll.count_documents({"n": 5}) >= 200
        # Too few, or not only a range.
        for filter_ in ({"_id": {"$lt": 1600}}, {"_id": {"$gte": 0}, "n": 5}, {"n": {"$gte": 0}}, {"_id": {"$in": list(range(3000))}}):
            assert stage(coll, filter_) == "DELETE", filter_
        assert coll.delete_many({"_id": {"$lt": 1600}}).deleted_count == 100
        agrees(coll, ids - set(range(1600)))
        assert coll.delete_one({}).deleted_count == 1
        left = coll.count_documents({})
        assert coll.delete_many({}).deleted_count == left
        agrees(coll, [])
        coll.insert_many([document(i) for i in range(2000)])
        agrees(coll, range(2000))
        # By the old command, too; and a batch of several.
        assert client.shop.command("delete", "c", deletes=[{"q": {"_id": {"$lt": 1000}}, "limit": 0}, {"q": {"_id": 1500}, "limit": 1}])["n"] == 1001
        assert stage(filled(client, 5000, indexes=False), {"_id": {"$gte": 100, "$lt": 1200}}) == "DELETE_RANGE"


def other_primary_keys_and_partitions():
    with Fernd() as server, server.client() as client:
        coll = filled(client, primaryKey=KEY)
        for filter_, count in (({"day": 2}, 1000), ({"day": 4, "_id": {"$gte": 4000}}, 1000), ({"day": {"$lt": 1}}, 1000)):
            assert stage(coll, filter_) == "DELETE_RANGE", filter_
            assert coll.delete_many(filter_).deleted_count == count
        agrees(coll, [*range(1000, 2000), *range(3000, 4000), *range(5000, 6000)])
        db = client.shop
        db.drop_collection("p")
        db.command(SON([("create", "p"), ("partitioned", True), ("primaryKey", KEY)]))
        for end in (1, 3):
            db.command("addPartition", "p", newMax=SON([("day", end), ("_id", MaxKey())]))
        db.p.create_index("n")
        db.p.insert_many([document(i) for i in range(6000)])
        before = db.command("getPartitionInfo", "p")["partitions"]
        # Partition 0 as a whole, of the next one a half.
        assert db.p.delete_many({"day": {"$lte": 2}}).deleted_count == 3000
        agrees(db.p, range(3000, 6000))
        assert db.command("getPartitionInfo", "p")["partitions"] == before
        assert [part["count"] for part in db.command("collStats", "p")["partitions"]] == [0, 1000, 2000]
        assert db.p.delete_many({}).deleted_count == 3000
        db.p.insert_many([document(i) for i in range(6000)])
        agrees(db.p, range(6000))


def who_reads_an_older_state_sees_it():
    with Fernd() as server, server.client() as client:
        coll = filled(client)
        for filter_, gone in (({"_id": {"$gte": 2000, "$lt": 5000}}, range(2000, 5000)), ({}, range(6000))):
            cursors = [coll.find().batch_size(100), coll.find({"n": {"$gte": 0}}).hint("n_1").batch_size(100), coll.find().sort("_id", -1).batch_size(100)]
            found = [[next(cursor)["_id"] for _ in range(150)] for cursor in cursors]
            with client.start_session() as session, session.start_transaction():
                there = coll.count_documents({}, session=session)
                assert coll.delete_many(filter_).deleted_count == len(gone)
                assert coll.count_documents({}, session=session) == there
                assert coll.find_one({"_id": 100}, session=session)["_id"] == 100
                assert len(list(coll.find({"s": {"$gte": ""}}, session=session).hint("s_1__id_-1"))) == there
                fails(112, lambda session=session: coll.update_one({"_id": 3000}, {"$set": {"x": 1}}, session=session))
                session.abort_transaction()
            for cursor, ids in zip(cursors, found, strict=True):
                ids += [d["_id"] for d in cursor]
                assert len(set(ids)) == len(ids) == there, len(ids)
            coll.delete_many({})
            coll.insert_many([document(i) for i in range(6000)])
        coll.delete_many({"_id": {"$lt": 10}})
        coll.insert_many([document(i) for i in range(10)])
        # A transaction that is inside is waited for, and its document stays.
        with client.start_session() as session, session.start_transaction():
            coll.insert_one(document(100000), session=session)
            assert coll.delete_many({"_id": {"$lt": 7000}}).deleted_count == 6000
        agrees(coll, [100000])


def not_where_each_delete_is_told():
    with Fernd(*SET) as server, server.client() as client:
        coll = filled(client, 3000)
        with coll.watch() as stream:
            assert stage(coll, {}) == "DELETE"
            assert coll.delete_many({"_id": {"$lt": 1200}}).deleted_count == 1200
            assert [next(stream)["documentKey"]["_id"] for _ in range(1200)] == list(range(1200))
        agrees(coll, range(1200, 3000))
    with Fernd() as server, server.client() as client:
        coll = filled(client, 3000)
        db = client.shop
        db.create_collection("capped", capped=True, size=1 << 20)
        db.capped.insert_many([{"_id": i} for i in range(2000)])
        assert stage(db.capped, {}) == "DELETE" and stage(coll, {}) == "DELETE_RANGE"
        with client.start_session() as session, session.start_transaction():
            assert coll.delete_many({}, session=session).deleted_count == 3000
            assert coll.count_documents({}) == 3000
            session.abort_transaction()
        agrees(coll, range(3000))


def ranges_agree_with_a_set():
    with Fernd("--cleanerPeriod", "1") as server, server.client() as client:
        chance = random.Random(7)
        coll = filled(client, 8000)
        ids = set(range(8000))
        for turn in range(60):
            low = chance.randrange(8000)
            high = low + chance.randrange(6000)
            what = chance.randrange(4)
            if what < 2:
                inside = {i for i in ids if low <= i < high}
                assert coll.delete_many({"_id": {"$gte": low, "$lt": high}}).deleted_count == len(inside)
                ids -= inside
            elif what == 2:
                new = [i for i in range(low, min(high, low + 3000)) if i not in ids]
                if new:
                    coll.insert_many([document(i) for i in new])
                ids |= set(new)
            else:
                coll.update_many({"_id": {"$gte": low, "$lt": low + 500}}, {"$inc": {"n": 1}})
                time.sleep(0.3)
            if turn % 6 == 5:
                agrees(coll, ids)
        agrees(coll, ids)
        server.stop()
        server.start()
        with server.client() as again:
            agrees(again.shop.c, ids)


def kills_leave_ranges_whole():
    """kill -9 while ranges go: each is there as a whole, or gone with every entry, and what was acknowledged is gone."""
    with Fernd("--checkpointPeriod", "1", "--cleanerPeriod", "1") as server:
        chance = random.Random(5)
        with server.client(journal=True) as client:
            filled(client, 0)
        state = {"filled": 0, "gone": 0, "begun": 0}

        def work():
            with contextlib.suppress(PyMongoError), server.client(journal=True, serverSelectionTimeoutMS=2000) as client:
                coll = client.shop.c
                while True:
                    first = state["filled"]
                    coll.delete_many({"_id": {"$gte": first}})
                    coll.insert_many([document(i) for i in range(first, first + 1500)])
                    state["filled"] = first + 1500
                    if state["filled"] - state["gone"] > 5000:
                        state["begun"] = state["gone"] + 2200
                        coll.delete_many({"_id": {"$lt": state["begun"]}})
                        state["gone"] = state["begun"]

        for turn in range(kills(8)):
            worker = threading.Thread(target=work)
            worker.start()
            time.sleep(0.3 + chance.random() * 0.6)
            server.kill()
            worker.join()
            server.start()
            with server.client() as client:
                coll = client.shop.c
                ids = {d["_id"] for d in coll.find({}, {"_id": 1})}
                assert not any(i < state["gone"] for i in ids), (turn, state, min(ids))
                between = {i for i in ids if i < state["begun"]}
                assert len(between) in (0, state["begun"] - state["gone"]), (turn, state, len(between))
                assert ids >= set(range(state["begun"], state["filled"])), (turn, state)
                agrees(coll, ids)
        assert state["gone"] > 0, state


def the_space_comes_back():
    """Of everything within two checkpoints; of a range within two after what is idle has swept it."""
    for filter_, share in (({}, 0.25), ({"_id": {"$lt": 90000}}, 0.4)):
        with Fernd("--checkpointPeriod", "0", "--cleanerPeriod", "1", "--cacheSize", "256M") as server, server.client() as client:
            coll = filled(client, 100000)
            coll.update_many({}, {"$set": {"filler": os.urandom(150)}})
            for _ in range(2):
                client.admin.command("checkpoint")
            held = server.disk_bytes()
            begun = time.monotonic()
            assert coll.delete_many(filter_).deleted_count >= 90000
            took = time.monotonic() - begun

            def given_back(held=held, share=share):
                client.admin.command("checkpoint")
                return server.disk_bytes() < held * share

            wait_until(given_back, f"of {held} bytes {server.disk_bytes()} are held")
            print(f"  {held >> 20} MiB before, {server.disk_bytes() >> 20} MiB after, of {filter_}, which took {took * 1000:.0f} ms")
            validate(coll)


TESTS = [
    ranges_go_with_their_index_entries,
    other_primary_keys_and_partitions,
    who_reads_an_older_state_sees_it,
    not_where_each_delete_is_told,
    ranges_agree_with_a_set,
    kills_leave_ranges_whole,
    the_space_comes_back,
]

if __name__ == "__main__":
    run_tests("range deletes", TESTS)
