"""`fernd --auth` through PyMongo: logins, the first user, roles, what is taken away, what is not shown."""

import base64
import collections
import concurrent.futures
import contextlib
import json
import os
import pty
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import pymongo
from bson import Int64
from pymongo.errors import OperationFailure
from fernd import Fernd, Raw, fails, free_port, run_tests


def uri(server, user=None, password="pencil", database="admin", more=""):
    who = f"{user}:{password}@" if user else ""
    return f"mongodb://{who}127.0.0.1:{server.port}/?authSource={database}&serverSelectionTimeoutMS=20000{more}"


def client(server, *arguments, **named):
    return pymongo.MongoClient(uri(server, *arguments, **named))


def with_root(server):
    with client(server) as nobody:
        nobody.admin.command("createUser", "root", pwd="pencil", roles=["root"])
    return client(server, "root")


def the_first_user_is_made_by_exactly_one_of_fifty():
    with Fernd("--auth") as server:
        def make(at):
            with client(server) as nobody:
                try:
                    nobody.admin.command("createUser", f"u{at}", pwd="pencil", roles=["root"])
                    return f"u{at}"
                except OperationFailure as error:
                    assert error.code == 13, error
                    return None
        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            made = [name for name in pool.map(make, range(50)) if name]
        assert len(made) == 1, made
        with client(server, made[0]) as root:
            assert len(root.admin.command("usersInfo", 1)["users"]) == 1


def nothing_is_done_without_a_login():
    with Fernd("--auth") as server, with_root(server) as root, client(server) as nobody:
        root.d.c.insert_one({"_id": 1})
        assert nobody.admin.command("ping")["ok"] == 1
        assert nobody.admin.command("hello")["ok"] == 1
        for action in (lambda: nobody.d.c.find_one(), lambda: nobody.d.c.insert_one({}),
                       lambda: nobody.list_database_names(), lambda: nobody.admin.command("serverStatus"),
                       lambda: nobody.admin.command("createUser", "x", pwd="x", roles=["root"]),
                       lambda: nobody.admin.command("shutdown")):
            assert "requires authentication" in str(fails(13, action))


def every_mechanism_logs_in_and_wrong_ones_fail_alike():
    with Fernd("--auth") as server, with_root(server) as root:
        root.admin.command("createUser", "both", pwd="pencil", roles=[])
        root.d.command("createUser", "IX", pwd="IX", roles=["read"])
        for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256"):
            with client(server, "both", more=f"&authMechanism={mechanism}") as one:
                assert one.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"][0]["user"] == "both"
        # SASLprep makes one of the two.
        with client(server, "IX", "%E2%85%A8", "d", more="&authMechanism=SCRAM-SHA-256") as one:
            assert one.d.c.find_one() is None
        texts = set()
        for user, password, database in (("both", "wrong", "admin"), ("ghost", "pencil", "admin"), ("both", "pencil", "d")):
            with client(server, user, password, database) as one:
                texts.add(str(fails(18, lambda: one.admin.command("ping"))))
        assert len(texts) == 1, texts


def roles_let_and_keep():
    with Fernd("--auth") as server, with_root(server) as root:
        root.d.command("createUser", "reader", pwd="pencil", roles=["read"])
        root.d.command("createUser", "writer", pwd="pencil", roles=["readWrite"])
        with client(server, "writer", database="d") as writer, client(server, "reader", database="d") as reader:
            writer.d.c.insert_many([{"_id": i} for i in range(300)])
            assert reader.d.c.count_documents({}) == 300
            fails(13, lambda: reader.d.c.insert_one({}))
            fails(13, lambda: writer.e.c.insert_one({}))
            fails(13, lambda: writer.d.command("createUser", "x", pwd="x", roles=[]))
            fails(13, lambda: list(reader.d.c.aggregate([{"$lookup": {"from": {"db": "local", "coll": "oplog.rs"}, "pipeline": [], "as": "x"}}])))
            fails(13, lambda: list(reader.d.c.aggregate([{"$out": "x"}])))
            fails(13, lambda: list(reader.admin["system.users"].find()))
            fails(13, lambda: reader.admin.command("shutdown"))
            assert reader.list_database_names() == ["d"]
            with writer.start_session() as session, session.start_transaction():
                writer.d.c.delete_one({"_id": 0}, session=session)
            assert reader.d.c.count_documents({}) == 299


def what_is_taken_away_is_felt_at_once():
    with Fernd("--auth") as server, with_root(server) as root:
        root.d.c.insert_many([{"_id": i} for i in range(1000)])
        root.d.command("createUser", "u", pwd="pencil", roles=["read"])
        with client(server, "u", database="d", more="&maxPoolSize=1") as user:
            cursor = user.d.c.find(batch_size=10)
            next(cursor)
            root.d.command("revokeRolesFromUser", "u", roles=["read"])
            fails(13, lambda: list(cursor))
            fails(13, lambda: user.d.c.find_one())
            root.d.command("grantRolesToUser", "u", roles=["read"])
            assert user.d.c.find_one() is not None
            root.d.command("dropUser", "u")
            fails(13, lambda: user.d.c.find_one())


def a_thousand_connections_feel_what_is_taken_away():
    """By raw sockets, each logged in by itself: a driver would log in again, or keep fewer."""
    with Fernd("--auth") as server, with_root(server) as root, contextlib.ExitStack() as opened:
        root.d.c.insert_many([{"_id": i} for i in range(1000)])
        for name in ("dropped", "demoted", "untouched"):
            root.d.command("createUser", name, pwd="pencil", roles=["read"])
        names = ["dropped", "demoted"] * 495 + ["untouched"] * 10
        connections = [(name, opened.enter_context(Raw(server, name, "d"))) for name in names]
        cursors = {name: connection.ask("d", {"find": "c", "batchSize": 1})["cursor"]["id"]
                   for name, connection in reversed(connections)}
        firsts = {name: connection for name, connection in reversed(connections)}
        assert all(cursors.values()), cursors
        root.d.command("dropUser", "dropped")
        root.d.command("updateUser", "demoted", roles=[])
        for name, cursor in cursors.items():
            reply = firsts[name].ask("d", {"getMore": Int64(cursor), "collection": "c"})
            assert reply.get("code", 0) == (0 if name == "untouched" else 13), (name, reply)
        felt = collections.Counter()
        for name, connection in connections:
            felt[name, connection.ask("d", {"find": "c", "limit": 1}).get("code", 0)] += 1
        assert felt == {("dropped", 13): 495, ("demoted", 13): 495, ("untouched", 0): 10}, felt
        who = connections[0][1].ask("admin", {"connectionStatus": 1})["authInfo"]["authenticatedUsers"]
        assert who == [], who


def what_goes_beyond_its_needs_fails_its_test():
    """How the other tests learn of `permitMisses`: by asking, as an administrator if need be, and from the log."""
    with Fernd() as plain, Fernd("--auth") as server, with_root(server):
        assert plain.permit_misses() == 0 and server.permit_misses() == 0
    other = Fernd("--auth").start()
    with other.client() as first:
        first.admin.command("createUser", "other", pwd="other", roles=["root"])
    assert other.permit_misses() is None
    with open(other.log, "a") as log:
        log.write('{"s":"E","c":"ACCESS","id":9016776,"msg":"A command\'s needs do not name what it opens"}\n')
    try:
        other.stop()
        raise AssertionError("the log is not looked at")
    except RuntimeError as error:
        assert "the log tells of 1" in str(error), error
    other.remove()


def a_login_may_send_the_last_word_back():
    """The Java driver up to 3.12 sends the server's signature back where others send an empty payload."""
    with Fernd("--auth") as server, with_root(server), Raw(server) as connection:
        end = connection.log_in("root", "admin", "pencil", skips_empty=False)
        assert not end["done"] and end["payload"].startswith(b"v="), end
        last = {"saslContinue": 1, "conversationId": end["conversationId"], "payload": end["payload"]}
        reply = connection.ask("admin", last)
        assert reply["ok"] == 1 and reply["done"] and reply["payload"] == b"", reply
        who = connection.ask("admin", {"connectionStatus": 1})["authInfo"]["authenticatedUsers"]
        assert [user["user"] for user in who] == ["root"], who


def a_cursor_is_its_users():
    with Fernd("--auth") as server, with_root(server) as root:
        root.d.c.insert_many([{"_id": i} for i in range(100)])
        for name in ("one", "two"):
            root.d.command("createUser", name, pwd="pencil", roles=["readWrite"])
        with client(server, "one", database="d") as one, client(server, "two", database="d") as two:
            opened = one.d.command("find", "c", batchSize=1)["cursor"]["id"]
            fails(13, lambda: two.d.command("getMore", Int64(opened), collection="c"))
            assert two.d.command("killCursors", "c", cursors=[Int64(opened)])["cursorsKilled"] == []
            mine = two.admin.command({"currentOp": 1, "$ownOps": True})["inprog"]
            assert len(mine) == 1, mine
            fails(13, lambda: two.admin.command("currentOp"))


def users_and_rights_outlive_a_restart():
    with Fernd("--auth") as server:
        with with_root(server) as root:
            root.d.command("createUser", "u", pwd="pencil", roles=["read"])
        assert server.stop() == 0
        server.start()
        with client(server, "u", database="d") as user:
            assert user.d.c.find_one() is None
            fails(13, lambda: user.d.c.insert_one({}))
        with client(server) as nobody:
            fails(13, lambda: nobody.admin.command("createUser", "x", pwd="x", roles=["root"]))


def secrets_are_in_no_log():
    mark = "MARKEDSECRET"
    with Fernd("--auth", "--slowms", "0") as server, with_root(server) as root:
        root.d.command("createUser", "m", pwd=mark, roles=[])
        root.d.command("updateUser", "m", pwd=mark + "2")
        with client(server, "m", mark + "2", "d") as one:
            one.admin.command("ping")
        text = server.tail(1 << 20)
        assert "createUser" in text and mark not in text, "the log shows a password"


def the_status_port_asks_for_users_too():
    port = free_port()

    def get(path, user=None, password="pencil"):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
        if user:
            given = base64.b64encode(f"{user}:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {given}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    with Fernd("--auth", "--statusPort", str(port)) as server, with_root(server) as root:
        assert root.admin.command("getCmdLineOpts")["parsed"]["statusPort"] == port
        root.shop.orders.insert_one({"_id": 1})
        root.admin.command("createUser", "monitor", pwd="pencil", roles=["clusterMonitor"])
        root.admin.command("createUser", "old", pwd="pencil", roles=["clusterMonitor"], mechanisms=["SCRAM-SHA-1"])
        root.admin.command("createUser", "app", pwd="pencil", roles=["readWriteAnyDatabase"])
        root.admin.command("createUser", "far", pwd="pencil", roles=["clusterMonitor"],
                           authenticationRestrictions=[{"clientSource": ["192.0.2.7"]}])
        for path in ("/", "/metrics", "/api/now", "/api/collections", "/api/history?step=1"):
            for user, password, expected in ((None, "", 401), ("monitor", "wrong", 401), ("ghost", "pencil", 401),
                                             ("far", "pencil", 401), ("app", "pencil", 403), ("old", "pencil", 200),
                                             ("monitor", "pencil", 200)):
                status, text = get(path, user, password)
                assert status == expected, (path, user, status, text)
                assert expected == 200 or "orders" not in text and "fern_" not in text, text
        assert "shop.orders" in get("/api/collections", "monitor")[1]
        assert "fern_" in get("/metrics", "monitor")[1]
        now = json.loads(get("/api/now", "monitor")[1])
        assert now["operations"] and now["status"]["ok"] == 1, now
        # What is taken away is felt by the next request.
        root.admin.command("revokeRolesFromUser", "monitor", roles=["clusterMonitor"])
        assert get("/metrics", "monitor")[0] == 403
        root.admin.command("dropUser", "old")
        assert get("/metrics", "old")[0] == 401


def a_token_reads_the_figures_without_a_user():
    port = free_port()

    def get(path, token):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    token = "MARKEDTOKEN-0123456789abcdef"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "token")
        with open(path, "w") as file:
            file.write(token + "\n")
        options = ("--auth", "--statusPort", str(port), "--statusTokenFile", path)
        os.chmod(path, 0o644)
        open_to_others = Fernd(*options)
        done = subprocess.run(open_to_others.command(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "chmod 600" in done.stderr, done.stderr
        open_to_others.remove()
        os.chmod(path, 0o600)
        with Fernd(*options) as server, with_root(server) as root:
            status, text = get("/metrics", token)
            assert status == 200 and "fern_" in text, (status, text[:200])
            assert get("/metrics", token + "x")[0] == 401
            assert get("/metrics", "")[0] == 401
            for other in ("/", "/api/now", "/api/collections"):
                assert get(other, token)[0] == 401, other
            # It is in nothing that the server tells.
            for told in (root.admin.command("getCmdLineOpts"), root.admin.command("getLog", "global"), server.tail(1 << 20)):
                assert token not in str(told), told


def the_operators_tool_asks_for_the_password_and_does_not_show_it():
    fern = os.path.join(os.path.dirname(os.environ["FERND"]), "fern-client") if "FERND" in os.environ else None
    if not fern or not os.path.exists(fern):
        fern = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "target", "fast", "fern-client")
    with Fernd("--auth") as server, with_root(server) as root:
        root.d.command("createUser", "watcher", pwd="pen cil", roles=[{"role": "clusterMonitor", "db": "admin"}])
        address = f"mongodb://127.0.0.1:{server.port}/?directConnection=true"
        words = [fern, "stats", address, "--username", "watcher", "--authenticationDatabase", "d", "--lines", "--seconds", "2"]

        def by_pipe(text):
            done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout + done.stderr

        time.sleep(2)
        code, text = by_pipe("pen cil\n")
        assert code == 0 and "insert" in text and "no answer" not in text, text
        code, text = by_pipe("wrong\n")
        assert "no answer" in text and "Authentication failed" in text, text
        code, text = by_pipe("")
        assert code == 2 and "password" in text, text
        # At a terminal: it is asked for, and what is typed does not come back.
        master, slave = pty.openpty()
        process = subprocess.Popen(words, stdin=slave, stdout=subprocess.PIPE, stderr=slave, text=True, close_fds=True)
        os.close(slave)
        asked = b""
        while b": " not in asked:
            asked += os.read(master, 1000)
        assert b"password of watcher@d: " in asked, asked
        os.write(master, b"pencils\x7f\x7f\x7f\x7f cil\r")
        output = process.communicate(timeout=60)[0]
        assert process.returncode == 0 and "insert" in output, output
        shown = b""
        try:
            while more := os.read(master, 1000):
                shown += more
        except OSError:
            pass
        os.close(master)
        assert b"cil" not in shown and "cil" not in output, (shown, output)
        # Two users are one too many.
        twice = subprocess.run([fern, "stats", f"mongodb://a:b@127.0.0.1:{server.port}/", "--username", "c"], capture_output=True, text=True, timeout=60)
        assert twice.returncode == 2 and "leave out one" in twice.stderr, twice.stderr


def who_guesses_waits():
    """At both ports, which count together."""
    port = free_port()

    def status(user, password):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    with Fernd("--auth", "--statusPort", str(port)) as server, with_root(server) as root:
        root.admin.command("createUser", "m1", pwd="pencil", roles=["clusterMonitor"])
        root.admin.command("createUser", "m2", pwd="pencil", roles=["clusterMonitor"])
        assert status("m1", "pencil") == 200
        for _ in range(11):
            assert status("m1", "wrong") == 401
        began = time.monotonic()
        with client(server, "m2") as late:
            late.admin.command("ping")
        assert time.monotonic() - began >= 0.1, "the clients' port counts what failed at the other one"
        for _ in range(30):
            with client(server, "m2", "wrong") as wrong:
                fails(18, lambda: wrong.admin.command("ping"))
        assert status("m2", "pencil") == 401, "a guess comes too early, whatever it is"
        assert status("m1", "pencil") == 200, "who is known is not asked again"
        looked_at = server.tail(1 << 20).count("Failed to authenticate at the status port")
        assert looked_at == 11, looked_at
        time.sleep(1)
        assert status("m2", "pencil") == 200, "whoever waits is looked at"
        root.admin.command("setParameter", 1, authFailedDelayMs=700)
        with Fernd("--auth", "--setParameter", "authFailedDelayMs=3000") as other, with_root(other):
            began = time.monotonic()
            with client(other, "root", "wrong") as wrong:
                fails(18, lambda: wrong.admin.command("ping"))
            failed = time.monotonic() - began
            began = time.monotonic()
            with client(other, "root") as right:
                right.admin.command("ping")
            assert failed >= 3 > time.monotonic() - began, failed
        fails(2, lambda: root.admin.command("setParameter", 1, authFailedDelayMs=5001))


def in_transition_logins_work_and_nothing_is_enforced():
    with Fernd("--transitionToAuth") as server, client(server) as nobody:
        nobody.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        nobody.d.c.insert_one({"_id": 1})
        with client(server, "root") as root:
            assert root.d.c.find_one() == {"_id": 1}
        with client(server, "root", "wrong") as wrong:
            fails(18, lambda: wrong.d.c.find_one())


def what_does_not_go_together_is_refused():
    for options in (["--auth", "--replSet", "s"], ["--keyFile", "/no/such/file"], ["--auth", "--noauth"]):
        server = Fernd(*options)
        done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
        assert done.returncode != 0, options
        server.remove()


TESTS = [
    the_first_user_is_made_by_exactly_one_of_fifty,
    nothing_is_done_without_a_login,
    every_mechanism_logs_in_and_wrong_ones_fail_alike,
    roles_let_and_keep,
    what_is_taken_away_is_felt_at_once,
    a_thousand_connections_feel_what_is_taken_away,
    what_goes_beyond_its_needs_fails_its_test,
    a_login_may_send_the_last_word_back,
    a_cursor_is_its_users,
    users_and_rights_outlive_a_restart,
    secrets_are_in_no_log,
    the_status_port_asks_for_users_too,
    a_token_reads_the_figures_without_a_user,
    the_operators_tool_asks_for_the_password_and_does_not_show_it,
    who_guesses_waits,
    in_transition_logins_work_and_nothing_is_enforced,
    what_does_not_go_together_is_refused,
]


if __name__ == "__main__":
    run_tests("auth", TESTS)
