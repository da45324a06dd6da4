"""`fern migrate`: a set under load whose migration is killed again and again, and the way back; dumps of MongoDB and of
TokuMX; a server that knows only the messages of 2013; users; what is refused, and what is told then."""

import contextlib
import gzip
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import bson
import pymongo
from pymongo.errors import PyMongoError

import mongo_tools_test
from fernd import Fernd, fails, run_tests, validate, wait_until
from old_server import OP_GET_MORE, OP_QUERY, OldServer

FERN = os.path.join(os.path.dirname(os.environ["FERND"]), "fern")
FERN = os.environ.get("FERN", FERN)
# What was is compared for as long as a slow machine may take.
MEMBER = ("--replSet", "rs", "--replSetAutoInitiate", "--cacheSize", "64M",
          "--setParameter", "minSnapshotHistoryWindowInSeconds=300")


def uri(server, user="", options=""):
    return f"mongodb://{user}127.0.0.1:{server.port}/{options}"


@contextlib.contextmanager
def folder():
    """Where a migration leaves its state."""
    with tempfile.TemporaryDirectory(prefix="fern-migrate-") as path:
        yield path


def begin(path, source, target, *options):
    command = [FERN, "migrate", source, target, "--report", "report.json", *options]
    # A process group of its own: a signal for the migration is for it alone.
    return subprocess.Popen(command, cwd=path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, start_new_session=True)


def ended(process, status=0, given=None, wait=120):
    out, err = process.communicate(given, timeout=wait)
    assert process.returncode == status, f"ended with {process.returncode}\n{out}\n{err}"
    return out, err


def migrate(path, source, target, *options, status=0, given=None):
    """Runs it to its end; the report."""
    ended(begin(path, source, target, *options), status, given)
    with open(os.path.join(path, "report.json")) as file:
        return json.load(file)


def refused(path, source, target, *options):
    """The line by which it says what is wrong."""
    out, err = ended(begin(path, source, target, *options), 2)
    line = err.splitlines()[-1]
    assert line.startswith("fern: ") and "panicked" not in err, err
    return line


def notes(report):
    return {note["what"]: note["why"] for note in report["notTakenOver"]}


def documents(client, name):
    database, collection = name.split(".", 1)
    return list(client[database][collection].find(sort=[("_id", 1)]))


def same(one, other, *names):
    for name in names:
        here, there = documents(one, name), documents(other, name)
        assert here == there, f"{name}: {len(here)} and {len(there)} documents"


class Load:
    """Clients that insert, change and remove, exchange values of a unique index, and rename and drop collections."""

    def __init__(self, server):
        self.server, self.stop, self.count, self.failed = server, threading.Event(), 0, []
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(2)]

    def run(self, number):
        try:
            with self.server.client() as client:
                chance = random.Random(number)
                for n in itertools.count():
                    if self.stop.is_set():
                        return
                    self.step(client.shop, f"{number}-{n}", number, n, chance)
                    self.count += 1
                    time.sleep(0.002)
        except PyMongoError as error:
            self.failed.append(error)

    def step(self, shop, key, number, n, chance):
        orders = shop[f"c{chance.randrange(3)}"]
        orders.insert_one({"_id": key, "a": [1, 2, 3], "d": {"e": n}})
        orders.update_one({"_id": key}, {"$set": {"d.e": n + 1}, "$push": {"a": n}})
        orders.update_one({"_id": chance.randrange(5000)}, {"$set": {"n": n}})
        if n % 3 == 0:
            orders.delete_one({"_id": chance.randrange(5000)})
        if n % 5 == 0:
            self.exchange(shop, number * 10 + chance.randrange(9))
        if n % 40 == 20:
            shop[f"temporary{number}"].insert_many([{"_id": i, "n": n} for i in range(20)])
        if n % 40 == 30:
            shop[f"temporary{number}"].rename(f"renamed{number}", dropTarget=True)
        if n % 120 == 119:
            shop[f"renamed{number}"].drop()
        if n == 300:
            shop.c1.create_index("d.e", name="late")

    def exchange(self, shop, one):
        """Two seats change their guests; each guest has one seat at any time."""
        seats, (a, b) = shop.seats, (one, one + 1)
        guests = {seat["_id"]: seat["guest"] for seat in seats.find({"_id": {"$in": [a, b]}})}
        seats.update_one({"_id": a}, {"$set": {"guest": f"nobody {a}"}})
        seats.update_one({"_id": b}, {"$set": {"guest": guests[a]}})
        seats.update_one({"_id": a}, {"$set": {"guest": guests[b]}})

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        assert not self.failed, self.failed

    def __exit__(self, *error):
        self.end()


def fill(client):
    shop = client.shop
    for name in ("c0", "c1", "c2"):
        shop[name].insert_many([{"_id": i, "n": 0, "text": "x" * 300} for i in range(5000)])
    # More than a reader takes at once: it is split.
    client.large.things.insert_many([{"_id": i, "text": "y" * 200} for i in range(60000)])
    client.large.things.insert_many([{"_id": value} for value in
                                     (2.5, "a", None, b"x", {"a": 1}, bson.ObjectId(), True, bson.MinKey(), bson.MaxKey())])
    shop.c0.create_index([("n", 1), ("_id", -1)], name="n_id")
    shop.seats.create_index("guest", unique=True)
    shop.seats.insert_many([{"_id": i, "guest": f"guest {i}"} for i in range(20)])
    shop.create_collection("words", collation={"locale": "en", "strength": 2},
                           validator={"n": {"$gte": 0}}, validationAction="warn")
    shop.words.insert_one({"_id": "A", "n": -1, "t": bson.Timestamp(7, 1), "d": bson.Decimal128("1.50")})
    shop.create_collection("log", capped=True, size=1 << 20)
    shop.log.insert_many([{"n": i} for i in range(100)])
    shop.create_collection("first", viewOn="c0", pipeline=[{"$match": {"_id": {"$lt": 5}}}])


def state_of(path):
    for name in os.listdir(path):
        if name.endswith(".json") and name != "report.json":
            with open(os.path.join(path, name)) as file:
                return json.load(file)
    return None


def copied(path):
    """Documents that the state says are at the target."""
    state = state_of(path) or {"collections": {}}
    return sum(part["documents"] for one in state["collections"].values() for part in one["ranges"])


def a_set_under_load_is_followed_through_kills_and_comes_back():
    with folder() as path, Fernd(*MEMBER) as source, Fernd("--cacheSize", "64M") as target:
        with source.client() as client, target.client() as there:
            fill(client)
            ends = (uri(source, options="?directConnection=true"), uri(target))
            with Load(source) as load:
                reached = 0
                for kill in range(3):
                    # Slow enough that the copy is under way: twice; the third kill is of one that follows.
                    rate = ("--throttle", "3MB") if kill < 2 else ()
                    process = begin(path, *ends, "--follow", *rate)
                    if kill < 2:
                        wait_until(lambda: copied(path) > reached, "nothing is copied")
                        time.sleep(random.random())
                    else:
                        time.sleep(6)
                    assert process.poll() is None, process.communicate()
                    process.kill()
                    process.communicate()
                    assert copied(path) >= reached
                    reached = copied(path)
                assert reached > 60000, reached
                # Told to end while the load goes on: both sides are equal at one time.
                token = state_of(path)["token"]
                process = begin(path, *ends, "--follow")
                wait_until(lambda: state_of(path)["token"] != token, "no change is taken over")
                time.sleep(2)
                before = load.count
                process.send_signal(signal.SIGINT)
                out, err = ended(process)
                assert "DIFFERENT" not in out and out.count("equal") >= 7, out + err
                assert load.count > before, "the load went on"
            report = migrate(path, *ends, "--follow", "--untilQuiet", "2")
            assert report["equal"] and not report["documentsRefused"], report
            print(f"  {load.count} steps of the load; the last call: {report['changesTakenOver']} changes")
            names = sorted(f"shop.{name}" for name in client.shop.list_collection_names())
            assert names == sorted(f"shop.{name}" for name in there.shop.list_collection_names())
            same(client, there, *names, "large.things")
            assert mongo_tools_test.info(client.shop, "type", "options") == mongo_tools_test.info(there.shop, "type", "options")
            for name in client.shop.list_collection_names(filter={"type": "collection"}):
                assert client.shop[name].index_information() == there.shop[name].index_information(), name
                validate(there.shop[name])
            natural = [("$natural", 1)]
            assert list(client.shop.log.find(sort=natural)) == list(there.shop.log.find(sort=natural))
            # The way back, from a server without a change stream.
            with folder() as other_path, Fernd() as back, back.client() as last:
                report = migrate(other_path, uri(target), uri(back))
                assert report["equal"] and "no change stream" in notes(report)["the source"], report
                same(client, last, *names, "large.things")


def what_is_copied_twice_is_there_once():
    with folder() as path, Fernd() as source, Fernd() as target, source.client() as client, target.client() as there:
        client.shop.orders.insert_many([{"_id": i, "n": i} for i in range(1000)])
        migrate(path, uri(source), uri(target))
        # Without its state it does not know what is its own.
        shutil.rmtree(path)
        os.mkdir(path)
        line = refused(path, uri(source), uri(target))
        assert "has shop.orders already" in line and "--intoExisting" in line, line
        there.shop.orders.update_one({"_id": 7}, {"$set": {"n": "other"}})
        report = migrate(path, uri(source), uri(target), "--intoExisting")
        assert report["equal"] and report["documentsThereBefore"] == 1000, report
        # What the target has besides makes them unequal, and that is told.
        there.shop.orders.insert_one({"_id": "more"})
        report = migrate(path, uri(source), uri(target), status=1)
        assert not report["equal"] and report["compared"][0]["target"]["documents"] == 1001, report
        report = migrate(path, uri(source), uri(target), "--verify", "false")
        assert report["compared"] is None
        with folder() as other:
            line = refused(other, uri(source), uri(target), "--state", os.path.join(path, "nothing", "s.json"))
        state = next(name for name in os.listdir(path) if name.endswith(".json") and name != "report.json")
        line = refused(path, uri(target), uri(source), "--state", state)
        assert "it is of a migration from" in line, line


def collections_that_arise_while_it_begins_lose_nothing():
    with Fernd(*MEMBER) as source, Fernd() as target, source.client() as here, target.client() as there:
        for turn in range(4):
            database, over = f"w{turn}", threading.Event()
            here[database].first.insert_one({"_id": 0})

            def write(number, database=database, over=over):
                with source.client() as client:
                    for n in itertools.count():
                        if over.is_set():
                            return
                        client[database][f"c{n % 40}"].insert_one({"_id": n * 10 + number})

            writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
            with folder() as path:
                call = begin(path, uri(source), uri(target), "--include", f"{database}.*", "--follow", "--untilQuiet", "2",
                             "--verify", "false")
                time.sleep(0.02 * turn)
                for writer in writers:
                    writer.start()
                time.sleep(1)
                over.set()
                for writer in writers:
                    writer.join()
                ended(call)
            same(here, there, *(f"{database}.c{n}" for n in range(40)))


def a_target_that_is_killed_keeps_what_was_dropped_and_made():
    with Fernd(*MEMBER) as source, Fernd() as target, folder() as path, source.client() as here:
        here.keep.one.insert_one({"_id": 1})
        over = threading.Event()

        def write():
            chance = random.Random(1)
            with source.client() as client:
                for n in itertools.count():
                    if over.is_set():
                        return
                    collection = client.shop[f"d{chance.randrange(6)}"]
                    what = chance.random()
                    if what < 0.7:
                        collection.insert_one({"_id": n})
                    elif what < 0.95:
                        collection.drop()
                    else:
                        client.drop_database("shop")
                    time.sleep(0.005)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for turn in range(8):
                call = begin(path, uri(source), uri(target), "--follow", "--verify", "false")
                time.sleep(1 + 0.2 * turn)
                target.kill()
                target.start()
                call.kill()
                _, err = call.communicate()
                assert "already" not in err, err
        finally:
            over.set()
            writer.join()
        assert migrate(path, uri(source), uri(target), "--follow", "--untilQuiet", "2")["equal"]


def patterns_choose_collections():
    with folder() as path, Fernd() as source, Fernd() as target, source.client() as client, target.client() as there:
        for name in ("shop.orders", "shop.old_orders", "shop.logs", "other.things"):
            database, collection = name.split(".")
            client[database][collection].insert_one({"_id": 1})
        migrate(path, uri(source), uri(target), "--include", "shop.*", "--exclude", "*.old*", "--exclude", "shop.l*")
        assert "other" not in there.list_database_names()
        assert there.shop.list_collection_names() == ["orders"]


def other_patterns_need_another_state():
    with Fernd(*MEMBER) as source, Fernd() as target, folder() as path, source.client() as here:
        here.shop.one.insert_one({"_id": 1})
        here.other.two.insert_one({"_id": 1})
        migrate(path, uri(source), uri(target), "--include", "shop.*")
        line = refused(path, uri(source), uri(target))
        assert "other --include or --exclude" in line and "--state FILE" in line, line
        migrate(path, uri(source), uri(target), "--include", "shop.*")
        migrate(path, uri(source), uri(target), "--include", "other.*", "--state", "other.json")


def compressed(path):
    for base, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(base, name), "rb") as plain, gzip.open(os.path.join(base, name + ".gz"), "wb") as packed:
                packed.write(plain.read())
            os.remove(os.path.join(base, name))


def a_dump_of_tokumx_is_taken_as_it_is():
    """Nothing has to be taken out of it first."""
    of_id = {"key": {"_id": 1}, "unique": True, "name": "_id_", "clustering": True}
    primary = {"key": {"time": 1, "_id": 1}, "unique": True, "name": "primaryKey", "clustering": True}
    prices = [{"_id": i, "time": i % 50, "product": i % 10, "text": "x" * 50} for i in range(1000)]
    for is_compressed in (False, True):
        with folder() as path, folder() as dump, Fernd() as target, target.client() as there:
            mongo_tools_test.dumped(dump, "shop.plain", [{"_id": i} for i in range(10)], {}, of_id)
            mongo_tools_test.dumped(dump, "shop.prices", prices,
                                    {"primaryKey": {"time": 1, "_id": 1}, "partitioned": True, "compression": "quicklz"},
                                    primary, of_id, {"key": {"product": 1, "time": -1}, "name": "p", "clustering": True,
                                                     "background": True, "dropDups": True})
            mongo_tools_test.dumped(dump, "shop.events", [{"_id": i} for i in range(10)],
                                    {"capped": True, "size": 65536, "max": 100}, of_id)
            # What has no equal here.
            mongo_tools_test.dumped(dump, "shop.places", [{"_id": 1, "pos": [1, 2]}], {"noPadding": True}, of_id,
                                    {"key": {"pos": "geoHaystack", "kind": 1}, "name": "hay", "bucketSize": 1},
                                    {"key": {"kind": 1}, "name": "k", "sparse": True, "paddingFactor": 2})
            mongo_tools_test.dumped(dump, "shop.100%25 real", [{"_id": 1}], {}, of_id)
            if is_compressed:
                compressed(dump)
            report = migrate(path, dump, uri(target))
            assert report["equal"] and len(report["compared"]) == 5, report
            told = notes(report)
            assert "noPadding" in told["shop.places, option noPadding"], told
            assert told["shop.places, index hay"], told
            assert "paddingFactor" in told["shop.places, index k, option paddingFactor"], told
            shop = there.shop
            assert sorted(shop.list_collection_names()) == ["100% real", "events", "places", "plain", "prices"]
            assert shop.places.index_information()["k"]["sparse"] is True
            shown = {one["name"]: one["options"] for one in shop.list_collections()}
            assert shown["prices"]["partitioned"] and shown["prices"]["compression"] == "quicklz", shown
            assert list(shop.prices.index_information()) == ["primaryKey", "_id_", "p"]
            assert shown["events"]["capped"] and shown["events"]["max"] == 100
            validate(shop.prices)


def a_dump_that_was_cut_off_is_told():
    with folder() as path, folder() as dump, Fernd() as target, target.client() as there:
        mongo_tools_test.dumped(dump, "shop.plain", [{"_id": i} for i in range(1000)], {})
        file = os.path.join(dump, "shop", "plain.bson")
        whole = open(file, "rb").read()
        with open(file, "wb") as cut:
            cut.write(whole[:-5])
        line = refused(path, dump, uri(target))
        assert "plain.bson" in line and "cut off" in line, line
        compressed_file = file + ".gz"
        os.remove(file)
        for damaged in (gzip.compress(whole)[:-9], whole):
            with open(compressed_file, "wb") as cut:
                cut.write(damaged)
            line = refused(path, dump, uri(target), "--intoExisting", "--state", "compressed.json")
            assert "plain.bson.gz" in line, line
        os.remove(compressed_file)
        # With the whole file it goes on.
        with open(file, "wb") as again:
            again.write(whole)
        assert migrate(path, dump, uri(target))["equal"]
        assert there.shop.plain.count_documents({}) == 1000
        assert "no dump in it" in refused(path, path, uri(target), "--state", "other.json")
        assert "No such file" in refused(path, "/no/such/place", uri(target))


def a_dump_of_mongodump_of_today_is_taken():
    if not shutil.which("go"):
        print("  not run: there is no Go to build mongodump with")
        return
    with folder() as path, folder() as dump, Fernd() as source, Fernd() as target:
        with source.client() as client, target.client() as there:
            mongo_tools_test.fill(client)
            for options in (), ("--gzip",):
                mongo_tools_test.tool("mongodump", "--port", str(source.port), "--out", dump, *options)
                report = migrate(path, dump, uri(target), "--users")
                assert report["equal"], report
                mongo_tools_test.same(client, there)
                for name in ("shop", "other"):
                    there.drop_database(name)
                there.admin.command("dropAllUsersFromDatabase", 1)
                shutil.rmtree(dump)
                shutil.rmtree(path)
                os.mkdir(path)
            os.mkdir(dump)


def a_server_of_2013_is_read_by_its_own_messages():
    with folder() as path, Fernd() as behind, Fernd() as target, behind.client() as client, target.client() as there:
        shop = client.shop
        shop.command({"create": "prices", "primaryKey": {"time": 1, "_id": 1}, "partitioned": True})
        shop.command("addPartition", "prices", newMax={"time": 10, "_id": bson.MaxKey()})
        shop.prices.insert_many([{"_id": i, "time": 11 + i % 9} for i in range(100)])
        shop.orders.insert_many([{"_id": i, "text": "x" * 500} for i in range(20000)])
        shop.orders.insert_many([{"_id": value} for value in (2.5, "a", None, bson.ObjectId(), bson.MinKey())])
        shop.orders.create_index([("text", 1), ("n", -1)], name="t", sparse=True)
        shop.create_collection("log", capped=True, size=1 << 16)
        shop.log.insert_many([{"n": i} for i in range(100)])
        people = {("admin", "boss"): "secret", ("shop", "clerk"): "pencil"}
        with OldServer(behind, people, lose_cursors=True) as source:
            line = refused(path, uri(source), uri(target))
            assert "unauthorized" in line, line
            line = refused(path, uri(source, "boss:wrong@"), uri(target))
            assert "the login of boss@admin failed" in line and "wrong" not in line, line
            # Killed while it copies, it goes on behind the last document.
            process = begin(path, uri(source, "boss:secret@"), uri(target), "--throttle", "4MB", "--parallel", "1")
            wait_until(lambda: copied(path) > 0, "nothing is copied")
            process.kill()
            process.communicate()
            report = migrate(path, uri(source, "boss:secret@"), uri(target), "--users")
            assert report["equal"] and source.lost == 3, (report, source.lost)
            assert report["documentsCopied"] < 20105, report
            assert source.opcodes == {OP_QUERY, OP_GET_MORE}, source.opcodes
            assert "TokuMX 2.0.2" in notes(report), report
        same(client, there, "shop.prices", "shop.orders", "shop.log")
        assert there.shop.command("getPartitionInfo", "prices")["numPartitions"] == 2
        assert there.shop.orders.index_information()["t"]["sparse"] is True
        assert list(there.shop.prices.index_information()) == ["primaryKey", "_id_"]
        made = {user["_id"]: user["credentials"] for user in there.admin["system.users"].find()}
        assert set(made) == {"admin.boss", "shop.clerk"} and "SCRAM-SHA-1" in made["shop.clerk"], made


def the_old_messages_can_be_asked_for():
    with folder() as path, Fernd() as source, Fernd() as target, source.client() as client, target.client() as there:
        client.shop.orders.insert_many([{"_id": i, "text": "x" * 500} for i in range(5000)])
        client.shop.create_collection("first", viewOn="orders", pipeline=[{"$match": {"_id": {"$lt": 5}}}])
        assert migrate(path, uri(source), uri(target), "--oldProtocol")["equal"]
        same(client, there, "shop.orders", "shop.first")


def users_come_along_with_their_passwords():
    with folder() as path, Fernd("--auth") as source, Fernd("--auth") as target:
        for server in (source, target):
            with server.client() as client:
                client.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        with source.client(username="root", password="pencil") as client:
            client.shop.orders.insert_many([{"_id": i} for i in range(10)])
            client.shop.command("createRole", "counts", roles=[],
                                privileges=[{"resource": {"db": "shop", "collection": "orders"}, "actions": ["find"]}])
            client.shop.command("createUser", "clerk", pwd="quill", roles=["counts"])
            client.shop.command("createUser", "reader", pwd="glasses", roles=["read"])
        line = refused(path, uri(source), uri(target, "root:pencil@"))
        assert "needs the role backup" in line, line
        line = refused(path, uri(source, "root:wrong@"), uri(target, "root:pencil@"))
        assert "the login failed" in line and "wrong" not in line.replace("is wrong", ""), line
        line = refused(path, uri(source, "root:pencil@"), uri(target, "root:wrong@"))
        assert "the login failed" in line, line
        line = refused(path, uri(source, "root:pencil@"), uri(target))
        assert "restore" in line, line
        arguments = ("--sourceUsername", "root", "--targetUsername", "root")
        report = migrate(path, uri(source), uri(target), "--users", *arguments, given="pencil\npencil\n")
        assert report["equal"], report
        # By the old messages, too, whose login is SCRAM-SHA-1.
        other = os.path.join(path, "old")
        os.mkdir(other)
        assert "the login of root@admin failed" in refused(other, uri(source, "root:wrong@"), uri(target, "root:pencil@"),
                                                           "--oldProtocol")
        report = migrate(other, uri(source, "root:pencil@"), uri(target, "root:pencil@"), "--oldProtocol", "--intoExisting")
        assert report["equal"] and report["documentsThereBefore"] == 10, report
        with target.client(username="clerk", password="quill", authSource="shop") as client:
            assert client.shop.orders.count_documents({}) == 10
            fails(13, lambda: client.shop.orders.insert_one({}))


def what_cannot_be_done_is_told_in_a_line():
    with folder() as path, Fernd() as source, source.client() as client:
        client.shop.orders.insert_one({"_id": 1})
        nobody = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=500"
        assert "it cannot be reached" in refused(path, nobody, uri(source))
        assert "it cannot be reached" in refused(path, uri(source), nobody)
        line = refused(path, uri(source), uri(source))
        assert "are the same server" in line, line
        call = subprocess.run([FERN, "migrate", uri(source), nobody, "--report", "none/report.json"], cwd=path,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert call.returncode == 2 and "none/report.json: there is no such directory" in call.stderr, call.stderr
        with Fernd() as target, target.client() as there:
            line = refused(path, uri(source), uri(target), "--include", "shops.*")
            assert "--include shops.* fits no collection" in line, line
            directory = os.path.join(path, "directory")
            os.mkdir(directory)
            line = refused(path, uri(source), uri(target), "--state", directory)
            assert directory in line, line
            there.shop.orders.insert_one({"_id": 2})
            line = refused(path, uri(source), uri(target))
            assert "has shop.orders already" in line, line
            there.shop.drop_collection("orders")
            line = refused(path, uri(source), uri(target), "--follow")
            assert "needs a source with change streams" in line, line
            assert "10MB" in subprocess.run([FERN, "migrate", "a", "b", "--throttle", "fast"], capture_output=True, text=True,
                                            stdin=subprocess.DEVNULL).stderr


def a_document_that_is_refused_is_told():
    """The target has a rule of its own that the source's documents do not obey."""
    with folder() as path, Fernd() as source, Fernd() as target, source.client() as client, target.client() as there:
        client.shop.people.insert_many([{"_id": i, "name": f"n{i % 15}"} for i in range(30)])
        there.shop.people.create_index("name", unique=True)
        report = migrate(path, uri(source), uri(target), "--intoExisting", status=1)
        assert report["documentsRefused"] == {"shop.people": 15}, report
        assert sum("document" in what for what in notes(report)) == 10, report
        assert there.shop.people.count_documents({}) == 15


TESTS = [
    a_set_under_load_is_followed_through_kills_and_comes_back,
    what_is_copied_twice_is_there_once,
    collections_that_arise_while_it_begins_lose_nothing,
    a_target_that_is_killed_keeps_what_was_dropped_and_made,
    patterns_choose_collections,
    other_patterns_need_another_state,
    a_dump_of_tokumx_is_taken_as_it_is,
    a_dump_that_was_cut_off_is_told,
    a_dump_of_mongodump_of_today_is_taken,
    a_server_of_2013_is_read_by_its_own_messages,
    the_old_messages_can_be_asked_for,
    users_come_along_with_their_passwords,
    what_cannot_be_done_is_told_in_a_line,
    a_document_that_is_refused_is_told,
]


if __name__ == "__main__":
    run_tests("migrate", TESTS)
