"""The MongoDB Database Tools, built from their source as `tests/mongo-tools` pins it: mongostat and
mongotop read the server's figures as they read mongod's, mongodump and mongorestore carry everything
from one server to another."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import uuid

import bson
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions

from fernd import Fernd, validate

HERE = os.path.dirname(os.path.abspath(__file__))


def built(name):
    """The tool, built where it is missing or the pins are newer."""
    home = os.path.join(os.environ["FERN_TARGET"], "mongo-tools")
    os.makedirs(home, exist_ok=True)
    path, pins = os.path.join(home, name), os.path.join(HERE, "mongo-tools", "go.mod")
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(pins):
        package = f"github.com/mongodb/mongo-tools/{name}/main"
        subprocess.run(["go", "build", "-mod=readonly", "-p", "2", "-o", path, package],
                       check=True, cwd=os.path.dirname(pins))
    return path


def documents(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def mongostat_counts_what_was_done(server):
    seconds = documents([built("mongostat"), "--port", str(server.port), "-n", "4", "--json"])
    rows = [row for second in seconds for row in second.values()]
    assert len(rows) == 4, rows
    number = lambda text: int(text.lstrip("*").split("|")[0])
    assert sum(number(row["insert"]) for row in rows) > 0, rows
    assert sum(number(row["query"]) for row in rows) > 0, rows
    assert all(number(row["conn"]) > 0 and row["res"] != "0B" for row in rows), rows


def mongotop_names_the_collection(server):
    seconds = documents([built("mongotop"), "--port", str(server.port), "-n", "3", "--json"])
    totals = [second["totals"]["shop.orders"] for second in seconds if "shop.orders" in second["totals"]]
    assert totals and any(total["write"]["count"] > 0 for total in totals), seconds
    assert any(total["total"]["time"] > 0 for total in totals), totals


def tool(name, *arguments):
    done = subprocess.run([built(name), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{name} {arguments}: {done.stderr}"
    return done.stderr


def dump(server, folder, *options):
    tool("mongodump", "--port", str(server.port), "--out", folder, *options)


def restore(server, folder, *options):
    return tool("mongorestore", "--port", str(server.port), *options, folder)


def info(database, *fields):
    """What listCollections tells of each collection, these fields."""
    found = {}
    for entry in database.command("listCollections")["cursor"]["firstBatch"]:
        whole = {**entry, **entry["info"]}
        found[entry["name"]] = tuple(str(whole.get(field)) for field in fields)
    return found


def fill(client):
    client.shop.orders.insert_many([{"_id": i, "of": i % 7, "text": "x" * 100} for i in range(2000)])
    client.shop.orders.create_index([("of", 1), ("_id", -1)], name="by_customer")
    client.shop.create_collection("log", capped=True, size=1 << 20)
    client.shop.log.insert_many([{"n": i} for i in range(50)])
    client.shop.create_collection("words", collation={"locale": "en", "strength": 2})
    client.shop.words.insert_one({"_id": "A", "t": bson.Timestamp(7, 1)})
    client.shop.create_collection("first", viewOn="orders", pipeline=[{"$match": {"of": 1}}])
    client.other.plain.insert_many([{} for _ in range(10)])
    users = [
        {"_id": f"{db}.{name}", "user": name, "db": db, "userId": bson.Binary(uuid.uuid4().bytes, 4),
         "credentials": {}, "roles": []}
        for db, name in (("admin", "root"), ("shop", "clerk"))
    ]
    client.admin.tempusers.insert_many(users)
    client.admin.command("_mergeAuthzCollections", tempUsersCollection="admin.tempusers",
                         drop=False, db="")
    client.admin.tempusers.drop()


def same(one, other):
    """Both servers have the same documents, indexes, options and users."""
    for name in ("shop", "other"):
        a, b = one[name], other[name]
        assert info(a, "type", "options") == info(b, "type", "options"), name
        for collection in a.list_collection_names():
            # A view has no order of its own.
            order = [("_id" if collection == "first" else "$natural", 1)]
            documents = list(a[collection].find(sort=order))
            assert documents == list(b[collection].find(sort=order)), collection
            if collection != "first":
                indexes = a[collection].index_information()
                assert indexes == b[collection].index_information(), collection
                validate(b[collection])
    users = list(one.admin["system.users"].find(sort=[("_id", 1)]))
    assert len(users) == 2 and users == list(other.admin["system.users"].find(sort=[("_id", 1)]))


def a_dump_with_users_restores():
    with tempfile.TemporaryDirectory() as folder, Fernd() as one, Fernd() as other:
        with one.client() as client, other.client() as there:
            fill(client)
            dump(one, folder)
            restore(other, folder)
            same(client, there)
            # Again, over what is there.
            there.shop.orders.delete_many({"of": 3})
            there.shop.orders.insert_one({"_id": "new"})
            restore(other, folder, "--drop")
            same(client, there)
            # The tool asks for no journal when it makes indexes; what follows is about starting again.
            there.admin.command("fsync")
        other.kill()
        other.start()
        with one.client() as client, other.client() as there:
            same(client, there)


def collections_keep_their_uuids():
    with tempfile.TemporaryDirectory() as folder, Fernd() as one, Fernd() as other:
        with one.client() as client, other.client() as there:
            fill(client)
            dump(one, folder)
            restore(other, folder, "--drop", "--preserveUUID")
            same(client, there)
            assert info(client.shop, "uuid") == info(there.shop, "uuid")


def entry(op, ns, o, seconds, **more):
    stamp = bson.Timestamp(seconds, 1)
    return {"ts": stamp, "t": bson.Int64(1), "v": bson.Int64(2), "op": op, "ns": ns, "o": o, **more}


def an_oplog_is_replayed():
    collection = bson.Binary(uuid.uuid4().bytes, 4)
    entries = [
        entry("n", "", {"msg": "begin"}, 1),
        entry("c", "shop.$cmd", {"create": "orders", "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}, 2, ui=collection),
        *(entry("i", "shop.orders", {"_id": i, "n": {"a": [i]}}, 3 + i, ui=collection) for i in range(20)),
        entry("u", "shop.orders", {"$v": 2, "diff": {"sn": {"sa": {"a": True, "u0": "x"}}}}, 40, o2={"_id": 1}, ui=collection),
        entry("u", "shop.orders", {"$v": 1, "$set": {"k": 1}}, 41, o2={"_id": 2}, ui=collection),
        entry("u", "shop.orders", {"_id": 3, "whole": True}, 42, o2={"_id": 3}, ui=collection),
        entry("d", "shop.orders", {"_id": 4}, 43, ui=collection),
        entry("c", "shop.$cmd", {"createIndexes": "orders", "v": 2, "key": {"k": 1}, "name": "k_1"}, 44, ui=collection),
        entry("i", "shop.orders", {"_id": "late"}, 100, ui=collection),
    ]
    codec = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
    with tempfile.TemporaryDirectory() as folder, Fernd() as server, server.client() as client:
        with open(os.path.join(folder, "oplog.bson"), "wb") as file:
            for each in entries:
                file.write(bson.encode(each, codec_options=codec))
        restore(server, folder, "--oplogReplay", "--oplogLimit", "90:0")
        orders = client.shop.orders
        assert orders.count_documents({}) == 19, list(orders.find())
        assert orders.find_one({"_id": 1}) == {"_id": 1, "n": {"a": ["x"]}}
        assert orders.find_one({"_id": 2}) == {"_id": 2, "n": {"a": [2]}, "k": 1}
        assert orders.find_one({"_id": 3}) == {"_id": 3, "whole": True}
        assert "k_1" in orders.index_information()
        validate(orders)


def writes(server, number, stop):
    """A client's load: inserts, updates, deletes, transactions over two collections."""
    with server.client() as client:
        shop, n = client.shop, 0
        while not stop.is_set():
            n += 1
            some = shop[f"c{n % 3}"]
            some.insert_one({"_id": f"{number}-{n}", "a": [1, 2, 3], "d": {"e": n}})
            some.update_one({"_id": f"{number}-{n}"}, {"$set": {"d.e": n + 1, "z": "q"}, "$push": {"a": n}})
            if n % 3 == 0:
                some.delete_one({"_id": f"{number}-{n - 3}"})
            if n % 5 == 0:
                def both(session, n=n):
                    shop.c1.insert_one({"_id": f"t{number}-{n}"}, session=session)
                    shop.c2.update_one({"_id": 7}, {"$inc": {"n": 1}}, session=session)

                with client.start_session() as session:
                    session.with_transaction(both)
            if n == 200:
                shop.command("createIndexes", f"c{number}", indexes=[{"key": {"d.e": 1}, "name": "e"}])


def at_time(client, collection, time):
    """Every document as it was then."""
    reply = client.shop.command({"find": collection, "sort": {"_id": 1}, "batchSize": 100_000, "singleBatch": True,
                                 "readConcern": {"level": "snapshot", "atClusterTime": time}})
    return reply["cursor"]["firstBatch"]


def a_dump_of_a_set_under_load_ends_at_one_time():
    """mongodump --oplog, mongorestore --oplogReplay: equal to the source at the last entry of the dump."""
    member = ("--replSet", "rs", "--replSetAutoInitiate", "--setParameter", "minSnapshotHistoryWindowInSeconds=300")
    with tempfile.TemporaryDirectory() as folder, Fernd(*member) as one, Fernd() as other:
        with one.client() as client, other.client() as there:
            for name in ("c0", "c1", "c2"):
                client.shop[name].insert_many([{"_id": i, "n": 0, "text": "x" * 500} for i in range(5000)])
            stop = threading.Event()
            threads = [threading.Thread(target=writes, args=(one, number, stop)) for number in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.5)
            dump(one, folder, "--oplog")
            stop.set()
            for thread in threads:
                thread.join()
            with open(os.path.join(folder, "oplog.bson"), "rb") as file:
                entries = list(bson.decode_file_iter(file))
            assert len(entries) > 1, "the load went on during the dump"
            restore(other, folder, "--oplogReplay")
            differs = 0
            for name in ("c0", "c1", "c2"):
                then = at_time(client, name, entries[-1]["ts"])
                assert then == list(there.shop[name].find(sort=[("_id", 1)])), name
                differs += then != list(client.shop[name].find(sort=[("_id", 1)]))
                validate(there.shop[name])
            print(f"  {len(entries)} entries; {differs} of 3 collections went on to change after them")


def main():
    if not shutil.which("go"):
        print("mongo-tools: not run, there is no Go to build them with")
        return
    tests = [mongostat_counts_what_was_done, mongotop_names_the_collection]
    carried = [a_dump_with_users_restores, collections_keep_their_uuids, an_oplog_is_replayed,
               a_dump_of_a_set_under_load_ends_at_one_time]
    for name in ("mongostat", "mongotop", "mongodump", "mongorestore"):
        built(name)
    for test in carried:
        print(test.__name__.replace("_", " "), flush=True)
        test()
    stop = threading.Event()

    def load(server):
        with server.client() as client:
            while not stop.is_set():
                client.shop.orders.insert_many([{} for _ in range(50)])
                client.shop.orders.find_one({})
                time.sleep(0.01)

    with Fernd("--cacheSize", "64M") as server:
        thread = threading.Thread(target=load, args=(server,))
        thread.start()
        try:
            for test in tests:
                print(test.__name__.replace("_", " "), flush=True)
                test(server)
        finally:
            stop.set()
            thread.join()
    print(f"mongo-tools: {len(tests) + len(carried)} passed, 0 failed")


if __name__ == "__main__":
    main()
