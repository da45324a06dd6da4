"""Collections that are clustered by other fields before `_id`: the shapes of commands, through PyMongo."""

import threading

import bson
import pymongo
from bson import SON
from fernd import Fernd, ReplicaSet, fails, run_tests, validate
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne

KEY = SON([("site", 1), ("at.day", -1), ("_id", 1)])
SET = ["--replSet", "rs0", "--replSetAutoInitiate"]


def made(client, name="c", key=KEY, **options):
    """A new collection with a primary key."""
    db = client.shop
    db.drop_collection(name)
    db.command(SON([("create", name), ("primaryKey", key)]), **options)
    return db[name]


def filled(client, count=60, **options):
    coll = made(client, **options)
    coll.insert_many([{"_id": i, "site": i % 6, "at": {"day": i % 4}, "n": i} for i in range(count)])
    return coll


def place(document):
    """Where a document of `filled` stands."""
    return document["site"], -document["at"]["day"], document["_id"]


def plan(cursor):
    """The stages of a plan from the top, what it looked at, and its index."""
    explained = cursor.explain()
    stats, stage = explained["executionStats"], explained["queryPlanner"]["winningPlan"]
    names = []
    while stage:
        names.append(stage["stage"])
        last, stage = stage, stage.get("inputStage")
    return names, stats["totalKeysExamined"], stats["totalDocsExamined"], last.get("indexName")


def it_is_shown_by_the_catalogs_commands():
    with Fernd() as server, server.client() as client:
        coll = filled(client)
        db = client.shop
        [shown] = db.list_collections()
        assert shown["options"] == {"primaryKey": KEY}, shown
        assert shown["idIndex"] == {"v": 2, "key": {"_id": 1}, "name": "_id_"}, shown
        primary, on_id = coll.list_indexes()
        assert primary == {"v": 2, "key": KEY, "name": "primaryKey", "unique": True, "clustering": True}, primary
        assert list(primary["key"].items()) == list(KEY.items())
        assert on_id == {"v": 2, "key": {"_id": 1}, "name": "_id_"}, on_id
        coll.create_index("n")
        stats = db.command("collStats", "c")
        assert (stats["nindexes"], list(stats["indexSizes"])) == (3, ["primaryKey", "_id_", "n_1"]), stats
        assert db.command("dbStats")["indexes"] == 3
        used = [index["name"] for index in coll.aggregate([{"$indexStats": {}}])]
        assert used == ["primaryKey", "_id_", "n_1"], used
        keys = validate(coll)["keysPerIndex"]
        assert keys == {"primaryKey": 60, "_id_": 60, "n_1": 60}, keys
        # What a dump says is what a restore asks for.
        again = db.command("createIndexes", "c", indexes=list(coll.list_indexes()))
        assert again["numIndexesBefore"] == again["numIndexesAfter"] == 3, again
        # Asking twice is no error, asking for another one is.
        db.command(SON([("create", "c"), ("primaryKey", KEY)]))
        fails(48, lambda: db.command("create", "c", primaryKey=SON([("site", 1), ("_id", 1)])))
        fails(48, lambda: db.command("create", "c"))
        # `{_id: 1}` is how collections are without it.
        plain = made(client, "plain", {"_id": 1})
        plain.insert_one({"_id": 1})
        assert [index["name"] for index in plain.list_indexes()] == ["_id_"]


def what_cannot_be_a_primary_key_is_refused():
    with Fernd() as server, server.client() as client:
        db = client.shop

        def create(code, key, **options):
            fails(code, lambda: db.command(SON([("create", "x"), ("primaryKey", key)]), **options))

        for key in ({"a": 1}, SON([("_id", 1), ("a", 1)]), SON([("a", 1), ("_id", -1)]), {"_id": "hashed"}):
            create(17203, key)
        for kind in ("hashed", "2d", "2dsphere", "text", 0, True):
            create(67, SON([("a", kind), ("_id", 1)]))
        create(14, 5)
        for options in ({"capped": True, "size": 4096}, {"viewOn": "c", "pipeline": []}, {"timeseries": {"timeField": "a"}},
                        {"clusteredIndex": {"key": {"_id": 1}, "unique": True}}):
            create(72, SON([("a", 1), ("_id", 1)]), **options)
        for name in ("admin", "config", "local"):
            fails(72, lambda name=name: client[name].command(SON([("create", "x"), ("primaryKey", KEY)])))
        assert db.list_collection_names() == []
        coll = made(client, key=SON([("a.b", 1), ("_id", 1)]))
        for code, value in ((17205, [1]), (17205, []), (17208, bson.Regex("x"))):
            fails(code, lambda value=value: coll.insert_one({"a": {"b": value}}))
        fails(17205, lambda: coll.insert_one({"a": [{"b": 1}]}))
        coll.insert_one({"_id": 1, "a": {"b": 1}})
        fails(17205, lambda: coll.update_one({"_id": 1}, {"$push": {"a.c": 1}, "$set": {"a.b": [1]}}))
        fails(17205, lambda: coll.update_many({}, {"$set": {"a": []}}))
        assert list(coll.find()) == [{"_id": 1, "a": {"b": 1}}]
        fails(72, lambda: db.command("convertToCapped", "c", size=4096))
        fails(72, lambda: coll.drop_index("primaryKey"))
        fails(72, lambda: coll.drop_index("_id_"))
        fails(72, lambda: db.command("dropIndexes", "c", index=SON([("a.b", 1), ("_id", 1)])))
        for change in ({"expireAfterSeconds": 5}, {"hidden": True}):
            fails(72, lambda change=change: db.command("collMod", "c", index={"name": "primaryKey", **change}))
        fails(2, lambda: list(coll.find(cursor_type=pymongo.CursorType.TAILABLE)))


def documents_stand_in_its_order():
    with Fernd() as server, server.client() as client:
        coll = filled(client)
        documents = sorted(coll.find(), key=place)
        assert list(coll.find()) == documents
        assert list(coll.find().hint([("$natural", 1)])) == documents
        assert list(coll.find().hint([("$natural", -1)])) == documents[::-1]
        assert list(coll.find().batch_size(7)) == documents
        assert list(coll.find().sort([("site", 1), ("at.day", -1), ("_id", 1)])) == documents
        assert list(coll.find().sort([("site", -1), ("at.day", 1)])) == sorted(
            documents, key=lambda d: (-d["site"], d["at"]["day"], -d["_id"]))
        assert list(coll.find({}, {"_id": 1}).hint("_id_")) == [{"_id": i} for i in range(60)]
        assert coll.find_one({"_id": 7})["n"] == 7 and coll.find_one({"_id": 700}) is None
        found = coll.find({}, {"_id": 1}, hint="primaryKey", min=SON([("site", 2), ("at.day", 9), ("_id", 0)]),
                          max=SON([("site", 3), ("at.day", 9), ("_id", 0)]))
        assert [d["_id"] for d in found] == [d["_id"] for d in documents if d["site"] == 2]
        assert coll.distinct("site", {"site": {"$lt": 3}}) == [0, 1, 2]
        assert coll.count_documents({"site": {"$gte": 4}}) == 20


def plans_read_it_as_a_clustering_index():
    with Fernd() as server, server.client() as client:
        coll = filled(client)
        coll.create_index("n")
        assert plan(coll.find({"site": 3})) == (["IXSCAN"], 10, 0, "primaryKey")
        assert plan(coll.find({"site": 3, "n": {"$lt": 30}}).sort("at.day", -1)) == (["IXSCAN"], 10, 0, "primaryKey")
        assert plan(coll.find({"site": {"$gte": 4}}).sort("site", -1)) == (["IXSCAN"], 20, 0, "primaryKey")
        assert plan(coll.find({"_id": 3})) == (["IDHACK"], 1, 1, None)
        assert plan(coll.find({"_id": {"$gte": 58}})) == (["FETCH", "IXSCAN"], 2, 2, "_id_")
        assert plan(coll.find({"n": 5}, {"n": 1})) == (["PROJECTION_COVERED", "IXSCAN"], 1, 0, "n_1")
        assert plan(coll.find()) == (["COLLSCAN"], 0, 60, None)
        counted = client.shop.command("explain", {"count": "c", "query": {"site": 3}})
        assert counted["queryPlanner"]["winningPlan"]["inputStage"]["stage"] == "COUNT_SCAN", counted
        client.shop.orders.insert_many([{"_id": i, "site": i % 6, "of": i} for i in range(5)])
        for local, foreign, found in (("of", "_id", 1), ("site", "site", 10)):
            joined = client.shop.orders.aggregate([
                {"$lookup": {"from": "c", "localField": local, "foreignField": foreign, "as": "found"}}])
            assert all(len(d["found"]) == found for d in joined), foreign


def writes_keep_one_document_of_each_id():
    with Fernd() as server, server.client() as client:
        coll = filled(client)
        coll.create_index("n", unique=True)
        error = fails(11000, lambda: coll.insert_one({"_id": 5, "site": 99}))
        assert error.details["keyPattern"] == {"_id": 1} and error.details["keyValue"] == {"_id": 5}, error.details
        assert "index: _id_ dup key: { _id: 5 }" in error.details["errmsg"], error.details
        # A change of the key moves the document.
        done = coll.update_one({"_id": 5}, {"$set": {"site": -1}})
        assert (done.matched_count, done.modified_count) == (1, 1)
        assert coll.find_one() == {"_id": 5, "site": -1, "at": {"day": 1}, "n": 5}
        done = coll.update_many({"site": {"$gte": 0}}, {"$inc": {"site": 10}})
        assert (done.matched_count, done.modified_count) == (59, 59)
        moved = coll.find_one_and_update({"n": 8}, {"$unset": {"site": 1}}, return_document=True)
        assert moved == {"_id": 8, "at": {"day": 0}, "n": 8} == coll.find_one()
        assert coll.find_one({"site": None})["_id"] == 8
        fails(11000, lambda: coll.update_one({"_id": 8}, {"$set": {"site": 4, "n": 9}}))
        assert coll.find_one()["_id"] == 8
        assert coll.update_one({"_id": 100, "site": 2}, {"$set": {"n": 100}}, upsert=True).upserted_id == 100
        assert coll.replace_one({"_id": 100}, {"site": 3, "n": -1}).modified_count == 1
        fails(66, lambda: coll.update_one({"_id": 100}, {"$set": {"_id": 101}}))
        assert coll.delete_one({"_id": 100}).deleted_count == 1
        result = coll.bulk_write([
            InsertOne({"_id": 200, "site": 7, "n": 200}),
            UpdateOne({"_id": 200}, {"$set": {"site": 8}}),
            UpdateMany({"site": 8}, {"$inc": {"site": 1}}),
            ReplaceOne({"site": 9}, {"site": 1, "n": 201}),
            DeleteOne({"site": 1}),
        ])
        assert (result.inserted_count, result.modified_count, result.deleted_count) == (1, 3, 1), result
        assert coll.find_one_and_delete({}, sort=[("site", -1)])["site"] == 15
        assert coll.delete_many({"site": {"$gte": 12}}).deleted_count == 37
        validate(coll)
        coll.aggregate([{"$set": {"site": {"$add": ["$site", 1]}}}, {"$merge": {"into": "c", "whenMatched": "replace"}}])
        validate(coll)
        coll.aggregate([{"$match": {"site": {"$gt": 0}}}, {"$out": "c"}])
        assert client.shop.command("listCollections")["cursor"]["firstBatch"][0]["options"] == {"primaryKey": KEY}
        validate(coll)


def transactions_move_documents_whole_or_not_at_all():
    with Fernd(*SET) as server, server.client() as client:
        coll = filled(client)
        before = list(coll.find())
        with client.start_session() as session:
            session.start_transaction()
            coll.update_many({}, {"$mul": {"site": -1}}, session=session)
            assert [d["site"] for d in coll.find(session=session)] == sorted(-d["site"] for d in before)
            assert list(coll.find()) == before
            fails(112, lambda: coll.with_options(write_concern=pymongo.WriteConcern(w=1)).update_one(
                {"_id": 1}, {"$set": {"n": 0}}, session=other(client)))
            session.abort_transaction()
            assert list(coll.find()) == before
            session.start_transaction()
            coll.update_one({"_id": 1}, {"$set": {"site": 50}}, session=session)
            coll.delete_one({"_id": 2}, session=session)
            coll.insert_one({"_id": 2, "site": 51}, session=session)
            session.commit_transaction()
        assert [d["_id"] for d in coll.find({"site": {"$gte": 50}})] == [1, 2]
        validate(coll)


def other(client):
    """A session in a transaction of its own."""
    session = client.start_session()
    session.start_transaction()
    return session


def change_streams_and_the_oplog_name_documents_by_their_id():
    with Fernd(*SET) as server, server.client() as client:
        coll = filled(client, 3)
        with coll.watch(full_document="updateLookup") as stream:
            coll.update_one({"_id": 1}, {"$set": {"site": 9}})
            coll.replace_one({"_id": 1}, {"site": -5})
            coll.delete_one({"_id": 1})
            events = [stream.next() for _ in range(3)]
        assert [event["operationType"] for event in events] == ["update", "replace", "delete"], events
        assert all(event["documentKey"] == {"_id": 1} for event in events), events
        assert events[0]["updateDescription"]["updatedFields"] == {"site": 9}, events[0]
        assert events[1]["fullDocument"] == {"_id": 1, "site": -5}, events[1]
        told = list(client.local["oplog.rs"].find({"ns": "shop.c", "op": {"$in": ["u", "d"]}}))
        assert [entry["op"] for entry in told] == ["u", "u", "d"], told
        assert [entry.get("o2", entry["o"])["_id"] for entry in told] == [1, 1, 1], told


def a_set_of_several_keeps_it_on_every_member():
    with ReplicaSet() as several:
        with several.client() as client:
            coll = filled(client)
            coll.create_index("n")
            coll.with_options(write_concern=pymongo.WriteConcern("majority")).update_many({}, {"$inc": {"site": 1}})
        digests = set()
        for member in several.members:
            with member.client(readPreference="secondaryPreferred") as client:
                coll = client.shop.c
                assert [index["name"] for index in coll.list_indexes()] == ["primaryKey", "_id_", "n_1"]
                documents = list(coll.find())
                assert documents == sorted(documents, key=place) and len(documents) == 60
                assert coll.find_one({"_id": 7})["site"] == 2
                validate(coll)
                digests.add(client.shop.command("dbHash")["collections"]["c"])
        assert len(digests) == 1, digests


def transactions_of_connections_see_and_undo_moves():
    for isolation in ("mvcc", "serializable", "readUncommitted"):
        with Fernd() as server, server.client(maxPoolSize=1) as client:
            coll, db = filled(client), client.shop
            before = list(coll.find())
            db.command("beginTransaction", isolation=isolation)
            assert coll.update_many({"site": {"$gte": 0}}, {"$inc": {"site": 1}}).modified_count == 60
            assert coll.update_one({"_id": 3}, {"$set": {"site": 77}}).modified_count == 1
            assert coll.find_one({"site": 77})["_id"] == 3 and coll.find_one({"_id": 3})["site"] == 77
            locked = {lock["index"] for lock in db.command("showLiveTransactions")["transactions"][0]["rowLocks"]}
            assert locked <= {"shop.c.$primaryKey", "shop.c.$_id_", "$catalog"}, locked
            coll.create_index([("n", 1), ("site", 1)])
            db.command(SON([("create", "inside"), ("primaryKey", KEY)]))
            db.inside.insert_one({"_id": 1, "site": 4})
            db.command("rollbackTransaction")
            assert list(coll.find()) == before and db.list_collection_names() == ["c"]
            db.command("beginTransaction", isolation=isolation)
            coll.update_one({"_id": 3}, {"$set": {"site": 77}})
            db.command(SON([("create", "inside"), ("primaryKey", KEY)]))
            db.inside.insert_one({"_id": 1, "site": 4})
            db.inside.update_one({"_id": 1}, {"$inc": {"site": 1}})
            db.command("commitTransaction")
            assert db.inside.find_one({"site": 5}) == {"_id": 1, "site": 5} == db.inside.find_one({"_id": 1})
            validate(coll)
            validate(db.inside)


def the_digest_does_not_depend_on_it():
    with Fernd() as server, server.client() as client:
        coll = filled(client)
        client.other.c.insert_many(coll.find())
        assert (client.shop.command("dbHash")["collections"]["c"] == client.other.command("dbHash")["collections"]["c"])


def collations_order_it():
    with Fernd() as server, server.client() as client:
        coll = made(client, key=SON([("name", 1), ("_id", 1)]), collation={"locale": "en", "strength": 2})
        coll.insert_many([{"_id": name.upper(), "name": name} for name in ("b", "A", "c", "B", "a")[:3]])
        coll.insert_many([{"_id": 1, "name": "B"}, {"_id": 2, "name": "a"}])
        assert [d["name"] for d in coll.find()] == ["a", "A", "B", "b", "c"]
        assert plan(coll.find({"name": "A"})) == (["IXSCAN"], 2, 0, "primaryKey")
        # Bytes are another order.
        assert plan(coll.find({"name": "A"}).collation({"locale": "simple"}))[0] == ["COLLSCAN"]
        fails(11000, lambda: coll.insert_one({"_id": "a", "name": "z"}))
        assert coll.find_one({"_id": "b"})["name"] == "b"
        validate(coll)


def it_outlives_a_restart_and_every_change_of_the_collection():
    with Fernd() as server:
        with server.client() as client:
            coll = filled(client)
            coll.create_index("n", background=True)
            coll.create_index([("n", 1), ("site", 1)], unique=True)
            db = client.shop
            db.command("reIndex", "c", options={"compression": "none"})
            db.command("reIndex", "c", index="_id_", options={"compression": "zlib"})
            db.command("collMod", "c", validator={"n": {"$gte": 0}})
            db.command("collMod", "c", compression="zstd")
            coll.rename("d")
            assert db.d.find_one({"_id": 3})["n"] == 3
            client.admin.command("fsync")
        server.kill()
        server.start()
        with server.client() as client:
            coll = client.shop.d
            documents = list(coll.find())
            assert documents == sorted(documents, key=place) and len(documents) == 60
            names = [index["name"] for index in coll.list_indexes()]
            assert names == ["primaryKey", "_id_", "n_1", "n_1_site_1"], names
            validate(coll)
            assert client.shop.command("dropIndexes", "d", index="*")["nIndexesWas"] == 4
            assert len(list(coll.list_indexes())) == 2
            coll.drop()
            assert client.shop.list_collection_names() == []


def no_update_misses_a_document_that_others_move():
    with Fernd() as server, server.client() as client:
        coll = made(client, key=SON([("site", 1), ("_id", 1)]))
        coll.insert_many([{"_id": i, "name": i, "site": 0, "n": 0} for i in range(3)])
        coll.create_index("name")
        missed = []

        def write(number):
            for turn in range(200):
                by = "_id" if turn % 2 else "name"
                change = {"$inc": {"n": 1}, "$set": {"site": (turn * 7 + number) % 11}}
                if coll.update_one({by: (turn + number) % 3}, change).matched_count != 1:
                    missed.append((number, turn))

        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert not missed, missed
        assert sum(d["n"] for d in coll.find()) == 800
        validate(coll)


TESTS = [
    it_is_shown_by_the_catalogs_commands,
    what_cannot_be_a_primary_key_is_refused,
    documents_stand_in_its_order,
    plans_read_it_as_a_clustering_index,
    writes_keep_one_document_of_each_id,
    transactions_move_documents_whole_or_not_at_all,
    change_streams_and_the_oplog_name_documents_by_their_id,
    a_set_of_several_keeps_it_on_every_member,
    transactions_of_connections_see_and_undo_moves,
    the_digest_does_not_depend_on_it,
    collations_order_it,
    it_outlives_a_restart_and_every_change_of_the_collection,
    no_update_misses_a_document_that_others_move,
]


if __name__ == "__main__":
    run_tests("primary keys", TESTS)
