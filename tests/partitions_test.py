"""Partitioned collections: TokuMX's commands, what queries read, what comes and goes under load and kills, through PyMongo."""

import contextlib
import datetime
import os
import random
import shutil
import tempfile
import threading
import time

import bson
import pymongo
from bson import SON, Int64, MaxKey
from fernd import Fernd, ReplicaSet, fails, run_tests, validate, wait_until
from pymongo import InsertOne, UpdateMany, UpdateOne
from pymongo.errors import OperationFailure, PyMongoError

KEY = SON([("day", 1), ("_id", 1)])
SET = ["--replSet", "rs0", "--replSetAutoInitiate"]


def made(client, name="c", key=KEY, ends=(), **options):
    """A new partitioned collection with ends at these values of the key's first field."""
    db = client.shop
    db.drop_collection(name)
    db.command(SON([("create", name), ("partitioned", True), ("primaryKey", key)]), **options)
    field = next(iter(key))
    for end in ends:
        db.command("addPartition", name, newMax=SON([(field, end), ("_id", MaxKey())]))
    return db[name]


def documents(count=400):
    return [{"_id": i, "day": i % 40, "n": i * 7 % 101, "tags": [i % 5, i % 3], "s": "w%d" % (i % 13)} for i in range(count)]


def filled(client, name="c", **options):
    coll = made(client, name, ends=[9, 19, 29], **options)
    coll.insert_many(documents())
    return coll


def info(coll):
    return coll.database.command("getPartitionInfo", coll.name)


def ids(coll):
    return [partition["_id"] for partition in info(coll)["partitions"]]


def plan(cursor):
    """The stages of a plan from the top, the partitions that its lowest stage reads, and what it looked at."""
    explained = cursor.explain()
    stats, stage = explained["executionStats"], explained["queryPlanner"]["winningPlan"]
    names = []
    while stage:
        names.append(stage["stage"])
        last, stage = stage, stage.get("inputStage")
    return names, last.get("partitionsScanned"), stats["totalKeysExamined"], stats["totalDocsExamined"]


def the_commands_are_tokumxs():
    with Fernd() as server, server.client() as client:
        db = client.shop
        coll = made(client, key=SON([("a", 1), ("_id", 1)]))
        before = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - datetime.timedelta(seconds=60)
        told = info(coll)
        assert told["numPartitions"] == 1 and isinstance(told["numPartitions"], Int64), told
        [only] = told["partitions"]
        assert list(only) == ["_id", "max", "createTime"] and isinstance(only["_id"], Int64), only
        assert only["_id"] == 0 and only["max"] == SON([("a", MaxKey()), ("_id", MaxKey())]), only
        assert only["createTime"] > before, only
        fails(17248, lambda: db.command("addPartition", "c"))
        coll.insert_many([{"_id": 0, "a": 500}, {"_id": 1, "a": 1000}])
        db.command("addPartition", "c", newMax=SON([("a", 1000), ("_id", MaxKey())]))
        coll.insert_one({"_id": 2, "a": 1500})
        # Without a newMax the greatest key is the end.
        assert db.command("addPartition", "c")["ok"] == 1
        maxes = [partition["max"] for partition in info(coll)["partitions"]]
        assert maxes[:2] == [SON([("a", 1000), ("_id", MaxKey())]), SON([("a", 1500), ("_id", 2)])], maxes
        db.command("addPartition", "c", newMax={"a": 1600})
        maxes = [partition["max"] for partition in info(coll)["partitions"]]
        assert maxes[2] == SON([("a", 1600), ("_id", None)]) and list(maxes[2]) == ["a", "_id"], maxes
        for low in (1600, 1500, -1):
            fails(17249, lambda low=low: db.command("addPartition", "c", newMax={"a": low}))
        coll.insert_one({"_id": 3, "a": 1700})
        fails(17250, lambda: db.command("addPartition", "c", newMax={"a": 1650}))
        fails(2, lambda: db.command("addPartition", "c", newMax={"b": 5000}))
        fails(17205, lambda: db.command("addPartition", "c", newMax={"a": [5000]}))
        fails(2, lambda: db.command("addPartition", "c", newMax={"a": MaxKey(), "_id": MaxKey()}))
        fails(14, lambda: db.command("addPartition", "c", newMax=5))
        fails(40415, lambda: db.command("addPartition", "c", max={"a": 5000}))
        fails(26, lambda: db.command("addPartition", "none"))
        assert ids(coll) == [0, 1, 2, 3]
        for wrong in ({}, {"id": 0, "max": {"a": 1}}, {"id": 9}, {"id": -1}):
            assert fails_with(lambda wrong=wrong: db.command("dropPartition", "c", **wrong)) in (2, 51024), wrong
        db.command("dropPartition", "c", id=2)
        assert ids(coll) == [0, 1, 3] and coll.count_documents({}) == 4
        db.command("dropPartition", "c", max=SON([("a", 1000), ("_id", MaxKey())]))
        assert ids(coll) == [1, 3] and sorted(d["_id"] for d in coll.find()) == [2, 3]
        # Without the last one the one before it has no end.
        db.command("dropPartition", "c", id=3)
        [only] = info(coll)["partitions"]
        assert only["_id"] == 1 and only["max"]["a"] == MaxKey(), only
        fails(17252, lambda: db.command("dropPartition", "c", id=1))
        fails(17252, lambda: db.command("dropPartition", "c", max={"a": MaxKey(), "_id": MaxKey()}))
        validate(coll)
        db.plain.insert_one({})
        db.create_collection("view", viewOn="plain", pipeline=[])
        for command in ({"getPartitionInfo": 1}, {"addPartition": 1}, {"dropPartition": 1, "id": 0}):
            name, rest = next(iter(command)), {k: v for k, v in command.items() if k == "id"}
            fails(20, lambda name=name, rest=rest: db.command(name, "plain", **rest))
            fails(166, lambda name=name, rest=rest: db.command(name, "view", **rest))
            fails(26, lambda name=name, rest=rest: db.command(name, "none", **rest))


def fails_with(action):
    try:
        action()
    except OperationFailure as error:
        return error.code
    raise AssertionError("it was done")


def it_is_shown_by_the_catalogs_commands():
    with Fernd() as server, server.client() as client:
        coll, db = filled(client), client.shop
        coll.create_index("n")
        [shown] = db.list_collections()
        assert shown["options"] == {"primaryKey": KEY, "partitioned": True}, shown
        assert [index["name"] for index in coll.list_indexes()] == ["primaryKey", "_id_", "n_1"]
        stats = db.command("collStats", "c")
        assert (stats["count"], stats["nindexes"], len(stats["partitions"])) == (400, 3, 4), stats
        parts = stats["partitions"]
        assert [part["_id"] for part in parts] == [0, 1, 2, 3] and [part["count"] for part in parts] == [100] * 4, parts
        assert sum(part["size"] for part in parts) == stats["size"], stats
        assert [detail["name"] for detail in parts[0]["indexDetails"]] == ["primaryKey", "_id_", "n_1"], parts[0]
        assert sum(part["storageSize"] for part in parts) == stats["storageSize"] > 0, stats
        assert stats["indexDetails"][0]["inserts"] == 400, stats["indexDetails"]
        assert db.command("dbStats")["objects"] == 400
        assert [s["count"] for s in coll.aggregate([{"$collStats": {"count": {}}}])] == [400]
        report = validate(coll)
        assert report["keysPerIndex"] == {"primaryKey": 400, "_id_": 400, "n_1": 400} and report["nrecords"] == 400, report
        for options in ({"capped": True, "size": 4096}, {"viewOn": "c", "pipeline": []}, {"timeseries": {"timeField": "a"}},
                        {"clusteredIndex": {"key": {"_id": 1}, "unique": True}}):
            fails(72, lambda options=options: db.command("create", "x", partitioned=True, **options))
        fails(72, lambda: client.admin.command("create", "x", partitioned=True))
        fails(72, lambda: db.command("convertToCapped", "c", size=4096))
        db.command("create", "c", partitioned=True, primaryKey=KEY)
        fails(48, lambda: db.command("create", "c", primaryKey=KEY))
        # By `_id` alone.
        db.command("create", "by_id", partitioned=True)
        db.by_id.insert_many([{"_id": i} for i in range(10)])
        db.command("addPartition", "by_id")
        db.by_id.insert_many([{"_id": i} for i in range(10, 20)])
        assert info(db.by_id)["partitions"][0]["max"] == {"_id": 9}
        assert [d["_id"] for d in db.by_id.find()] == list(range(20))
        assert plan(db.by_id.find({"_id": 15})) == (["IDHACK"], [1], 1, 1)
        assert plan(db.by_id.find({"_id": {"$gte": 15}}))[1] == [1]
        fails(11000, lambda: db.by_id.insert_one({"_id": 5}))
        validate(db.by_id)
        # Changes of the collection meet every partition.
        db.command("reIndex", "c", options={"compression": "none"})
        stats = db.command("collStats", "c")
        assert {d["compression"] for p in stats["partitions"] for d in p["indexDetails"]} == {"uncompressed"}, stats
        db.command("addPartition", "c")
        coll.insert_one({"_id": 1000, "day": 1000})
        assert db.command("collStats", "c")["partitions"][4]["indexDetails"][2]["compression"] == "uncompressed"
        db.command("collMod", "c", validator={"day": {"$gte": 0}})
        fails(121, lambda: coll.insert_one({"day": -1}))
        db.command("compact", "c")
        db.command("cloneCollectionAsCapped", "c", toCollection="capped", size=1 << 20)
        assert db.capped.count_documents({}) == 401
        coll.rename("d")
        assert ids(db.d) == [0, 1, 2, 3, 4] and db.d.count_documents({"day": 5}) == 10
        validate(db.d)
        db.d.drop_index("n_1")
        validate(db.d)
        db.d.aggregate([{"$match": {"day": {"$lt": 20}}}, {"$out": "d"}])
        assert ids(db.d) == [0] and db.d.count_documents({}) == 200, "it is made anew, with its options"
        db.d.drop()
        assert sorted(db.list_collection_names()) == ["by_id", "capped"]


def queries_find_what_they_find_without_partitions():
    with Fernd() as server, server.client() as client:
        coll, plain = filled(client), client.shop.plain
        plain.insert_many(documents())
        for one in (coll, plain):
            one.create_index("n")
            one.create_index([("tags", 1), ("n", -1)])
            one.create_index([("s", "hashed")])
            one.create_index([("s", "text")])
            one.create_index("day", clustering=True, name="clustered") if one is coll else None
        chance = random.Random(7)
        fields = ["day", "n", "_id", "tags"]

        def condition():
            field, value = chance.choice(fields), chance.randrange(-2, 60)
            return {field: chance.choice([value, {"$gte": value}, {"$lt": value}, {"$in": [value, value + 3, 5]},
                                          {"$gt": value, "$lte": value + 9}])}

        for _ in range(300):
            filter = {"$or": [condition(), condition()]} if chance.random() < 0.2 else {**condition(), **condition()}
            sort = [(field, chance.choice([1, -1])) for field in chance.sample(fields[:3], chance.randrange(3))] + [("_id", 1)]
            sort = list(dict(reversed(sort)).items())
            limit, batch = chance.choice([0, 0, 7]), chance.choice([2, 50])
            found = list(coll.find(filter).sort(sort).limit(limit).batch_size(batch))
            assert found == list(plain.find(filter).sort(sort).limit(limit)), (filter, sort, limit)
            assert sorted(d["_id"] for d in coll.find(filter)) == sorted(d["_id"] for d in plain.find(filter)), filter
            assert coll.count_documents(filter) == plain.count_documents(filter), filter
        for index in ("n_1", "primaryKey", "tags_1_n_-1", "_id_", "clustered"):
            assert len(list(coll.find({"n": {"$gte": 0}}).hint(index))) == 400, index
        assert [d["n"] for d in coll.find().sort("n", -1)] == sorted((d["n"] for d in documents()), reverse=True)
        assert plan(coll.find().sort("n", 1).hint("n_1"))[0] == ["FETCH", "IXSCAN"], "entries are merged in order"
        assert [d["_id"] for d in coll.find().hint([("$natural", -1)])] == [d["_id"] for d in coll.find()][::-1]
        assert coll.distinct("day", {"n": 7}) == plain.distinct("day", {"n": 7})
        pipeline = [{"$group": {"_id": "$day", "sum": {"$sum": "$n"}}}, {"$sort": {"_id": 1}}]
        assert list(coll.aggregate(pipeline)) == list(plain.aggregate(pipeline))
        assert coll.count_documents({"$text": {"$search": "w5"}}) == plain.count_documents({"$text": {"$search": "w5"}}) > 0
        joined = list(plain.aggregate([{"$lookup": {"from": "c", "localField": "_id", "foreignField": "_id", "as": "x"}}]))
        assert all(len(d["x"]) == 1 for d in joined)
        assert len(list(coll.aggregate([{"$sample": {"size": 50}}]))) == 50
        digest = client.shop.command("dbHash")["collections"]
        assert digest["c"] == digest["plain"], digest
        covered = list(coll.find({"n": {"$gte": 50}}, {"_id": 0, "n": 1}).hint("n_1"))
        assert [d["n"] for d in covered] == sorted(d["n"] for d in documents() if d["n"] >= 50)


def explain_shows_which_partitions_are_read():
    with Fernd() as server, server.client() as client:
        coll = filled(client)
        coll.create_index("n")
        assert plan(coll.find()) == (["COLLSCAN"], [0, 1, 2, 3], 0, 400)
        assert plan(coll.find({"day": 5})) == (["IXSCAN"], [0], 10, 0)
        assert plan(coll.find({"day": 9})) == (["IXSCAN"], [0], 10, 0)
        assert plan(coll.find({"day": {"$gt": 9, "$lte": 19}})) == (["IXSCAN"], [1], 100, 0)
        assert plan(coll.find({"day": {"$gte": 15}}))[1] == [1, 2, 3]
        assert plan(coll.find({"day": {"$in": [3, 25]}}))[1] == [0, 2]
        assert plan(coll.find({"day": {"$gte": 15, "$lt": 25}}).sort([("day", -1), ("_id", -1)]))[:2] == (["IXSCAN"], [1, 2])
        # An index is read in the partitions that the key leaves.
        stages, read, keys, _ = plan(coll.find({"n": 7}).hint("n_1"))
        assert (stages, read, keys) == (["FETCH", "IXSCAN"], [0, 1, 2, 3], 4), (stages, read, keys)
        everywhere = coll.find({"n": {"$gte": 0}}).hint("n_1").explain()["executionStats"]["totalKeysExamined"]
        assert everywhere == 400
        stages, read, keys, _ = plan(coll.find({"n": {"$gte": 0}, "day": {"$lt": 5}}).hint("n_1"))
        assert (stages, read, keys) == (["FETCH", "IXSCAN"], [0], 100), (stages, read, keys)
        assert plan(coll.find({"n": {"$gte": 0}, "day": {"$in": [1, 39]}}).hint("n_1"))[1] == [0, 3]
        assert plan(coll.find({"_id": 7}))[0] == ["FETCH", "IXSCAN"], "others may have this _id elsewhere"
        assert plan(coll.find({"_id": 7, "day": 7})) == (["IXSCAN"], [0], 1, 0)
        explained = client.shop.command("explain", {"update": "c", "updates": [{"q": {"day": 35}, "u": {"$set": {"x": 1}}}]})
        scan = explained["queryPlanner"]["winningPlan"]["inputStage"]["inputStage"]
        assert scan["partitionsScanned"] == [3] and scan["numPartitions"] == 4, scan
        counted = client.shop.command("explain", {"count": "c", "query": {"day": {"$lt": 8}}})
        assert counted["queryPlanner"]["winningPlan"]["inputStage"]["partitionsScanned"] == [0], counted
        assert "numPartitions" not in str(client.shop.plain.find({"a": 1}).explain())


def writes_find_the_partition_of_their_documents():
    with Fernd() as server, server.client() as client:
        coll = filled(client)
        coll.create_index([("n", 1), ("day", 1)])
        assert coll.update_one({"_id": 5}, {"$set": {"day": 35}}).modified_count == 1
        assert coll.find_one({"day": 35, "_id": 5})["n"] == 35
        assert coll.update_many({"day": {"$lt": 10}}, {"$inc": {"day": 100}}).modified_count == 99
        assert coll.count_documents({"day": {"$gte": 100}}) == 99 and coll.count_documents({}) == 400
        parts = client.shop.command("collStats", "c")["partitions"]
        assert [part["count"] for part in parts] == [0, 100, 100, 200], parts
        validate(coll)
        assert coll.find_one_and_update({"_id": 5}, {"$set": {"day": 12}}, return_document=True)["day"] == 12
        assert coll.update_one({"_id": 1000}, {"$set": {"day": 21}}, upsert=True).upserted_id == 1000
        assert coll.replace_one({"_id": 1000}, {"day": 1}).modified_count == 1
        assert coll.delete_one({"_id": 1000}).deleted_count == 1
        result = coll.bulk_write([InsertOne({"_id": 2000, "day": 3}), UpdateOne({"_id": 2000}, {"$set": {"day": 33}}),
                                  UpdateMany({"day": 33}, {"$inc": {"day": -30}})])
        assert (result.inserted_count, result.modified_count) == (1, 12), result
        assert coll.delete_many({"day": 3}).deleted_count == 11
        validate(coll)
        # An `_id` is that of one document in each partition.
        coll.insert_one({"_id": 2001, "day": 1})
        fails(11000, lambda: coll.insert_one({"_id": 2001, "day": 2}))
        coll.insert_one({"_id": 2001, "day": 11})
        assert sorted(d["day"] for d in coll.find({"_id": 2001})) == [1, 11]
        assert coll.delete_many({"_id": 2001}).deleted_count == 2
        for keys, options in (([("n", 1)], {}), ([("n", 1), ("_id", 1)], {}), ([("n", 1), ("day", 1)], {"collation": {"locale": "en"}})):
            fails(17351, lambda keys=keys, options=options: coll.create_index(keys, unique=True, name="u", **options))
        coll.create_index([("s", 1), ("day", 1), ("_id", 1)], unique=True, name="u")
        made(client, "unique", ends=[9])
        unique = client.shop.unique
        unique.create_index([("name", 1), ("day", 1)], unique=True)
        unique.insert_many([{"name": "a", "day": 1}, {"name": "a", "day": 11}])
        for day in (1, 11):
            fails(11000, lambda day=day: unique.insert_one({"name": "a", "day": day}))
        fails(11000, lambda: unique.update_one({"day": 11}, {"$set": {"day": 1}}))
        fails(17351, lambda: client.shop.command("collMod", "unique", index={"name": "name_1_day_1", "prepareUnique": True}))
        validate(unique)


def transactions_write_to_several_partitions():
    with Fernd(*SET) as server, server.client() as client:
        coll, db = filled(client), client.shop
        before = list(coll.find())
        with client.start_session() as session:
            session.start_transaction()
            coll.update_many({}, {"$mul": {"day": -1}}, session=session)
            assert coll.count_documents({"day": {"$lte": 0}}, session=session) == 400
            assert list(coll.find()) == before
            session.abort_transaction()
            assert list(coll.find()) == before
            session.start_transaction()
            coll.update_one({"_id": 1}, {"$set": {"day": 38}}, session=session)
            coll.insert_one({"_id": 500, "day": 2}, session=session)
            # It would change what the transaction writes to: it waits, and gives up.
            fails(24, lambda: db.command("addPartition", "c"))
            session.commit_transaction()
            assert coll.find_one({"_id": 1})["day"] == 38 and coll.count_documents({}) == 401
            session.start_transaction()
            assert coll.count_documents({}, session=session) == 401
            db.command("dropPartition", "c", id=0)
            db.command("addPartition", "c")
            assert coll.count_documents({}) == 401 - 100
            # What it reads is as it was; what it would write to is not.
            assert coll.count_documents({}, session=session) == 401
            assert coll.count_documents({"n": {"$gte": 0}, "day": 4}, session=session) == 10
            error = fails(112, lambda: coll.update_one({"day": 5}, {"$set": {"x": 1}}, session=session))
            assert error.has_error_label("TransientTransactionError")
            session.abort_transaction()
            session.start_transaction()
            for command in ({"addPartition": "c"}, {"dropPartition": "c", "id": 1}):
                fails(263, lambda command=command: db.command(command, session=session))
                session.abort_transaction() if session.in_transaction else None
                session.start_transaction()
            session.abort_transaction()
        validate(coll)
    for isolation in ("mvcc", "serializable", "readUncommitted"):
        with Fernd() as server, server.client(maxPoolSize=1) as client:
            coll, db = filled(client), client.shop
            before = list(coll.find())
            db.command("beginTransaction", isolation=isolation)
            coll.update_many({"day": {"$gte": 0}}, {"$inc": {"day": 10}})
            assert coll.count_documents({"day": 45}) == 10
            db.command(SON([("create", "inside"), ("partitioned", True), ("primaryKey", KEY)]))
            db.inside.insert_one({"_id": 1, "day": 1})
            coll.create_index("n")
            fails(16786, lambda: db.command("dropPartition", "c", id=0))
            fails(16786, lambda: db.command("addPartition", "c"))
            db.command("rollbackTransaction")
            assert list(coll.find()) == before and db.list_collection_names() == ["c"]
            db.command("beginTransaction", isolation=isolation)
            coll.update_one({"_id": 3}, {"$set": {"day": 39}})
            coll.create_index("n")
            db.command(SON([("create", "inside"), ("partitioned", True), ("primaryKey", KEY)]))
            db.inside.insert_one({"_id": 1, "day": 1})
            db.command("commitTransaction")
            assert coll.find_one({"_id": 3})["day"] == 39 and info(db.inside)["numPartitions"] == 1
            assert plan(coll.find({"n": 7}))[0] == ["FETCH", "IXSCAN"]
            validate(coll)
            validate(db.inside)


def open_cursors_read_on_over_partitions_that_go():
    with Fernd(*SET) as server, server.client() as client:
        coll, db = filled(client), client.shop
        coll.create_index("n")
        whole, by_index = coll.find().batch_size(10), coll.find({"n": {"$gte": 0}}).hint("n_1").batch_size(10)
        found = [[next(cursor)["_id"] for _ in range(15)] for cursor in (whole, by_index)]
        with client.start_session(snapshot=True) as session:
            assert coll.count_documents({}, session=session) == 400
            db.command("dropPartition", "c", id=0)
            db.command("dropPartition", "c", id=2)
            db.command("addPartition", "c")
            coll.insert_many([{"_id": i, "day": 100 + i} for i in range(1000, 1100)])
            assert coll.count_documents({}) == 300 and len(list(coll.find())) == 300
            assert coll.count_documents({}, session=session) == 400
            assert coll.count_documents({"day": 5}, session=session) == 10
            assert len(list(coll.find({"n": {"$gte": 0}}, session=session).hint("n_1").batch_size(1000))) == 400
        for cursor, ids_ in zip((whole, by_index), found, strict=True):
            ids_ += [d["_id"] for d in cursor]
            assert sorted(ids_) == list(range(400)), len(ids_)
        validate(coll)


def readers_and_writers_go_on_while_partitions_come_and_go():
    with Fernd() as server, server.client() as client:
        coll, db = made(client), client.shop
        coll.create_index("n")
        ended, wrong, counts = threading.Event(), [], {"written": 0}

        def write():
            with server.client() as own:
                for i in range(1, 1 << 30):
                    if ended.is_set():
                        return
                    own.shop.c.insert_many([{"_id": i * 10 + k, "day": i, "n": i % 50} for k in range(10)])
                    counts["written"] = i

        def read():
            with server.client() as own:
                while not ended.is_set():
                    last = counts["written"]
                    try:
                        # What was acknowledged before the read began is found, unless its partition went: those are the oldest.
                        if last and own.shop.c.count_documents({"day": last}) != 10:
                            wrong.append(f"day {last} is not whole")
                        days = [d["day"] for d in own.shop.c.find({}, {"day": 1}).batch_size(500)]
                        if days != sorted(days) or (days and max(days) < last):
                            wrong.append(f"{len(days)} documents, {days[-1:]} after {last}")
                        if any(days.count(day) != 10 for day in set(days[:50])):
                            wrong.append("a batch is cut")
                        if own.shop.c.find_one({"_id": last * 10}) is None and last:
                            wrong.append(f"_id {last * 10} is lost")
                    except PyMongoError as error:
                        wrong.append(repr(error))

        threads = [threading.Thread(target=write)] + [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for turn in range(40):
            time.sleep(0.05)
            with contextlib.suppress(OperationFailure):
                db.command("addPartition", "c")
            while len(ids(coll)) > 6:
                db.command("dropPartition", "c", id=ids(coll)[0])
        ended.set()
        for thread in threads:
            thread.join()
        assert not wrong, wrong[:5]
        assert counts["written"] > 50 and ids(coll)[0] > 5, (counts, ids(coll))
        validate(coll)


def kills_leave_partitions_whole():
    """kill -9 while partitions come and go: each is there with all that was acknowledged in it, or not at all."""
    with Fernd("--checkpointPeriod", "1") as server:
        chance = random.Random(3)
        with server.client(journal=True) as client:
            coll = made(client, ends=[0])
            coll.create_index("n")
            coll.create_index([("n", 1), ("day", 1)], unique=True)
        acknowledged = {"day": 0, "dropped": 0}

        def work():
            with contextlib.suppress(PyMongoError), server.client(journal=True, serverSelectionTimeoutMS=2000) as client:
                coll, db = client.shop.c, client.shop
                while True:
                    day = acknowledged["day"] + 1
                    coll.insert_many([{"_id": day * 100 + i, "day": day, "n": i} for i in range(20)])
                    acknowledged["day"] = day
                    db.command("addPartition", "c", newMax=SON([("day", day), ("_id", MaxKey())]), writeConcern={"w": 1, "j": True})
                    while len(ids(coll)) > 5:
                        first = info(coll)["partitions"][0]
                        acknowledged["begun"] = first["max"]["day"]
                        db.command("dropPartition", "c", id=first["_id"], writeConcern={"w": 1, "j": True})
                        acknowledged["dropped"] = first["max"]["day"]

        for turn in range(20):
            worker = threading.Thread(target=work)
            worker.start()
            time.sleep(0.15 + chance.random() * 0.35)
            server.kill()
            worker.join()
            server.start()
            with server.client() as client:
                coll = client.shop.c
                found = [d["day"] for d in coll.find({}, {"day": 1})]
                days = set(found)
                assert all(found.count(day) == 20 for day in days - {acknowledged["day"] + 1}), (turn, acknowledged)
                assert not any(day <= acknowledged["dropped"] for day in days), (turn, acknowledged, min(days))
                first = max(acknowledged["dropped"], acknowledged.get("begun", 0)) + 1
                lost = [day for day in range(first, acknowledged["day"] + 1) if day not in days]
                assert not lost, (turn, acknowledged, lost)
                validate(coll)
                maxes = [p["max"]["day"] for p in info(coll)["partitions"][:-1]]
                assert maxes == sorted(maxes) and len(set(maxes)) == len(maxes), maxes
                # A batch that was not acknowledged may be there in part; it is written again.
                coll.delete_many({"day": acknowledged["day"] + 1})
        assert acknowledged["dropped"] > 20, acknowledged


def a_drop_gives_its_bytes_back_at_once():
    with Fernd("--checkpointPeriod", "0", "--cacheSize", "256M") as server, server.client() as client:
        coll, db = made(client, ends=[0]), client.shop
        for field in ("a", "b", "c"):
            coll.create_index(field)
        chance = random.Random(1)
        for first in range(0, 200_000, 10_000):
            coll.insert_many([{"_id": i, "day": 1, "a": chance.random(), "b": chance.random(), "c": chance.random(),
                               "filler": os.urandom(100)} for i in range(first, first + 10_000)])
        db.command("addPartition", "c")
        coll.insert_one({"_id": -1, "day": 2})
        for _ in range(2):
            client.admin.command("checkpoint")
        held = server.disk_bytes()
        assert held > 16 << 20, held
        begun = time.monotonic()
        db.command("dropPartition", "c", id=1)
        took = time.monotonic() - begun
        assert took < 2, f"a drop of dictionaries took {took:.1f} s"
        assert coll.count_documents({}) == 1
        # The first checkpoint after the segments were let go of, which a busy machine may do late.
        def is_free():
            client.admin.command("checkpoint")
            return server.disk_bytes() < held / 4

        wait_until(is_free, f"{held} bytes were held, and most still are")
        print(f"  {held >> 20} MiB before, {server.disk_bytes() >> 20} MiB after the drop, which took {took * 1000:.0f} ms")
        validate(coll)


def partitions_end_and_expire_by_themselves():
    with Fernd("--setParameter", "ttlMonitorSleepSecs=1") as server, server.client() as client:
        db = client.shop
        key = SON([("time", 1), ("_id", 1)])
        for options in ({"partitionEvery": {"seconds": 60}}, {"partitionEvery": {"seconds": 60}, "partitioned": True},
                        {"expireAfterSeconds": 5, "partitioned": True},
                        {"partitionEvery": {"days": 1}, "partitioned": True, "primaryKey": key}):
            assert fails_with(lambda options=options: db.command("create", "x", **options)) in (72, 40415), options
        db.command("create", "c", partitioned=True, primaryKey=key, partitionEvery={"seconds": 60}, expireAfterSeconds=3600)
        [shown] = db.list_collections()
        assert shown["options"] == {"primaryKey": key, "partitioned": True, "partitionEvery": {"seconds": 60},
                                    "expireAfterSeconds": 3600}, shown
        coll = db.c
        now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None, microsecond=0)
        for minutes in (120, 90, 10):
            coll.insert_one({"_id": minutes, "time": now - datetime.timedelta(minutes=minutes)})
            end = now - datetime.timedelta(minutes=minutes)
            end = end.replace(second=0) + datetime.timedelta(minutes=1)
            wait_until(lambda end=end: minutes > 60 and coll.count_documents({}) == 0
                       or any(p["max"]["time"] == end for p in info(coll)["partitions"]), f"no end at {end}")
        wait_until(lambda: [d["_id"] for d in coll.find()] == [10], "what is old is still there")
        partitions = info(coll)["partitions"]
        assert len(partitions) == 2 and partitions[0]["max"]["_id"] == bson.MinKey(), partitions
        coll.insert_one({"_id": 0, "time": now})
        wait_until(lambda: info(coll)["numPartitions"] == 3, "no end for this minute")
        time.sleep(2.5)
        assert info(coll)["numPartitions"] == 3, "an empty partition is not ended"
        db.command("collMod", "c", expireAfterSeconds=300)
        wait_until(lambda: [d["_id"] for d in coll.find()] == [0], "what is older than the new time is still there")
        db.command("create", "sized", partitioned=True, partitionEvery={"bytes": 100_000})
        for turn in range(3):
            db.sized.insert_many([{"_id": turn * 100 + i, "filler": "x" * 2000} for i in range(60)])
            wait_until(lambda turn=turn: info(db.sized)["numPartitions"] == turn + 2, f"turn {turn}: not ended by its size")
        assert [p["count"] for p in db.command("collStats", "sized")["partitions"]] == [60, 60, 60, 0]
        validate(coll)


def the_oplog_and_change_streams_tell_of_partitions():
    with Fernd(*SET) as server, server.client() as client:
        coll, db = filled(client), client.shop
        with coll.watch(full_document="updateLookup", show_expanded_events=True) as stream:
            coll.update_one({"_id": 1}, {"$set": {"day": 39}})
            db.command("addPartition", "c", newMax={"day": 50})
            coll.insert_one({"_id": 1000, "day": 60})
            db.command("dropPartition", "c", id=0)
            coll.delete_one({"_id": 1000})
            events = [stream.next() for _ in range(5)]
        assert [e["operationType"] for e in events] == ["update", "modify", "insert", "modify", "delete"], events
        assert events[0]["fullDocument"]["day"] == 39 and events[0]["documentKey"] == {"_id": 1}, events[0]
        assert events[1]["operationDescription"] == {"addPartition": {"newMax": SON([("day", 50), ("_id", None)])}}, events[1]
        assert events[3]["operationDescription"] == {"dropPartition": {"id": 0}}, events[3]
        told = [e["o"] for e in client.local["oplog.rs"].find({"op": "c", "ns": "shop.$cmd"})]
        told = [o for o in told if "addPartition" in o or "dropPartition" in o]
        assert told[-2:] == [{"addPartition": "c", "newMax": SON([("day", 50), ("_id", None)])}, {"dropPartition": "c", "id": 0}], told
        assert told[0] == {"addPartition": "c", "newMax": SON([("day", 9), ("_id", MaxKey())])}, told[0]
        # They are done again as commands.
        made(client, "again")
        again = [{"op": "c", "ns": "shop.$cmd", "o": {**o, next(iter(o)): "again"}} for o in told]
        assert client.admin.command("applyOps", again)["ok"] == 1
        assert [p["max"]["day"] for p in info(db.again)["partitions"][:-1]] == [19, 29, 50], info(db.again)


def a_set_of_several_has_them_on_every_member():
    with ReplicaSet() as several:
        with several.client() as client:
            coll = filled(client)
            coll.create_index("n")
            db = client.get_database("shop", write_concern=pymongo.WriteConcern("majority"))
            db.command("dropPartition", "c", id=1, writeConcern={"w": "majority"})
            db.command("addPartition", "c", writeConcern={"w": "majority"})
            db.c.insert_many([{"_id": i, "day": i, "n": i} for i in range(1000, 1050)])
            db.c.update_many({"day": {"$gte": 1040}}, {"$set": {"day": 1}})
        digests = set()
        for member in several.members:
            with member.client(readPreference="secondaryPreferred") as client:
                coll = client.shop.c
                assert ids(coll) == [0, 2, 3, 4], info(coll)
                assert coll.count_documents({}) == 350 == len(list(coll.find())), coll.estimated_document_count()
                assert coll.estimated_document_count() == 350
                assert coll.count_documents({"day": 1}) == 20 and coll.find_one({"_id": 1045})["day"] == 1
                assert plan(coll.find({"n": {"$gte": 0}, "day": 25}).hint("n_1"))[1] == [2]
                validate(coll)
                digests.add(client.shop.command("dbHash")["collections"]["c"])
        assert len(digests) == 1, digests
        # Who leads next goes on with them.
        first = several.primary()
        first.kill()
        several.wait_for_primary(but=first)
        with several.client() as client:
            client.shop.command("addPartition", "c", writeConcern={"w": "majority"})
            client.shop.c.insert_one({"_id": 5000, "day": 5000})
            client.shop.command("dropPartition", "c", id=0, writeConcern={"w": "majority"})
            assert ids(client.shop.c) == [2, 3, 4, 5]
            assert client.shop.c.count_documents({}) == 350 + 1 - 110
            validate(client.shop.c)


def backups_and_encrypted_directories_hold_them():
    root = tempfile.mkdtemp(prefix="fernd-partitions-")
    try:
        key = os.path.join(root, "key")
        with open(key, "w") as f:
            f.write("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
        os.chmod(key, 0o600)
        target = os.path.join(root, "backup")
        os.mkdir(target)
        encrypted = ["--enableEncryption", "--encryptionKeyFile", key]
        with Fernd("--backupRoot", root, *encrypted) as server, server.client() as client:
            coll = filled(client)
            client.shop.command("dropPartition", "c", id=2)
            client.admin.command("backupStart", target)
        with Fernd(*encrypted, dbpath=target) as server, server.client() as client:
            coll = client.shop.c
            assert ids(coll) == [0, 1, 3] and coll.count_documents({}) == 300
            client.shop.command("addPartition", "c")
            assert ids(coll) == [0, 1, 3, 4]
            validate(coll)
    finally:
        shutil.rmtree(root)


TESTS = [
    the_commands_are_tokumxs,
    it_is_shown_by_the_catalogs_commands,
    queries_find_what_they_find_without_partitions,
    explain_shows_which_partitions_are_read,
    writes_find_the_partition_of_their_documents,
    transactions_write_to_several_partitions,
    open_cursors_read_on_over_partitions_that_go,
    readers_and_writers_go_on_while_partitions_come_and_go,
    kills_leave_partitions_whole,
    a_drop_gives_its_bytes_back_at_once,
    partitions_end_and_expire_by_themselves,
    the_oplog_and_change_streams_tell_of_partitions,
    a_set_of_several_has_them_on_every_member,
    backups_and_encrypted_directories_hold_them,
]


if __name__ == "__main__":
    run_tests("partitions", TESTS)
