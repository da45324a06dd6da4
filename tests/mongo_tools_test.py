"""The MongoDB Database Tools, built from their source as `tests/mongo-tools` pins it: mongostat and
mongotop read the server's figures as they read mongod's, mongodump and mongorestore carry everything
from one server to another. With `--auth` and `--tls` the tools log in and speak TLS."""

import argparse
import base64
import hashlib
import hmac
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

import legacy_java_test
from fernd import ReplicaSet, fails, validate
from secured import Secured, add_options, missing

HERE = os.path.dirname(os.path.abspath(__file__))
# What `--auth` and `--tls` ask for.
SECURITY = {"auth": False, "tls": False}


def served(*options, **security):
    return Secured(*options, **{**SECURITY, **security})


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
    seconds = documents([built("mongostat"), *server.tool_options(), "-n", "4", "--json"])
    rows = [row for second in seconds for row in second.values()]
    assert len(rows) == 4, rows
    number = lambda text: int(text.lstrip("*").split("|")[0])
    assert sum(number(row["insert"]) for row in rows) > 0, rows
    assert sum(number(row["query"]) for row in rows) > 0, rows
    assert all(number(row["conn"]) > 0 and row["res"] != "0B" for row in rows), rows


def mongotop_names_the_collection(server):
    seconds = documents([built("mongotop"), *server.tool_options(), "-n", "3", "--json"])
    totals = [second["totals"]["shop.orders"] for second in seconds if "shop.orders" in second["totals"]]
    assert totals and any(total["write"]["count"] > 0 for total in totals), seconds
    assert any(total["total"]["time"] > 0 for total in totals), totals


def tool(name, *arguments):
    done = subprocess.run([built(name), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{name} {arguments}: {done.stderr}"
    return done.stderr


def dump(server, folder, *options):
    tool("mongodump", *server.tool_options(), "--out", folder, *options)


def restore(server, folder, *options):
    return tool("mongorestore", *server.tool_options(), *options, folder)


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
        for db, name in (("admin", "boss"), ("shop", "clerk"))
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
    # Each server has an administrator of its own.
    there, here = (list(server.admin["system.users"].find({"user": {"$ne": "root"}}, sort=[("_id", 1)]))
                   for server in (other, one))
    assert len(here) == 2 and here == there, (here, there)


def a_dump_with_users_restores():
    with tempfile.TemporaryDirectory() as folder, served() as one, served() as other:
        with one.client() as client, other.client() as there:
            fill(client)
            dump(one, folder)
            restore(other, folder)
            same(client, there)
            # Again, over what is there.
            there.shop.orders.delete_many({"of": 3})
            there.shop.orders.insert_one({"_id": "new"})
            # With the users of the dump the tool's own would go, which it has logged in by.
            restore(other, folder, "--drop", *(["--nsExclude", "admin.*"] if other.auth else []))
            same(client, there)
            # The tool asks for no journal when it makes indexes; what follows is about starting again.
            there.admin.command("fsync")
        other.kill()
        other.start()
        with one.client() as client, other.client() as there:
            same(client, there)


def logs_in(server, user, database, **options):
    with server.nobody(username=user, password="pencil", authSource=database, **options) as client:
        told = client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
        assert told == [{"user": user, "db": database}], told


def a_database_takes_its_users_and_roles_along():
    with tempfile.TemporaryDirectory() as folder, served(auth=True) as one, served(auth=True) as other:
        with one.client() as client:
            client.shop.orders.insert_one({"_id": 1})
            client.shop.command("createRole", "counts", roles=[], privileges=[
                {"resource": {"db": "shop", "collection": "orders"}, "actions": ["find"]}])
            client.shop.command("createUser", "clerk", pwd="pencil", roles=["counts"])
            client.other.command("createUser", "stranger", pwd="pencil", roles=["read"])
        dump(one, folder, "--db", "shop", "--dumpDbUsersAndRoles")
        restore(other, os.path.join(folder, "shop"), "--db", "shop", "--restoreDbUsersAndRoles")
        for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256"):
            logs_in(other, "clerk", "shop", authMechanism=mechanism)
        with other.nobody(username="clerk", password="pencil", authSource="shop") as clerk:
            assert clerk.shop.orders.find_one() == {"_id": 1}
            fails(13, lambda: clerk.shop.orders.insert_one({}))
        fails(18, lambda: logs_in(other, "stranger", "other"))


def credential(mechanism, user):
    """As MongoDB stores it, of the password that all tests use."""
    name = mechanism.replace("SCRAM-SHA-", "sha")
    password, length, count = b"pencil", 28, 15000
    if name == "sha1":
        password, length, count = hashlib.md5(f"{user}:mongo:pencil".encode()).hexdigest().encode(), 16, 10000
    salt = os.urandom(length)
    salted = hashlib.pbkdf2_hmac(name, password, salt, count)
    client = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    text = lambda value: base64.b64encode(value).decode()
    return {"iterationCount": count, "salt": text(salt), "storedKey": text(client),
            "serverKey": text(hmac.digest(salted, b"Server Key", name))}


def write_bson(folder, name, documents):
    path = os.path.join(folder, *name.split("/"))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    codec = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
    with open(path, "wb") as file:
        for document in documents:
            file.write(bson.encode(document, codec_options=codec))


def a_dump_of_mongodb_8_brings_users_that_log_in():
    """In its form: users and roles in `admin`, with `authSchema` of 5 beside them."""
    def user(db, name, roles, mechanisms, **more):
        return {"_id": f"{db}.{name}", "userId": uuid.uuid4(), "user": name, "db": db,
                "credentials": {each: credential(each, name) for each in mechanisms}, "roles": roles, **more}

    both = ("SCRAM-SHA-1", "SCRAM-SHA-256")
    users = [user("admin", "root", [{"role": "root", "db": "admin"}], both),
             user("shop", "clerk", [{"role": "counts", "db": "shop"}], both, customData={"desk": 4}),
             user("shop", "modern", [{"role": "readWrite", "db": "shop"}], both[1:]),
             user("shop", "away", [{"role": "read", "db": "shop"}], both,
                  authenticationRestrictions=[{"clientSource": ["192.0.2.7"]}]),
             user("$external", "CN=anna,O=Tests", [{"role": "read", "db": "shop"}], ())]
    users[-1]["credentials"] = {"external": True}
    roles = [{"_id": "shop.counts", "role": "counts", "db": "shop", "roles": [], "privileges": [
        {"resource": {"db": "shop", "collection": "orders"}, "actions": ["find"]}]}]
    version = [{"_id": "featureCompatibilityVersion", "version": "8.0"}, {"_id": "authSchema", "currentVersion": 5}]
    with tempfile.TemporaryDirectory() as folder, served(auth=True) as server:
        for name, documents in (("users", users), ("roles", roles), ("version", version)):
            write_bson(folder, f"admin/system.{name}.bson", documents)
        write_bson(folder, "shop/orders.bson", [{"_id": 1}])
        restore(server, folder)
        for mechanism in both:
            logs_in(server, "clerk", "shop", authMechanism=mechanism)
        logs_in(server, "modern", "shop")
        fails(18, lambda: logs_in(server, "away", "shop"))
        with server.nobody(username="clerk", password="pencil", authSource="shop") as clerk:
            assert clerk.shop.orders.find_one() == {"_id": 1}
            fails(13, lambda: clerk.shop.orders.insert_one({}))
        with server.client() as root:
            stored = root.admin.command("usersInfo", {"user": "clerk", "db": "shop"}, showCustomData=True)["users"][0]
            assert stored["customData"] == {"desk": 4}, stored
            assert len(list(root.admin["system.users"].find())) == 5
        logs_in(server, "root", "admin")


def a_dump_of_tokumx_restores_and_the_driver_of_its_day_logs_in():
    """In the form of TokuMX 2.0, which is MongoDB 2.4's: users in each database, with a digest of the password."""
    def pwd(user):
        return hashlib.md5(f"{user}:mongo:pencil".encode()).hexdigest()

    of_admin = [{"_id": bson.ObjectId(), "user": "boss", "pwd": pwd("boss"), "roles": ["clusterAdmin"],
                 "otherDBRoles": {"legacy": ["readWrite", "dbAdmin"]}}]
    of_shop = [{"_id": bson.ObjectId(), "user": "clerk", "pwd": pwd("clerk"), "roles": ["readWrite"]},
               {"_id": bson.ObjectId(), "user": "old", "pwd": pwd("old"), "readOnly": True},
               {"_id": bson.ObjectId(), "user": "odd", "pwd": pwd("odd"), "roles": ["juggler"]}]
    with tempfile.TemporaryDirectory() as folder, served(auth=True, tls=False) as server, server.client() as root:
        write_bson(folder, "admin/system.users.bson", of_admin)
        write_bson(folder, "shop/system.users.bson", of_shop)
        write_bson(folder, "shop/orders.bson", [{"_id": i} for i in range(10)])
        with open(os.path.join(folder, "shop", "orders.metadata.json"), "w") as file:
            json.dump({"options": {}, "indexes": [
                {"key": {"_id": 1}, "ns": "shop.orders", "name": "_id_"},
                {"key": {"of": 1}, "ns": "shop.orders", "name": "of_1", "clustering": True}]}, file)
        # What the manual says.
        for db in ("admin", "shop"):
            restore(server, os.path.join(folder, db, "system.users.bson"), "--db", db, "--collection", "old_users")
        restore(server, os.path.join(folder, "shop", "orders.bson"), "--db", "shop", "--collection", "orders")
        told = root.admin.command("authSchemaUpgrade", 1, **{"from": "old_users"})
        assert told["upgraded"] == ["admin.boss", "shop.clerk", "shop.odd", "shop.old"], told
        assert [(left["user"], left["db"]) for left in told["notUpgraded"]] == [("odd", "shop")], told
        assert root.admin.command("authSchemaUpgrade", 1, **{"from": "old_users"})["upgraded"] == []
        for name, db in (("boss", "admin"), ("clerk", "shop"), ("old", "shop")):
            logs_in(server, name, db, authMechanism="SCRAM-SHA-1")
        with server.nobody(username="old", password="pencil", authSource="shop") as old:
            assert old.shop.orders.count_documents({}) == 10
            fails(13, lambda: old.shop.orders.insert_one({}))
        if not (shutil.which("javac") and shutil.which("mvn")):
            print("  the driver of its day does not run: no JDK or no Maven here")
            return
        jar = legacy_java_test.driver(os.path.abspath(os.environ["FERN_TARGET"]))
        uri = server.uri(user="boss", ca=False)
        done = legacy_java_test.run(jar, uri)
        assert done.stdout.rstrip().endswith("0 failed"), (done.stdout[-3000:], done.stderr[-1000:])


def dumped(folder, name, documents, options, *indexes):
    """A collection as `mongodump` of TokuMX 2.0 left it, which is that of MongoDB 2.4."""
    db, collection = name.split(".")
    write_bson(folder, f"{db}/{collection}.bson", documents)
    with open(os.path.join(folder, db, f"{collection}.metadata.json"), "w") as file:
        json.dump({"options": {"create": collection, **options} if options else {},
                   "indexes": [{**index, "ns": name} for index in indexes]}, file)


def a_dump_of_tokumx_restores_in_its_shape():
    """Primary keys, partitions, clustering indexes and compression come along; a second restore changes nothing."""
    of_id = {"key": {"_id": 1}, "unique": True, "name": "_id_"}
    primary = {"key": {"time": 1, "_id": 1}, "unique": True, "name": "primaryKey", "clustering": True}
    prices = [{"_id": i, "time": i % 50, "product": i % 10, "text": "x" * 50} for i in range(1000)]
    with tempfile.TemporaryDirectory() as folder, served() as server, server.client() as client:
        dumped(folder, "shop.plain", [{"_id": i} for i in range(10)], {}, of_id)
        dumped(folder, "shop.keyed", prices, {"primaryKey": {"time": 1, "_id": 1}, "compression": "quicklz"},
               {**primary, "compression": "quicklz"}, {**of_id, "compression": "quicklz"})
        dumped(folder, "shop.prices", prices, {"primaryKey": {"time": 1, "_id": 1}, "partitioned": True}, primary, of_id,
               {"key": {"product": 1, "time": -1}, "name": "product_1_time_-1", "clustering": True, "compression": "lzma",
                "pageSize": "128k", "readPageSize": "8k", "fanout": 16})
        dumped(folder, "shop.by_id", [{"_id": i} for i in range(100)], {"partitioned": True}, {**of_id, "clustering": True})
        dumped(folder, "shop.packed", prices, {"compression": "lzma", "pageSize": 65536, "readPageSize": 16384, "fanout": 8},
               of_id, {"key": {"time": 1}, "name": "time_1", "background": True, "dropDups": True, "unique": False})
        dumped(folder, "shop.events", [{"_id": i} for i in range(10)], {"capped": True, "size": 65536, "max": 100}, of_id)

        def check():
            db = client.shop
            shown = {one["name"]: one["options"] for one in db.list_collections()}
            assert set(shown) == {"plain", "keyed", "prices", "by_id", "packed", "events"}, shown
            assert shown["keyed"] == {"primaryKey": {"time": 1, "_id": 1}, "compression": "quicklz"}, shown
            assert shown["prices"] == {"primaryKey": {"time": 1, "_id": 1}, "partitioned": True}, shown
            assert shown["by_id"] == {"partitioned": True}, shown
            assert (shown["events"]["capped"], shown["events"]["max"]) == (True, 100), shown
            assert list(db.keyed.index_information()) == ["primaryKey", "_id_"], db.keyed.index_information()
            index = db.prices.index_information()["product_1_time_-1"]
            assert index["clustering"] is True and index["compression"] == "lzma", index
            details = {d["name"]: d for d in db.command("collStats", "prices")["indexDetails"]}
            found = details["product_1_time_-1"]
            assert (found["compression"], found["pageSize"], found["readPageSize"], found["fanout"]) == ("zstd:19", 131072, 8192, 16)
            assert db.command("getPartitionInfo", "prices")["numPartitions"] == 1
            assert "unique" not in db.packed.index_information()["time_1"]
            for name, count in (("plain", 10), ("keyed", 1000), ("prices", 1000), ("by_id", 100), ("packed", 1000), ("events", 10)):
                assert db[name].count_documents({}) == count, name
                validate(db[name])
            natural = [(d["time"], d["_id"]) for d in db.keyed.find(sort=[("$natural", 1)])]
            assert natural == sorted(natural)

        restore(server, folder)
        check()
        # Over what is there: each document is there already, each index too.
        restore(server, folder)
        check()
        # It can go on as it did there.
        client.shop.command("addPartition", "prices", newMax={"time": 100})
        restore(server, folder, "--drop")
        check()
        # And out again, as dumps of today.
        with tempfile.TemporaryDirectory() as again:
            dump(server, again, "--db", "shop")
            restore(server, again, "--drop")
            check()


def a_dump_of_tokumx_needs_no_hand_before_it_restores():
    """The options of 2.4 begin with `create`, and TokuMX says more of `_id_`."""
    of_id = {"key": {"_id": 1}, "name": "_id_"}
    for options, more in (({"capped": True, "size": 4096}, {}), ({}, {"unique": True}), ({}, {"unique": True, "clustering": True}),
                          ({"compression": "zlib"}, {"unique": True, "clustering": True, "compression": "zlib"})):
        with tempfile.TemporaryDirectory() as folder, served() as server, server.client() as client:
            dumped(folder, "shop.c", [{"_id": 1}], options, {**of_id, **more})
            restore(server, folder)
            assert client.shop.c.find_one() == {"_id": 1}
    with tempfile.TemporaryDirectory() as folder, served() as server, server.client() as client:
        shape = {"compression": "zlib", "pageSize": "64k"}
        dumped(folder, "shop.c", [{"_id": 1}], {"primaryKey": {"a": 1, "_id": 1}, **shape}, {**of_id, "unique": True, **shape},
               {"key": {"a": 1, "_id": 1}, "name": "primaryKey", "unique": True, "clustering": True, **shape})
        restore(server, folder)
        assert list(client.shop.c.index_information()) == ["primaryKey", "_id_"]


def collections_keep_their_uuids():
    with tempfile.TemporaryDirectory() as folder, served() as one, served() as other:
        with one.client() as client, other.client() as there:
            fill(client)
            dump(one, folder)
            restore(other, folder, "--drop", "--preserveUUID", *(["--nsExclude", "admin.*"] if other.auth else []))
            if other.auth:
                restore(other, folder, "--nsInclude", "admin.*")
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
    with tempfile.TemporaryDirectory() as folder, served() as server, server.client() as client:
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


def check_dump_under_load(one, other, writing, reading):
    """mongodump --oplog, mongorestore --oplogReplay: equal to the source at the last entry of the dump.

    The dump is of `one`, which `reading` reads; what `writing` reaches is written to by three clients.
    """
    with tempfile.TemporaryDirectory() as folder, writing.client() as client, reading as here, other.client() as there:
        for name in ("c0", "c1", "c2"):
            client.shop[name].insert_many([{"_id": i, "n": 0, "text": "x" * 500} for i in range(5000)])
        stop = threading.Event()
        threads = [threading.Thread(target=writes, args=(writing, number, stop)) for number in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        # A dump takes less than a tenth of a second, in which a busy machine may run nobody else.
        for _ in range(20):
            tool("mongodump", *one, "--out", folder, "--oplog")
            with open(os.path.join(folder, "oplog.bson"), "rb") as file:
                entries = list(bson.decode_file_iter(file))
            if len(entries) > 1:
                break
        stop.set()
        for thread in threads:
            thread.join()
        assert len(entries) > 1, "the load went on during one of twenty dumps"
        restore(other, folder, "--oplogReplay")
        differs = 0
        for name in ("c0", "c1", "c2"):
            then = at_time(here, name, entries[-1]["ts"])
            assert then == list(there.shop[name].find(sort=[("_id", 1)])), name
            differs += then != list(client.shop[name].find(sort=[("_id", 1)]))
            validate(there.shop[name])
        print(f"  {len(entries)} entries; {differs} of 3 collections went on to change after them")


HISTORY = ("--setParameter", "minSnapshotHistoryWindowInSeconds=300")


def a_dump_of_a_set_under_load_ends_at_one_time():
    with served("--replSet", "rs", "--replSetAutoInitiate", *HISTORY) as one, served() as other:
        check_dump_under_load(one.tool_options(), other, one, one.client())


def a_dump_of_a_secondary_under_load_ends_at_one_time():
    with ReplicaSet(*HISTORY) as cluster, served() as other:
        secondary = cluster.secondaries()[0]
        options = ["--host", "127.0.0.1", "--port", str(secondary.port), "--readPreference", "secondary"]
        check_dump_under_load(options, other, cluster, secondary.client(readPreference="secondary"))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    add_options(p)
    p.add_argument("--only", metavar="TESTS", help="these of those that carry data, with commas")
    a = p.parse_args()
    if why := missing(a):
        print(f"skipped: {why}")
        return
    SECURITY.update(auth=a.auth, tls=a.tls)
    if not shutil.which("go"):
        print("mongo-tools: not run, there is no Go to build them with")
        return
    tests = [mongostat_counts_what_was_done, mongotop_names_the_collection]
    carried = [a_dump_with_users_restores, a_database_takes_its_users_and_roles_along,
               a_dump_of_mongodb_8_brings_users_that_log_in,
               a_dump_of_tokumx_restores_and_the_driver_of_its_day_logs_in, a_dump_of_tokumx_restores_in_its_shape,
               a_dump_of_tokumx_needs_no_hand_before_it_restores,
               collections_keep_their_uuids, an_oplog_is_replayed,
               a_dump_of_a_set_under_load_ends_at_one_time, a_dump_of_a_secondary_under_load_ends_at_one_time]
    if a.only:
        tests, carried = [], [test for test in carried if test.__name__ in a.only.split(",")]
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

    with served("--cacheSize", "64M") as server:
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
