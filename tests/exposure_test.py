"""What other users of a machine and other machines find open, on a server as it is started; and a copy of
the data directory that is taken under `fsyncLock`.

Each test says what holds; numbers are those of the security design's findings.
"""

import contextlib
import http.client
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import time

import bson
import pymongo

from fernd import Fernd, free_port, run_tests
from pymongo.errors import PyMongoError


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def refused(*options, code=2):
    """Starts a server that must not start; what it says."""
    server = Fernd(*options)
    try:
        done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
        assert done.returncode == code, (done.returncode, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        return done.stderr
    finally:
        server.remove()


def files_are_for_their_user_alone_whatever_the_umask_is():
    """Findings 17 and 18."""
    before = os.umask(0)
    try:
        sockets = tempfile.mkdtemp(prefix="fernd-sockets-")
        server = Fernd("--cacheSize", "64M", "--unixSocketPrefix", sockets)
        server.options += ["--pidfilepath", os.path.join(server.home, "pid")]
        with server, server.client() as client:
            client.a.b.insert_one({})
            client.admin.command("checkpoint")
            looked_at = 0
            for folder, folders, files in os.walk(server.dbpath):
                for name in [folder] + [os.path.join(folder, name) for name in folders + files]:
                    # The server goes on beside: a file of the log may have got another name.
                    with contextlib.suppress(FileNotFoundError):
                        assert mode(name) & 0o077 == 0, (name, oct(mode(name)))
                        looked_at += 1
            assert looked_at >= 5, looked_at
            assert mode(os.path.join(server.home, "pid")) == 0o600
            assert mode(os.path.join(sockets, f"mongodb-{server.port}.sock")) == 0o700
            assert os.listdir(sockets) == [f"mongodb-{server.port}.sock"]
        os.chmod(sockets, 0o777)
        server = Fernd("--cacheSize", "64M", "--unixSocketPrefix", sockets)
        with server, server.client() as client:
            assert os.listdir(sockets) == [], "others could replace it there"
            warnings = client.admin.command("getLog", "startupWarnings")["log"]
            assert any("not sticky" in line for line in warnings), warnings
    finally:
        os.umask(before)
        shutil.rmtree(sockets, ignore_errors=True)


def links_are_not_followed():
    """Finding 18."""
    server = Fernd()
    precious, link = os.path.join(server.home, "precious"), os.path.join(server.home, "link")
    with open(precious, "w") as f:
        f.write("kept")
    os.symlink(precious, link)
    try:
        for option in ("--pidfilepath", "--logpath"):
            assert "link" in refused(option, link)
            with open(precious) as f:
                assert f.read() == "kept", option
    finally:
        server.remove()


def open_addresses_are_warned_of_and_refused_where_that_is_asked():
    with Fernd("--cacheSize", "64M", "--bind_ip", "0.0.0.0") as server, server.client() as client:
        warnings = client.admin.command("getLog", "startupWarnings")["log"]
        assert any("0.0.0.0" in line and "refuseOpenBind" in line for line in warnings), warnings
    refuse = ("--setParameter", "refuseOpenBind=true")
    assert "0.0.0.0" in refused("--bind_ip", "0.0.0.0", *refuse)
    assert "0.0.0.0" in refused("--statusPort", str(free_port()), "--statusBindIp", "0.0.0.0", *refuse)
    with Fernd("--cacheSize", "64M", *refuse) as server, server.client() as client:
        assert client.admin.command("getParameter", 1, refuseOpenBind=1)["refuseOpenBind"] is True


def warnings_of(server, **login):
    with server.client(**login) as client:
        return client.admin.command("getLog", "startupWarnings")["log"]


def who_asks_for_users_is_warned_of_what_stays_open():
    options = ("--cacheSize", "64M", "--auth", "--bind_ip", "0.0.0.0", "--statusPort", str(free_port()),
               "--statusBindIp", "0.0.0.0")
    words = ("localhost exception", "clusterMonitor", "noscripting")
    login = {"username": "root", "password": "pencil"}
    with Fernd(*options) as server:
        assert all(word in server.tail(100_000) for word in words), server.tail(100_000)
        with server.client() as first:
            first.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        server.stop()
        server.options.append("--noscripting")
        server.start()
        lines = "".join(warnings_of(server, **login))
        assert "clusterMonitor" in lines, lines
        assert "localhost exception" not in lines and "noscripting" not in lines, lines
    for more in (("--setParameter", "enableLocalhostAuthBypass=false"), ("--bind_ip", "127.0.0.1")):
        with Fernd("--cacheSize", "64M", "--auth", "--bind_ip", "0.0.0.0", *more) as server:
            assert "localhost exception" not in server.tail(100_000), more


def with_key(server, text="bWVtYmVycyBzaGFyZSB0aGlz", link=False):
    """Gives the server a key file, perhaps behind a symbolic link, as secrets are mounted."""
    key = os.path.join(server.home, "key")
    with open(key, "w") as file:
        file.write(text)
    os.chmod(key, 0o600)
    if link:
        os.symlink("key", os.path.join(server.home, "link"))
        key = os.path.join(server.home, "link")
    server.options += ["--keyFile", key]
    return server


def core_limit(server):
    with open(f"/proc/{server.process.pid}/limits") as file:
        return next(line.split()[4:6] for line in file if line.startswith("Max core file size"))


def keys_are_in_no_core_file():
    usual = Fernd("--cacheSize", "64M")
    with usual:
        before = core_limit(usual)
    with with_key(Fernd("--cacheSize", "64M"), link=True) as server:
        assert core_limit(server) == ["0", "0"], core_limit(server)
    with with_key(Fernd("--cacheSize", "64M", "--setParameter", "allowCoreDumps=true")) as server:
        assert core_limit(server) == before, (core_limit(server), before)
    server = with_key(Fernd(), link=True)
    os.chmod(os.path.join(server.home, "key"), 0o644)
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "chmod 600" in done.stderr, done
    server.remove()


def members_log_in_from_where_they_may():
    member = {"username": "__system", "password": "bWVtYmVycyBzaGFyZSB0aGlz", "authSource": "local",
              "authMechanism": "SCRAM-SHA-256"}
    for option, network, let_in in (("Allowlist", "10.0.0.0/8,127.0.0.1", True), ("Allowlist", "10.0.0.0/8", False),
                                    ("Whitelist", "::1", False)):
        with with_key(Fernd("--cacheSize", "64M", f"--clusterIpSource{option}", network)) as server:
            with server.client(**member) as client:
                try:
                    client.d.c.insert_one({})
                    assert let_in, network
                except pymongo.errors.OperationFailure as error:
                    assert error.code == 18 and not let_in, (network, error)
    assert "10.0.0.0/99" in refused("--clusterIpSourceAllowlist", "10.0.0.0/99")
    assert "keyFile" in refused("--clusterIpSourceAllowlist", "10.0.0.0/8")


def some_networks_are_let_in_beyond_the_usual_number():
    def open_at_once(*options):
        with Fernd("--cacheSize", "64M", "--maxConns", "5", *options) as server, contextlib.ExitStack() as stack:
            clients = [stack.enter_context(server.client(serverSelectionTimeoutMS=300)) for _ in range(6)]
            with contextlib.suppress(pymongo.errors.PyMongoError):
                for client in clients:
                    client.admin.command("ping")
                return True
            return False

    override = "--maxIncomingConnectionsOverride"
    assert not open_at_once() and not open_at_once(override, "10.0.0.0/8")
    assert open_at_once(override, "10.0.0.0/8,127.0.0.0/8")
    assert "localhost" in refused(override, "localhost")


def code_of_clients_shares_what_it_may_hold():
    code = "function() { const kept = []; for (let i = 0; i < 64; i++) kept.push('x'.repeat(65536) + i); return kept.length; }"
    find = {"$expr": {"$eq": [64, {"$function": {"body": code, "args": [], "lang": "js"}}]}}
    with Fernd("--cacheSize", "256M") as server, server.client() as client:
        client.d.c.insert_one({})
        assert client.d.c.count_documents(find) == 1
        assert client.admin.command("setParameter", 1, jsHeapLimitMB=1)["was"] >= 16
        try:
            client.d.c.count_documents(find)
            raise AssertionError("there is no bound")
        except pymongo.errors.OperationFailure as error:
            assert error.code == 146 and "scripts" in str(error), error
        client.admin.command("setParameter", 1, jsHeapLimitMB=64)
        assert client.d.c.count_documents(find) == 1


def half_messages_share_what_they_may_hold():
    """Two of 40 MB that do not come to their end are more than 48 MB."""
    header = struct.pack("<iiii", 47_000_000, 1, 0, 2013)
    with Fernd("--cacheSize", "1G", "--setParameter", "ingressBufferBytes=48000000") as server, server.client() as client:
        halves = []
        for _ in range(2):
            half = socket.create_connection(("127.0.0.1", server.port), 60)
            with contextlib.suppress(ConnectionError):
                half.sendall(header + bytes(40_000_000))
            halves.append(half)

        def is_closed(half):
            half.settimeout(0.1)
            try:
                return half.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        deadline = time.monotonic() + 30
        while not any(is_closed(half) for half in halves):
            assert time.monotonic() < deadline, "both are kept"
        assert not all(is_closed(half) for half in halves), "one has room"
        assert client.admin.command("ping")["ok"] == 1
        assert client.admin.command("getParameter", 1, ingressBufferBytes=1)["ingressBufferBytes"] == 48_000_000
        for half in halves:
            half.close()
    assert "48000000" in refused("--setParameter", "ingressBufferBytes=1000")


def what_others_would_keep_is_refused_by_name():
    for option in ("--vaultServerName", "--ldapServers", "--kmipServerName", "--saslHostName"):
        assert option[2:] in refused(option, "example.org")
    for name in ("oidcIdentityProviders", "ldapUserCacheSize", "saslauthdPath", "tlsCATrusts"):
        assert name in refused("--setParameter", f"{name}=1")


def the_status_page_tells_values_to_this_machine_and_data_to_no_other_site():
    """Findings 6 and 7."""
    status = free_port()

    def get(**headers):
        connection = http.client.HTTPConnection("127.0.0.1", status, timeout=20)
        connection.request("GET", "/api/now", headers={"Host": f"127.0.0.1:{status}", **headers})
        response = connection.getresponse()
        return response.status, response.read().decode()

    options = ("--cacheSize", "64M", "--statusPort", str(status), "--slowms", "0")
    with Fernd(*options) as server, server.client() as client:
        client.shop.cards.insert_one({"number": "4711-0815"})
        list(client.shop.cards.find({"number": "4711-0815"}))
        code, text = get()
        assert code == 200 and "4711-0815" in text
        code, text = get(**{"X-Forwarded-For": "192.0.2.1"})
        assert code == 200 and "4711-0815" not in text and "shop.cards" in text
        assert json.loads(text)["slow"], "the line itself is there"
        assert get(**{"Sec-Fetch-Site": "cross-site"})[0] == 403
        assert get(Origin="https://evil.example")[0] == 403


def only_op_query_wraps_commands():
    """Finding 11, as a client meets it."""
    with Fernd("--cacheSize", "64M") as server, server.client() as client:
        client.shop.cards.insert_one({})
        try:
            client.shop.command({"query": {"drop": "cards"}})
        except pymongo.errors.OperationFailure as error:
            assert error.code == 59, error
        else:
            raise AssertionError("it was taken")
        assert client.shop.cards.count_documents({}) == 1


def a_copy_under_fsync_lock_opens_with_everything_before_it():
    with Fernd("--cacheSize", "64M") as server, server.client() as client:
        client.a.b.insert_many([{"_id": i, "pad": "x" * 200} for i in range(20000)])
        assert client.admin.command("fsync", lock=True)["lockCount"] == 1
        written = threading.Event()

        def write():
            with server.client() as other:
                other.a.b.insert_one({"_id": "later"})
                written.set()

        writer = threading.Thread(target=write)
        writer.start()
        # A copy by any tool finds what it has listed: no file comes, goes or gets another name.
        listed = sorted(os.walk(server.dbpath))
        for _ in range(20):
            time.sleep(0.1)
            assert sorted(os.walk(server.dbpath)) == listed
        copy = Fernd("--cacheSize", "64M")
        os.makedirs(os.path.join(copy.dbpath, "journal"), 0o700)
        shutil.copy(os.path.join(server.dbpath, "fern.data"), copy.dbpath)
        for name in os.listdir(os.path.join(server.dbpath, "journal")):
            shutil.copy(os.path.join(server.dbpath, "journal", name), os.path.join(copy.dbpath, "journal"))
        assert not written.is_set(), "a write came in under the lock"
        assert client.a.b.count_documents({}) == 20000, "reads go on"
        client.admin.command("fsyncUnlock")
        writer.join(60)
        assert written.is_set()
        with copy, copy.client() as there:
            assert there.a.b.count_documents({}) == 20000
            assert there.a.b.find_one({"_id": 19999})["pad"] == "x" * 200


def a_server_under_fsync_lock_ends_when_it_is_told_to():
    server = Fernd("--cacheSize", "64M")
    with server, server.client() as client:
        client.a.b.insert_one({})
        client.admin.command("fsync", lock=True)

        def write():
            try:
                with server.client(retryWrites=False, serverSelectionTimeoutMS=500) as other:
                    other.a.b.insert_one({})
            except pymongo.errors.PyMongoError:
                pass

        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(0.3)
        assert server.stop(60) == 0
        writer.join(60)


def what_clients_documents_hold_is_in_no_line_of_a_redacted_log():
    mark = "MARKEDVALUE"
    with Fernd("--redactClientLogData", "--slowms", "0", "-vvvvv") as server, server.client() as client:
        db = client.shop
        db.orders.create_index("card", unique=True)
        db.orders.insert_one({"_id": 1, "card": mark})

        def fails(action):
            try:
                action()
            except PyMongoError:
                return
            raise AssertionError("it was done")

        fails(lambda: db.orders.insert_one({"_id": 2, "card": mark}))
        list(db.orders.find({"card": mark, "n": {"$in": [mark]}}, comment=mark, hint="card_1"))
        fails(lambda: list(db.orders.find({"$where": f"throw '{mark}'"})))
        fails(lambda: list(db.orders.aggregate([{"$project": {"x": {"$toInt": mark}}}])))
        fails(lambda: list(db.orders.find({"$expr": {"$toDate": "$card"}})))
        db.orders.update_one({"_id": 1}, [{"$set": {"copy": mark}}])
        db.orders.find_one_and_update({"card": mark}, {"$set": {"again": mark}})
        db.orders.delete_one({"card": mark + "2"})
        db.orders.distinct("card", {"card": mark})
        db.orders.count_documents({"card": mark})
        db.orders.bulk_write([pymongo.InsertOne({"_id": n, "card": f"{mark}{n}"}) for n in range(10, 20)])
        opened = db.command("find", "orders", filter={"card": {"$regex": mark}}, batchSize=1)["cursor"]["id"]
        db.command("getMore", bson.Int64(opened), collection="orders", batchSize=1)
        db.command("explain", {"find": "orders", "filter": {"card": mark}})
        db.command("mapReduce", "orders", map=f"function() {{ emit('{mark}', 1) }}", reduce="function(k, v) { return 1 }", out={"inline": 1})
        # A document that its validator would refuse, and is only told of.
        db.create_collection("loose", validator={"card": {"$ne": mark}}, validationAction="warn")
        db.loose.insert_one({"card": mark})
        # An index over what is there twice, and one that cannot be made of a value.
        db.twice.insert_many([{"card": mark}, {"card": mark}])
        fails(lambda: db.twice.create_index("card", unique=True))
        db.twice.insert_one({"place": mark})
        fails(lambda: db.twice.create_index([("place", "2dsphere")]))
        # A lock that is not granted, with who holds it.
        with client.start_session() as one, client.start_session() as other:
            with one.start_transaction(), other.start_transaction():
                db.orders.update_one({"card": mark}, {"$set": {"n": 1}}, session=one)
                fails(lambda: db.orders.update_one({"card": mark}, {"$set": {"n": mark}}, session=other))
                one.abort_transaction()
                other.abort_transaction()
        client.admin.command("createUser", "u", pwd="p", roles=[], customData={"note": mark})
        client.admin.command("setParameter", 1, redactClientLogData=True)
        told = "\n".join(client.admin.command("getLog", "global")["log"])
        text = server.tail(1 << 24)
        for where in (told, text):
            lines = [line for line in where.splitlines() if mark in line]
            assert not lines, lines[:3]
        # Names and shapes stay, and so does what the server says of itself.
        slow = [json.loads(line) for line in text.splitlines() if '"Slow query"' in line]
        assert any(line["attr"]["command"].get("filter", {}).get("card") == "###" and line["attr"]["ns"] == "shop.orders" for line in slow)
        assert any(line["attr"]["planSummary"] == "IXSCAN { card: 1 }" for line in slow if "planSummary" in line["attr"])
        assert any("would fail validation" in line for line in text.splitlines()), "the validator was asked"
        assert server.dbpath in text
        # Without it the same is told in full, and the test sees what it looks for.
        client.admin.command("setParameter", 1, redactClientLogData=False)
        db.orders.count_documents({"card": mark})
        assert mark in server.tail(1 << 24)


TESTS = [
    what_clients_documents_hold_is_in_no_line_of_a_redacted_log,
    files_are_for_their_user_alone_whatever_the_umask_is,
    links_are_not_followed,
    open_addresses_are_warned_of_and_refused_where_that_is_asked,
    who_asks_for_users_is_warned_of_what_stays_open,
    keys_are_in_no_core_file,
    members_log_in_from_where_they_may,
    some_networks_are_let_in_beyond_the_usual_number,
    code_of_clients_shares_what_it_may_hold,
    half_messages_share_what_they_may_hold,
    what_others_would_keep_is_refused_by_name,
    the_status_page_tells_values_to_this_machine_and_data_to_no_other_site,
    only_op_query_wraps_commands,
    a_copy_under_fsync_lock_opens_with_everything_before_it,
    a_server_under_fsync_lock_ends_when_it_is_told_to,
]


if __name__ == "__main__":
    run_tests("exposure", TESTS)
