"""The audit log of `fernd`: each kind of event once, filters, rotation, and that nothing is done untold."""

import datetime
import json
import os
import shutil
import socket
import subprocess
import tempfile

import bson
import pymongo
from fernd import Fernd, run_tests, wait_until
from pymongo.errors import OperationFailure, PyMongoError


def client(server, user=None, password="pencil", database="admin", **options):
    named = {"username": user, "password": password, "authSource": database} if user else {}
    return pymongo.MongoClient("127.0.0.1", server.port, directConnection=True, serverSelectionTimeoutMS=20000, **named, **options)


def refused(action):
    try:
        action()
    except OperationFailure as error:
        return error.code
    raise AssertionError("it was done")


def events(server, path=None):
    with open(path or os.path.join(server.dbpath, "auditLog.json")) as file:
        return [json.loads(line) for line in file]


def kinds(all_events):
    return [event["atype"] for event in all_events]


def everything(root):
    """Does what is told, each thing once."""
    db = root.shop
    db.create_collection("c")
    db.c.create_index("a", name="a")
    db.c.drop_index("a")
    root.admin.command("renameCollection", "shop.c", to="shop.d")
    db.d.drop()
    db.e.insert_one({})
    root.drop_database("shop")
    root.admin.command("logApplicationMessage", "the shop is closed")
    db.command("createRole", "r", roles=[], privileges=[])
    db.command("updateRole", "r", roles=["read"])
    db.command("grantRolesToRole", "r", roles=["readWrite"])
    db.command("revokeRolesFromRole", "r", roles=["readWrite"])
    privilege = {"resource": {"db": "shop", "collection": "c"}, "actions": ["find"]}
    db.command("grantPrivilegesToRole", "r", privileges=[privilege])
    db.command("revokePrivilegesFromRole", "r", privileges=[privilege])
    db.command("createUser", "u", pwd="MARKEDSECRET", roles=[])
    db.command("updateUser", "u", pwd="MARKEDSECRET2")
    db.command("grantRolesToUser", "u", roles=["r"])
    db.command("revokeRolesFromUser", "u", roles=["r"])
    db.command("dropUser", "u")
    db.command("dropAllUsersFromDatabase", 1)
    db.command("dropRole", "r")
    db.command("dropAllRolesFromDatabase", 1)
    root.admin.command("logRotate", 1)


# In the order of `everything`.
TOLD = ["createDatabase", "createCollection", "createIndex", "dropIndex", "renameCollection", "dropCollection", "createDatabase", "createCollection",
        "dropDatabase", "applicationMessage", "createRole",
        "updateRole", "grantRolesToRole", "revokeRolesFromRole", "grantPrivilegesToRole", "revokePrivilegesFromRole",
        "createUser", "updateUser", "grantRolesToUser", "revokeRolesFromUser", "dropUser", "dropAllUsersFromDatabase",
        "dropRole", "dropAllRolesFromDatabase"]


def each_kind_is_told_once_with_who_and_what():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "audit.json")
        with Fernd("--auth", "--auditDestination", "file", "--auditPath", path) as server:
            with client(server) as nobody:
                nobody.admin.command("createUser", "root", pwd="pencil", roles=["root"])
                assert refused(lambda: nobody.shop.c.find_one()) == 13
            with client(server, "root") as root:
                everything(root)
            with client(server, "root", "wrong") as wrong:
                assert refused(lambda: wrong.admin.command("ping")) == 18
            rotated = [name for name in os.listdir(folder) if name != "audit.json"]
            assert len(rotated) == 1, os.listdir(folder)
            told = events(server, os.path.join(folder, rotated[0]))
            assert os.stat(path).st_mode & 0o077 == 0
            assert server.stop() == 0
            rest = events(server, path)
        assert kinds(told)[0] == "startup", kinds(told)
        assert "createUser" in kinds(event for event in told if not event["users"]), kinds(told)
        first = next(event for event in told if event["atype"] == "localhostException")
        assert (first["param"], first["users"]) == ({"command": "createUser", "db": "admin"}, []), first
        metadata = next(event for event in told if event["atype"] == "clientMetadata")["param"]
        assert metadata["clientMetadata"]["driver"]["name"].startswith("PyMongo") and metadata["localEndpoint"]["ip"] == "127.0.0.1", metadata
        message = next(event for event in told if event["atype"] == "applicationMessage")
        assert message["param"] == {"msg": "the shop is closed"}, message
        made = [event["param"]["ns"] for event in told if event["atype"] == "createDatabase"]
        assert made == ["admin", "shop", "shop"], made
        check = next(event for event in told if event["param"].get("command") == "find")
        assert check["result"] == 13 and check["param"]["ns"] == "shop.c" and check["param"]["command"] == "find", check
        assert check["users"] == [] and check["remote"]["ip"] == "127.0.0.1", check
        by_root = [event for event in told if event["users"] == [{"user": "root", "db": "admin"}]]
        seen = [kind for kind in kinds(by_root) if kind != "authenticate"]
        assert seen == TOLD, seen
        assert all(event["result"] == 0 and event["ts"] for event in by_root)
        assert any(role == {"role": "root", "db": "admin"} for role in by_root[-1]["roles"])
        change = next(event for event in by_root if event["atype"] == "updateUser")
        assert change["param"] == {"user": "u", "db": "shop", "passwordChanged": True}, change
        index = next(event for event in by_root if event["atype"] == "createIndex")
        assert (index["param"]["ns"], index["param"]["indexName"]) == ("shop.c", "a"), index
        rest = [event for event in rest if event["atype"] != "clientMetadata"]
        assert kinds(rest)[0] == "rotateLog" and kinds(rest)[-1] == "shutdown", kinds(rest)
        failed = [event for event in rest if event["atype"] == "authenticate"]
        # Whoever looks at the server as the test ends logs in, too.
        assert [event["result"] for event in failed if event["result"]] == [18] and failed[0]["param"]["user"] == "root", failed
        assert "MARKEDSECRET" not in json.dumps(told + rest)


def what_is_made_without_a_word_of_it_is_told():
    with Fernd("--auth", "--auditDestination", "file") as server:
        with client(server) as nobody:
            nobody.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        with client(server, "root") as root:
            db = root.shop
            before = len(events(server))

            def told(action):
                nonlocal before
                action()
                new = [event for event in events(server)[before:] if event["atype"] not in ("authenticate", "authCheck", "clientMetadata")]
                before = len(events(server))
                assert all(event["users"] == [{"user": "root", "db": "admin"}] for event in new), new
                return [(event["atype"], event["param"].get("ns") or event["param"].get("new")) for event in new]

            assert told(lambda: db.a.insert_one({"_id": 1})) == [("createDatabase", "shop"), ("createCollection", "shop.a")]
            assert told(lambda: db.a.insert_one({"_id": 2})) == []
            assert told(lambda: db.b.update_one({"_id": 1}, {"$set": {"x": 1}}, upsert=True)) == [("createCollection", "shop.b")]
            assert told(lambda: db.c.create_index("x")) == [("createCollection", "shop.c"), ("createIndex", "shop.c")]
            assert told(lambda: db.a.aggregate([{"$merge": "d"}])) == [("createCollection", "shop.d")]
            made = told(lambda: db.a.aggregate([{"$out": "e"}]))
            assert [kind for kind, _ in made] == ["createCollection", "renameCollection"] and made[1][1] == "shop.e", made
            entry = lambda o: {"op": "c", "ns": "shop.$cmd", "o": o}
            apply = lambda *entries: root.admin.command("applyOps", list(entries))
            assert told(lambda: apply(entry({"create": "f"}), entry({"drop": "a"}))) == [
                ("createCollection", "shop.f"), ("dropCollection", "shop.a")]
            # Documents that expire are not told of, as in MongoDB.
            db.g.create_index("at", expireAfterSeconds=0)
            db.g.insert_one({"at": datetime.datetime(2000, 1, 1)})
            before = len(events(server))
            root.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
            wait_until(lambda: db.g.count_documents({}) == 0, "nothing expires")
            assert told(lambda: None) == []


def what_fails_is_told_with_its_code():
    with Fernd("--auditDestination", "file") as server, client(server) as nobody:
        nobody.shop.c.insert_one({})
        assert refused(lambda: nobody.admin.command("renameCollection", "shop.no", to="shop.d")) == 26
        failed = events(server)[-1]
        assert (failed["atype"], failed["result"], failed["param"]["old"]) == ("renameCollection", 26, "shop.no"), failed


def a_filter_leaves_out_what_it_does_not_match():
    filter = "{ atype: { $in: ['createUser', 'authCheck'] }, 'param.db': { $ne: 'other' } }"
    with Fernd("--auth", "--auditDestination", "file", "--auditFilter", filter) as server:
        with client(server) as nobody:
            nobody.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        with client(server, "root") as root:
            root.other.command("createUser", "u", pwd="p", roles=[])
            root.shop.create_collection("c")
            assert [kind for kind in kinds(events(server)) if kind != "authCheck"] == ["createUser"]
            root.admin.command("setParameter", 1, auditAuthorizationSuccess=True)
            root.shop.c.find_one({"_id": 4711})
            last = next(event for event in events(server) if event["param"].get("command") == "find")
            assert (last["atype"], last["result"], last["param"]["args"]["filter"]) == ("authCheck", 0, {"_id": 4711}), last


def each_log_is_rotated_by_its_name():
    with tempfile.TemporaryDirectory() as folder:
        log, audit = os.path.join(folder, "log"), os.path.join(folder, "audit")
        with Fernd("--auditDestination", "file", "--auditPath", audit, "--logpath", log) as server, client(server) as nobody:
            def files():
                return [sum(name.startswith(what) for name in os.listdir(folder)) for what in ("log", "audit")]

            assert files() == [1, 1]
            for which, expected in (("server", [2, 1]), ("audit", [2, 2])):
                nobody.admin.command("logRotate", which)
                assert files() == expected, (which, os.listdir(folder))
            assert refused(lambda: nobody.admin.command("logRotate", "nosuch")) == 4


def bson_can_be_read_back():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "audit.bson")
        with Fernd("--auditDestination", "file", "--auditFormat", "BSON", "--auditPath", path) as server:
            with client(server) as nobody:
                nobody.shop.create_collection("c")
        with open(path, "rb") as file:
            told = bson.decode_all(file.read())
        told = [event for event in told if event["atype"] != "clientMetadata"]
        assert [event["atype"] for event in told] == ["startup", "createDatabase", "createCollection", "shutdown"], told
        assert told[1]["uuid"].subtype == 4 if hasattr(told[1]["uuid"], "subtype") else told[1]["uuid"]


def where_it_cannot_be_told_nothing_is_done():
    if not os.path.exists("/dev/full"):
        return
    folder = tempfile.mkdtemp()
    server = Fernd("--auditDestination", "file", "--auditPath", os.path.join(folder, "audit.json"))
    # A file system of one page: the next event does not fit.
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", folder], capture_output=True)
    if done.returncode != 0:
        server.remove()
        shutil.rmtree(folder)
        print("    (no file system can be mounted here: left out)")
        return
    try:
        server.start()
        made = 0
        with client(server, retryWrites=False) as nobody:
            try:
                while made < 1000:
                    nobody.shop.create_collection(f"c{made}")
                    made += 1
            except (OperationFailure, PyMongoError):
                pass
        assert 0 < made < 1000, made
        assert server.process.wait(60) == 14, server.tail()
        assert "audit log cannot be written" in server.tail(1 << 20)
        told = [event["param"]["ns"] for event in events(server, os.path.join(folder, "audit.json"))
                if event["atype"] == "createCollection"] if made else []
        # What was acknowledged was told.
        assert set(f"shop.c{at}" for at in range(made)) <= set(told), (made, told)
    finally:
        if server.is_running():
            server.kill()
        subprocess.run(["umount", folder], check=True)
        server.remove()
        shutil.rmtree(folder)


def where_that_is_said_the_server_goes_on_untold():
    """`auditFailureIsFatal: false`, and the machine's log as the place whose keeper goes away."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "log")

    def keeper():
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        taken.bind(path)
        taken.settimeout(20)
        return taken

    def told(taken, kind):
        while True:
            text = taken.recv(1 << 20).decode()
            head, event = text.split(": ", 1)
            assert head.startswith("<14>fernd["), text
            if json.loads(event)["atype"] == kind:
                return json.loads(event)

    def read_all(taken):
        """A log that is not read takes no more than a few events."""
        taken.setblocking(False)
        try:
            while taken.recv(1 << 20):
                pass
        except BlockingIOError:
            taken.settimeout(20)

    options = ("--auditDestination", "syslog", "--auditPath", path)
    try:
        taken = keeper()
        with Fernd(*options, "--setParameter", "auditFailureIsFatal=false") as server, client(server) as nobody:
            assert told(taken, "startup")["remote"] == {"isSystemUser": True}
            nobody.shop.create_collection("one")
            assert told(taken, "createCollection")["param"] == {"ns": "shop.one"}
            taken.close()
            os.unlink(path)
            nobody.shop.create_collection("two")
            assert "auditFailureIsFatal" in server.tail(1 << 20)
            taken = keeper()
            nobody.shop.create_collection("three")
            assert told(taken, "createCollection")["param"] == {"ns": "shop.three"}
            assert "can be written again" in server.tail(1 << 20)
        read_all(taken)
        server = Fernd(*options).start()
        try:
            read_all(taken)
            with client(server, retryWrites=False) as nobody:
                nobody.admin.command("ping")
                read_all(taken)
                nobody.shop.create_collection("one")
                taken.close()
                os.unlink(path)
                refused(lambda: nobody.shop.create_collection("two"))
            assert server.process.wait(60) == 14, server.tail()
        finally:
            if server.is_running():
                server.kill()
            server.remove()
    finally:
        taken.close()
        shutil.rmtree(folder)


def what_cannot_be_honoured_is_refused():
    for options in (["--auditDestination", "syslog", "--auditPath", "/no/such/socket"],
                    ["--auditDestination", "syslog", "--auditFormat", "BSON"], ["--auditPath", "/x"], ["--auditDestination", "console", "--auditFormat", "BSON"],
                    ["--auditDestination", "file", "--auditFilter", "{ $nosuch: 1 }"],
                    ["--auditDestination", "file", "--auditFilter", "no query"]):
        server = Fernd(*options)
        done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "audit" in done.stderr, (options, done.stderr)
        server.remove()


TESTS = [
    each_kind_is_told_once_with_who_and_what,
    what_is_made_without_a_word_of_it_is_told,
    what_fails_is_told_with_its_code,
    a_filter_leaves_out_what_it_does_not_match,
    each_log_is_rotated_by_its_name,
    bson_can_be_read_back,
    where_it_cannot_be_told_nothing_is_done,
    where_that_is_said_the_server_goes_on_untold,
    what_cannot_be_honoured_is_refused,
]


if __name__ == "__main__":
    run_tests("audit", TESTS)
