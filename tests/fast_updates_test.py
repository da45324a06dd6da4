"""Fast updates (TokuMX's `fastUpdates`): updates that are written without reading the document, through PyMongo."""

import random
import threading

import pymongo
from bson import Int64
from fernd import Fernd, ReplicaSet, fails, kills, run_tests, validate, wait_until
from pymongo import UpdateOne
from pymongo.errors import PyMongoError

ON = ["--setParameter", "fastUpdates=1"]


def figures(client):
    return client.admin.command("serverStatus")["metrics"]["fastUpdates"]


def performed(client):
    return figures(client)["performed"]["primaryKey"]


def switch(client, on):
    client.admin.command("setParameter", 1, fastUpdates=on)


def an_update_is_told_to_have_changed_a_document_that_may_not_be_there():
    with Fernd() as server, server.client() as client:
        coll = client.shop.c
        coll.insert_many({"_id": i, "n": 0} for i in range(10))
        result = coll.update_one({"_id": 3}, {"$inc": {"n": 1}})
        assert (performed(client), figures(client)["eligible"]["primaryKey"]) == (0, 1)
        assert client.admin.command("setParameter", 1, fastUpdates=True)["was"] is False
        for _ in range(3):
            result = coll.update_one({"_id": 3}, {"$inc": {"n": 1}, "$set": {"s": "x"}})
            assert (result.matched_count, result.modified_count) == (1, 1)
        assert coll.find_one({"_id": 3}) == {"_id": 3, "n": 4, "s": "x"}
        result = coll.update_one({"_id": 77}, {"$inc": {"n": 1}})
        assert (result.matched_count, result.modified_count) == (1, 1)
        assert coll.find_one({"_id": 77}) is None and coll.count_documents({}) == 10 == coll.estimated_document_count()
        assert performed(client) == 4
        validate(coll)


def what_does_not_fit_is_left_counted_and_logged():
    with Fernd(*ON) as server, server.client() as client:
        coll = client.shop.c
        coll.insert_one({"_id": "x", "n": "text"})
        coll.update_one({"_id": "x"}, {"$inc": {"n": 1}})
        assert coll.find_one() == {"_id": "x", "n": "text"}
        assert coll.find_one() == {"_id": "x", "n": "text"}
        assert figures(client)["errors"] == 1
        wait_until(lambda: "9016856" in server.tail(20000) and "shop.c" in server.tail(20000), "no line in the log", server.tail)
        client.admin.command("setParameter", 1, fastUpdatesIgnoreErrors=True)
        coll.update_one({"_id": "x"}, {"$inc": {"n": 2}})
        assert coll.find_one({"_id": "x"})["n"] == "text" and figures(client)["errors"] == 2
        # What the parser refuses is told at once.
        fails(9, lambda: coll.update_one({"_id": "x"}, {"$nonsense": {"n": 1}}))


def other_updates_go_the_ordinary_way():
    with Fernd(*ON) as server, server.client() as client:
        db = client.shop
        coll = db.c
        coll.insert_one({"_id": 1, "n": 1, "tags": [1, 2], "indexed": 1})
        coll.create_index("indexed")
        coll.create_index("partial", partialFilterExpression={"n2": {"$gt": 1}})
        for filter, update, options in (
            ({"_id": 1}, {"$set": {"tags.$[t]": 9}}, {"array_filters": [{"t": 2}]}),
            ({"_id": 1}, {"n": 2}, {}),
            ({"_id": 1}, [{"$set": {"n": 3}}], {}),
            ({"_id": 1, "n": 3}, {"$inc": {"n": 1}}, {}),
            ({"n": 4}, {"$inc": {"n": 1}}, {}),
            ({"_id": {"$in": [1]}}, {"$inc": {"n": 1}}, {}),
            ({"_id": 1}, {"$inc": {"indexed": 1}}, {}),
            ({"_id": 1}, {"$set": {"n2": 2}}, {}),
            ({"_id": 1}, {"$inc": {"m": 1}}, {"upsert": True}),
            ({"_id": 1}, {"$inc": {"n": 1}}, {"hint": "_id_"}),
            ({"_id": 1}, {"$inc": {"n": 1}}, {"collation": {"locale": "en"}}),
        ):
            how = coll.replace_one if update == {"n": 2} else coll.update_one
            how(filter, update, **options)
        coll.update_many({"_id": 1}, {"$inc": {"n": 1}})
        coll.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}})
        assert performed(client) == 0
        for name, options in (
            ("validated", {"validator": {"n": {"$gt": 0}}}),
            ("capped", {"capped": True, "size": 100000}),
            ("collated", {"collation": {"locale": "en"}}),
        ):
            db.create_collection(name, **options)
            db[name].insert_one({"_id": 1, "n": 1})
            db[name].update_one({"_id": 1}, {"$inc": {"n": 1}})
        db.command("create", "keyed", primaryKey={"k": 1, "_id": 1})
        db.keyed.insert_one({"_id": 1, "k": 1})
        db.keyed.update_one({"_id": 1}, {"$inc": {"n": 1}})
        db.keyed.update_one({"k": 1, "_id": 1}, {"$inc": {"n": 1}}, upsert=True)
        db.keyed.update_one({"k": 1, "_id": 1}, {"$set": {"k": 2}})
        assert performed(client) == 0 and db.keyed.find_one() == {"_id": 1, "k": 2, "n": 2}
        coll.update_one({"_id": 1}, {"$inc": {"n": 1}})
        assert performed(client) == 0, "the partial index may have any document"
        coll.drop_index("partial_1")
        coll.update_one({"_id": 1}, {"$inc": {"n": 1}})
        assert performed(client) == 1
        coll.create_index([("everything.$**", 1)])
        coll.update_one({"_id": 1}, {"$inc": {"everything.n": 1}})
        assert performed(client) == 1
        validate(coll)


def a_document_is_named_by_the_whole_of_a_longer_primary_key():
    with Fernd(*ON) as server, server.client() as client:
        db = client.shop
        db.command("create", "visits", primaryKey={"site": 1, "at.day": -1, "_id": 1})
        db.visits.create_index("kind")
        db.visits.insert_many({"_id": i, "site": f"s{i % 3}", "at": {"day": i % 5}, "kind": i % 2, "n": 0} for i in range(60))
        for round in range(3):
            for i in range(60):
                filter = {"_id": i, "site": f"s{i % 3}", "at.day": i % 5}
                result = db.visits.update_one(filter, {"$inc": {"n": 1}, "$set": {"at.hour": round}})
                assert (result.matched_count, result.modified_count) == (1, 1)
        assert performed(client) == 180
        # Another place than the document's: nothing is there to be changed.
        db.visits.update_one({"site": "s1", "at.day": 0, "_id": 0}, {"$inc": {"n": 100}})
        assert performed(client) == 181
        for found in (db.visits.find(), db.visits.find().hint("kind_1"), db.visits.find().hint("_id_"), db.visits.find({"site": {"$gte": "s"}})):
            documents = sorted(found, key=lambda document: document["_id"])
            expected = [{"_id": i, "site": f"s{i % 3}", "at": {"day": i % 5, "hour": 2}, "kind": i % 2, "n": 3} for i in range(60)]
            assert documents == expected
        db.visits.update_one({"_id": 7, "site": "s1", "at.day": 2}, {"$inc": {"kind": 1}})
        assert performed(client) == 181, "an index depends on it"
        assert db.visits.count_documents({}) == 60 == db.visits.estimated_document_count()
        validate(db.visits)


def without_unique_checks_an_insert_replaces_where_nothing_depends_on_it():
    with Fernd("--setParameter", "pkUniqueChecks=0") as server, server.client() as client:
        db = client.shop
        assert client.admin.command("getParameter", 1, pkUniqueChecks=1)["pkUniqueChecks"] is False
        db.plain.insert_many({"_id": i, "n": 0} for i in range(10))
        assert len(db.plain.insert_many({"_id": i, "n": 1} for i in range(5, 15)).inserted_ids) == 10
        assert [document["n"] for document in db.plain.find().sort("_id")] == [0] * 5 + [1] * 10
        assert db.plain.estimated_document_count() == 15 == db.plain.count_documents({})
        with client.start_session() as session, session.start_transaction():
            db.plain.insert_one({"_id": 0, "n": 2}, session=session)
            assert db.plain.find_one({"_id": 0}, session=session)["n"] == 2
        # An upsert goes by what is there, whatever inserts do.
        result = db.plain.update_one({"_id": 0}, {"$setOnInsert": {"n": 9}}, upsert=True)
        assert result.upserted_id is None and db.plain.find_one({"_id": 0})["n"] == 2
        validate(db.plain)
        assert db.command("collStats", "plain")["count"] == 15
        db.indexed.create_index("n")
        db.command("create", "keyed", primaryKey={"k": 1, "_id": 1})
        db.command("create", "partitioned", partitioned=True)
        db.create_collection("capped", capped=True, size=100000)
        db.create_collection("validated", validator={"n": {"$gte": 0}})
        for name in ("indexed", "keyed", "partitioned", "capped", "validated"):
            db[name].insert_one({"_id": 1, "k": 1, "n": 1})
            fails(11000, lambda name=name: db[name].insert_one({"_id": 1, "k": 1, "n": 2}))
            assert db[name].find_one()["n"] == 1
            validate(db[name])
        client.admin.command("setParameter", 1, pkUniqueChecks=True)
        fails(11000, lambda: db.plain.insert_one({"_id": 0}))
        client.admin.command("fsync")
        server.kill()
        server.start()
        client = server.client()
        assert client.shop.plain.count_documents({}) == 15
        validate(client.shop.plain)


def upserts_make_documents_and_counts_stay_right():
    with Fernd(*ON) as server, server.client() as client:
        coll = client.shop.c
        coll.insert_many({"_id": i, "n": 0} for i in range(100))
        for i in range(50, 150):
            update = {"$inc": {"n": 1}, "$setOnInsert": {"new": True}}
            result = coll.update_one({"_id": i}, update, upsert=True)
            assert (result.matched_count, result.upserted_id) == (1, None)
        assert performed(client) == 100
        assert coll.estimated_document_count() == 150 == coll.count_documents({})
        assert coll.count_documents({"new": True}) == 50 and coll.count_documents({"n": 1}) == 100
        with client.start_session() as session:
            session.start_transaction()
            coll.update_one({"_id": 1000}, {"$inc": {"n": 1}}, upsert=True, session=session)
            assert coll.count_documents({}, session=session) == 151
            assert coll.estimated_document_count() == 150
            session.abort_transaction()
        assert coll.find_one({"_id": 1000}) is None
        client.admin.command("fsync")
        server.kill()
        server.start()
        client = server.client()
        coll = client.shop.c
        assert coll.estimated_document_count() == 150
        assert coll.database.command("collStats", "c")["count"] == 100, "what was counted"
        coll.delete_many({"_id": {"$gte": 140}})
        assert coll.estimated_document_count() == 140
        validate(coll)
        assert coll.database.command("collStats", "c")["count"] == 140, "validate has counted"
        coll.insert_one({"_id": "one more"})
        assert coll.estimated_document_count() == 141 == coll.database.command("collStats", "c")["count"]
        client.admin.command("fsync")
        server.kill()
        server.start()
        coll = server.client().shop.c
        assert coll.estimated_document_count() == 141 == coll.database.command("collStats", "c")["count"]
        # With an index that a new document has an entry in, upserts read.
        client = server.client()
        coll = client.shop.c
        coll.create_index("n")
        assert coll.update_one({"_id": "new"}, {"$inc": {"m": 1}}, upsert=True).upserted_id == "new"
        coll.drop()
        coll.insert_one({"_id": 1})
        assert coll.estimated_document_count() == 1
        validate(coll)


OPERATORS = [
    lambda r: {"$inc": {r.choice("ab"): r.choice([1, -2, Int64(3), 0.5])}},
    lambda r: {"$set": {r.choice("abc"): r.choice([1, 2.5, "text", [1, 2], {"d": 1}])}},
    lambda r: {"$unset": {r.choice("abc"): ""}},
    lambda r: {"$push": {"list": r.randrange(5)}},
    lambda r: {"$addToSet": {"list": {"$each": [r.randrange(5), r.randrange(5)]}}},
    lambda r: {"$pull": {"list": r.randrange(5)}},
    lambda r: {"$pop": {"list": 1}},
    lambda r: {"$mul": {"a": r.choice([2, 0.5])}},
    lambda r: {"$min": {"b": r.randrange(10)}},
    lambda r: {"$max": {"b": r.randrange(10)}},
    lambda r: {"$bit": {"a": {"xor": 5}}},
    lambda r: {"$rename": {"a": "c"}},
    lambda r: {"$set": {"c.d": r.randrange(9)}, "$inc": {"n": 1}},
    lambda r: {"$setOnInsert": {"made": r.randrange(9)}, "$inc": {"n": 1}},
]


def statement(r, keys):
    kind = r.random()
    if kind < 0.05:
        return pymongo.DeleteOne({"_id": r.randrange(keys)})
    if kind < 0.1:
        return pymongo.ReplaceOne({"_id": r.randrange(keys)}, {"n": 0}, upsert=True)
    return UpdateOne({"_id": r.randrange(keys)}, r.choice(OPERATORS)(r), upsert=kind < 0.5)


def write(coll, statements):
    """What the server refuses at once is refused by both ways, or by the fast one later."""
    for one in statements:
        try:
            coll.bulk_write([one])
        except PyMongoError:
            pass


def contents(coll):
    return list(coll.find().sort("_id"))


def random_operators_make_the_same_documents_both_ways():
    r = random.Random(7)
    with Fernd("--cacheSize", "64M") as server, server.client() as client:
        fast, slow = client.shop.fast, client.shop.slow
        for coll in (fast, slow):
            coll.insert_many({"_id": i, "a": i, "list": []} for i in range(0, 60, 2))
        for round in range(12):
            statements = [statement(r, 60) for _ in range(150)]
            switch(client, True)
            write(fast, statements)
            before = performed(client)
            switch(client, False)
            write(slow, statements)
            assert performed(client) == before
            differing = [(one, other) for one, other in zip(contents(fast), contents(slow)) if one != other]
            assert contents(fast) == contents(slow), (round, differing[:3])
            assert list(fast.find().sort("_id", -1)) == list(slow.find().sort("_id", -1))
            assert fast.estimated_document_count() == slow.estimated_document_count()
            if round % 3 == 1:
                client.admin.command("checkpoint", 1)
            if round % 4 == 3:
                client.admin.command("fsync")
                server.kill()
                server.start()
                client = server.client()
                fast, slow = client.shop.fast, client.shop.slow
                assert contents(fast) == contents(slow), round
        assert before > 20
        validate(fast)
        validate(slow)


def transactions_and_snapshots_see_what_they_should():
    with Fernd(*ON) as server, server.client() as client, server.client() as other:
        coll = client.shop.c
        coll.insert_one({"_id": 1, "n": 0})
        with client.start_session() as session:
            session.start_transaction()
            assert coll.find_one({"_id": 1}, session=session)["n"] == 0
            coll.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
            coll.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
            assert coll.find_one({"_id": 1}, session=session)["n"] == 2
            assert [d["n"] for d in coll.find({}, session=session)] == [2]
            assert other.shop.c.find_one()["n"] == 0
            session.commit_transaction()
        assert performed(client) == 2 and other.shop.c.find_one()["n"] == 2
        with client.start_session() as session:
            session.start_transaction()
            assert coll.find_one({}, session=session)["n"] == 2
            for _ in range(200):
                other.shop.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
            assert coll.find_one({}, session=session)["n"] == 2
            assert coll.find_one({})["n"] == 202
        # A transaction of a connection; and one that meets a change is told of it.
        with server.client(maxPoolSize=1) as bound:
            bound.shop.command("beginTransaction")
            bound.shop.c.update_one({"_id": 1}, {"$set": {"s": "own"}})
            assert bound.shop.c.find_one()["s"] == "own" and "s" not in coll.find_one()
            bound.shop.command("rollbackTransaction")
            assert "s" not in bound.shop.c.find_one()
        with client.start_session() as session:
            session.start_transaction()
            coll.find_one({}, session=session)
            other.shop.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
            fails(112, lambda: coll.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session))


def kills_lose_no_acknowledged_update():
    with Fernd(*ON, "--cacheSize", "64M") as server:
        with server.client() as client:
            client.shop.c.insert_many({"_id": i, "n": 0} for i in range(20))
        acknowledged, tried = [0] * 20, [0] * 20
        for round in range(kills(5)):
            stop = threading.Event()

            def work(part):
                r = random.Random(part * 100 + round)
                with server.client(serverSelectionTimeoutMS=2000, retryWrites=False) as client:
                    coll = client.shop.get_collection("c", write_concern=pymongo.WriteConcern(j=True))
                    while not stop.is_set():
                        key = r.randrange(part * 5, part * 5 + 5)
                        tried[key] += 1
                        try:
                            coll.update_one({"_id": key}, {"$inc": {"n": 1}}, upsert=r.random() < 0.5)
                        except PyMongoError:
                            return
                        acknowledged[key] += 1

            workers = [threading.Thread(target=work, args=[part]) for part in range(4)]
            for worker in workers:
                worker.start()
            stop.wait(0.7)
            server.kill()
            stop.set()
            for worker in workers:
                worker.join()
            server.start()
            with server.client() as client:
                for document in client.shop.c.find():
                    key, n = document["_id"], document["n"]
                    assert acknowledged[key] <= n <= tried[key], (round, key, acknowledged[key], n, tried[key])
                    acknowledged[key] = tried[key] = n
                assert client.shop.c.estimated_document_count() == 20
                validate(client.shop.c)


def members_of_a_set_make_none():
    """The oplog and change streams tell what an update did, so it has to be read."""
    with ReplicaSet(*ON, members=1) as members, members.client() as client:
        coll = client.shop.c
        coll.insert_one({"_id": 1, "n": 1})
        with coll.watch() as stream:
            coll.update_one({"_id": 1}, {"$inc": {"n": 1}})
            assert stream.next()["updateDescription"]["updatedFields"] == {"n": 2}
        assert coll.update_one({"_id": 5}, {"$inc": {"n": 1}}).matched_count == 0
        assert figures(client)["eligible"]["primaryKey"] == 0 == performed(client)


TESTS = [
    an_update_is_told_to_have_changed_a_document_that_may_not_be_there,
    what_does_not_fit_is_left_counted_and_logged,
    other_updates_go_the_ordinary_way,
    a_document_is_named_by_the_whole_of_a_longer_primary_key,
    without_unique_checks_an_insert_replaces_where_nothing_depends_on_it,
    upserts_make_documents_and_counts_stay_right,
    random_operators_make_the_same_documents_both_ways,
    transactions_and_snapshots_see_what_they_should,
    kills_lose_no_acknowledged_update,
    members_of_a_set_make_none,
]


if __name__ == "__main__":
    run_tests("fast updates", TESTS)
