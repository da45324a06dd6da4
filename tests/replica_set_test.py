"""Three `fernd`s as a replica set, as its users meet it: with a driver, over kills, stops and step-downs.

What is asked of the whole, in every test that writes: each write that was acknowledged is there at the
end, done once, and all members have the same documents.
"""

import os
import shutil
import signal
import threading
import time
import uuid

import pymongo
from bson import Binary, Int64
from fernd import PATIENCE, Fernd, ReplicaSet, host, lasting_port, raw, run_tests, wait_until
from pymongo.errors import PyMongoError, WriteConcernError, WTimeoutError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

SECONDARY_OK = {"$readPreference": {"mode": "secondaryPreferred"}}
NOT_PRIMARY, NOT_PRIMARY_NO_SECONDARY_OK = 10107, 13435
NOT_YET_INITIALIZED, ALREADY_INITIALIZED = 94, 23
WRITE_CONCERN_TIMEOUT, CANNOT_SATISFY = 64, 100


class Writer(threading.Thread):
    """Inserts documents and counts them in another one, until it is told to stop or an error reaches it.

    What it does is retried by the driver, so it knows exactly what must be there at the end.
    """

    def __init__(self, cluster, number):
        super().__init__(daemon=True)
        self.cluster, self.number = cluster, number
        self.acknowledged, self.error = 0, None
        self.ending = threading.Event()

    def run(self):
        try:
            with self.cluster.client() as client:
                while not self.ending.is_set():
                    self.step(client)
                    self.acknowledged += 1
        except Exception as error:
            self.error = error

    def step(self, client):
        n = self.acknowledged
        client.test.writes.insert_one({"_id": {"writer": self.number, "n": n}})
        client.test.counters.update_one({"_id": self.number}, {"$inc": {"n": 1}}, upsert=True)

    def check(self, documents):
        if self.error is not None:
            raise AssertionError(f"writer {self.number} met {self.error!r}")
        ids = [document["_id"] for document in documents["writes"]]
        there = {id["n"] for id in ids if id["writer"] == self.number}
        lost = set(range(self.acknowledged)) - there
        assert not lost, f"acknowledged and lost: {sorted(lost)[:20]}"
        assert there == set(range(self.acknowledged)), "more than was written"
        counted = [d["n"] for d in documents["counters"] if d["_id"] == self.number]
        assert counted == [self.acknowledged], f"{counted} is counted of {self.acknowledged}"


class Mover(Writer):
    """Moves coins from one account to the other, one at a time, each in a transaction with its record."""

    def step(self, client):
        n = self.acknowledged

        def move(session):
            accounts = client.test.accounts
            accounts.update_one({"_id": "from"}, {"$inc": {"coins": -1}}, session=session)
            accounts.update_one({"_id": "to"}, {"$inc": {"coins": 1}}, session=session)
            client.test.moves.insert_one({"_id": n}, session=session)

        with client.start_session() as session:
            session.with_transaction(move)

    def check(self, documents):
        if self.error is not None:
            raise AssertionError(f"the mover met {self.error!r}")
        n = self.acknowledged
        assert sorted(d["_id"] for d in documents["moves"]) == list(range(n))
        coins = {d["_id"]: d["coins"] for d in documents["accounts"]}
        assert coins == {"from": -n, "to": n}, (coins, n)


class Follower(threading.Thread):
    """Reads a change stream, and opens it again behind the last event where it ends."""

    def __init__(self, cluster, start):
        super().__init__(daemon=True)
        self.cluster, self.start_at = cluster, start
        self.events, self.token, self.opened = [], None, 0
        self.error, self.ending = None, threading.Event()

    def run(self):
        with self.cluster.client() as client:
            while not self.ending.is_set() and self.error is None:
                try:
                    self.follow(client.test.writes)
                except PyMongoError as error:
                    self.error = error if getattr(error, "code", None) in (280, 286) else None
                    time.sleep(0.05)

    def follow(self, collection):
        place = {"resume_after": self.token}
        if self.token is None:
            place = {"start_at_operation_time": self.start_at}
        with collection.watch(max_await_time_ms=200, **place) as stream:
            self.opened += 1
            while not self.ending.is_set():
                event = stream.try_next()
                if event is not None:
                    self.events.append(event)
                self.token = stream.resume_token


def progress(writers, steps=20):
    """Returns when each of the writers has done so much more."""
    goals = [(writer, writer.acknowledged + steps) for writer in writers]

    def there():
        for writer in writers:
            if writer.error is not None:
                raise AssertionError(f"an error reached writer {writer.number}: {writer.error!r}")
        return all(writer.acknowledged >= goal for writer, goal in goals)

    wait_until(there, "writes do not go on", writers[0].cluster.tails)


def begin(*writers):
    for writer in writers:
        writer.start()
    progress(writers)
    return writers


def end(cluster, writers):
    """Stops them; all members have what was acknowledged, and the same."""
    for writer in writers:
        writer.ending.set()
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive(), f"writer {writer.number} waits for ever"
    documents = agreed(cluster)
    for writer in writers:
        writer.check(documents)
    return documents


def contents(member, database="test"):
    with member.client(readPreference="secondaryPreferred") as client:
        db = client[database]
        found = {name: list(db[name].find(sort=[("_id", 1)])) for name in db.list_collection_names()}
        digest = db.command("dbHash")
        indexes = {name: sorted(db[name].index_information()) for name in found}
        return {"documents": found, "indexes": indexes, "md5": digest["md5"]}


def agreed(cluster):
    """The documents, once all running members have the same."""
    members = [member for member in cluster.members if member.is_running()]
    seen = []

    def same():
        seen[:] = [contents(member) for member in members]
        return all(other == seen[0] for other in seen)

    try:
        wait_until(same, "the members do not come to the same", cluster.tails)
    except AssertionError:
        for member, what in zip(members, seen):
            sizes = {name: len(d) for name, d in what["documents"].items()}
            print(f"  {host(member)}: {sizes} {what['indexes']} {what['md5']}")
        raise
    return seen[0]["documents"]


def code_of(reply):
    return (reply["ok"], reply.get("code"))


def status_of(member):
    with member.client() as client:
        return client.admin.command("replSetGetStatus")


def knows(member, health):
    """Members hear of each other now and then: what one says of the others may be a moment behind."""

    def there():
        return {m["name"]: m["health"] for m in status_of(member)["members"]} == health

    wait_until(there, "it does not know how the others are", lambda: status_of(member))


def three_members_elect_one_and_say_so():
    with ReplicaSet() as cluster:
        primary = cluster.wait_for_all()
        hosts = [host(member) for member in cluster.members]
        roles = {h: "PRIMARY" if h == host(primary) else "SECONDARY" for h in hosts}
        configurations = []
        for i, member in enumerate(cluster.members):
            hello = member.hello()
            assert hello["setName"] == "rs" and hello["hosts"] == hosts, hello
            assert (hello["me"], hello["primary"]) == (hosts[i], host(primary)), hello
            assert hello["isWritablePrimary"] == (member is primary), hello
            assert hello["secondary"] == (member is not primary), hello
            assert ("electionId" in hello) == (member is primary), hello
            knows(member, dict.fromkeys(hosts, 1))
            # Each reports to the others every two seconds.
            states = lambda: {m["name"]: m["stateStr"] for m in status_of(member)["members"]}
            wait_until(lambda: states() == roles, "it does not know what the others are", lambda: status_of(member))
            status = status_of(member)
            assert status["set"] == "rs" and status["myState"] == (1 if member is primary else 2)
            assert [m["name"] for m in status["members"] if m.get("self")] == [hosts[i]], status
            counts = [status[f"{name}Count"] for name in ("votingMembers", "majorityVote", "writeMajority")]
            assert counts == [3, 2, 2], status
            with member.client() as client:
                configurations.append(client.admin.command("replSetGetConfig")["config"])
        assert all(other == configurations[0] for other in configurations), configurations
        assert [m["host"] for m in configurations[0]["members"]] == hosts
        with cluster.client() as client:
            found = lambda: client.primary == ("127.0.0.1", primary.port) and len(client.secondaries) == 2
            wait_until(found, "the driver does not find them", lambda: client.topology_description)
        again = raw(primary, "admin", {"replSetInitiate": cluster.config()})
        assert code_of(again) == (0, ALREADY_INITIALIZED), again


def a_set_of_one_and_of_two_begin_too():
    for count in (1, 2):
        with ReplicaSet(members=count) as cluster, cluster.client() as client:
            client.test.a.insert_one({"_id": 1}, comment="the first")
            assert agreed(cluster) == {"a": [{"_id": 1}]}


def secondaries_show_what_was_written():
    with ReplicaSet() as cluster, cluster.client() as client:
        a = client.test.a
        secondary = a.with_options(read_preference=ReadPreference.SECONDARY)
        with client.start_session(causal_consistency=True) as session:
            for n in range(50):
                a.insert_one({"_id": n, "n": n}, session=session)
                assert secondary.find_one({"_id": n}, session=session), f"{n} is not seen in its session"
        a.update_many({"n": {"$lt": 10}}, {"$set": {"few": True}})
        a.delete_many({"n": {"$gte": 40}})
        a.create_index("n", unique=True)
        client.test.b.insert_one({"_id": "b"})
        client.test.c.insert_one({"_id": "c"})
        client.test.c.drop()
        client.test.create_collection("log", capped=True, size=4096)
        documents = agreed(cluster)
        assert len(documents["a"]) == 40 and "c" not in documents, documents
        primary = cluster.primary()
        times = {}
        for member in cluster.members:
            with member.client(readPreference="secondaryPreferred") as direct:
                assert direct.test.a.estimated_document_count() == 40
                assert direct.test.a.count_documents({"few": True}) == 10
                plan = direct.test.a.find({"n": 7}).explain()["queryPlanner"]["winningPlan"]
                assert "IXSCAN" in str(plan), plan
                assert direct.test.a.find({"_id": {"$gte": 38}}, batch_size=2).to_list()
                options = direct.test.log.options()
                assert options["capped"], options
                entries = direct.local["oplog.rs"].find({"ns": "test.a", "op": "i"})
                times[member] = [entry["ts"] for entry in entries]
        assert len(times[primary]) == 50 and all(t == times[primary] for t in times.values()), times


def secondaries_refuse_by_code():
    with ReplicaSet() as cluster:
        with cluster.client() as client:
            client.test.a.insert_one({"_id": 1})
            majority = client.test.a.with_options(read_concern=ReadConcern("majority"))
            linear = client.test.a.with_options(read_concern=ReadConcern("linearizable"))
            assert majority.find_one() == linear.find_one() == {"_id": 1}
        agreed(cluster)
        secondary = cluster.secondaries()[0]
        ok = {"$readPreference": {"mode": "secondaryPreferred"}}
        session = {"lsid": {"id": Binary.from_uuid(uuid.uuid4())}, "txnNumber": Int64(1)}
        writes = [
            {"insert": "a", "documents": [{"_id": 2}]},
            {"insert": "a", "documents": [{"_id": 2}], **session},
            {"update": "a", "updates": [{"q": {}, "u": {"$set": {"x": 1}}}]},
            {"delete": "a", "deletes": [{"q": {}, "limit": 0}]},
            {"findAndModify": "a", "query": {}, "remove": True},
            {"create": "b"},
            {"createIndexes": "a", "indexes": [{"key": {"x": 1}, "name": "x"}]},
            {"dropIndexes": "a", "index": "*"},
            {"drop": "a"},
            {"dropDatabase": 1},
            {"collMod": "a", "validator": {}},
            {"aggregate": "a", "pipeline": [{"$out": "b"}], "cursor": {}},
            {"find": "a", "readConcern": {"level": "linearizable"}, **ok},
        ]
        for command in writes:
            reply = raw(secondary, "test", command)
            assert code_of(reply) == (0, NOT_PRIMARY), (command, reply)
            # Without the label no driver tries again.
            assert ("RetryableWriteError" in reply.get("errorLabels", [])) == ("lsid" in command), reply
        on_admin = [{"replSetStepDown": 1}, {"replSetReconfig": cluster.config()}]
        for command in on_admin:
            reply = raw(secondary, "admin", command)
            assert code_of(reply) == (0, NOT_PRIMARY), (command, reply)
        reads = [
            {"find": "a"},
            {"count": "a"},
            {"distinct": "a", "key": "x"},
            {"aggregate": "a", "pipeline": [], "cursor": {}},
            {"listCollections": 1},
            {"listIndexes": "a"},
        ]
        for command in reads:
            reply = raw(secondary, "test", command)
            assert code_of(reply) == (0, NOT_PRIMARY_NO_SECONDARY_OK), (command, reply)
        for command in reads:
            assert raw(secondary, "test", {**command, **ok})["ok"] == 1, command
        assert agreed(cluster) == {"a": [{"_id": 1}]}


def secondaries_hand_on_pipelines_that_write():
    with ReplicaSet() as cluster:
        with cluster.client() as client:
            client.test.a.insert_many([{"_id": n, "n": n % 3} for n in range(3000)])
        agreed(cluster)
        primary, secondary = cluster.wait_for_primary(), cluster.secondaries()[0]
        with secondary.client(readPreference="secondary") as client:
            for stage in [{"$out": "b"}, {"$merge": {"into": "c"}}]:
                into = "b" if "$out" in stage else "c"
                with client.start_session() as session:
                    assert list(client.test.a.aggregate([{"$match": {"n": 1}}, stage], session=session)) == []
                    # A session that reads here has what was written there.
                    assert client.test[into].count_documents({}, session=session) == 1000
            body = {"aggregate": "a", "pipeline": [{"$out": "d"}], "cursor": {}, **SECONDARY_OK}
            reply = raw(secondary, "test", {**body, "writeConcern": {"w": 3, "wtimeout": 60000}})
            assert reply["ok"] == 1 and reply["cursor"] == {"id": 0, "ns": "test.a", "firstBatch": []}, reply
            assert "writeConcernError" not in reply, reply
            reply = raw(secondary, "test", {**body, "explain": True})
            assert reply["ok"] == 1, reply
            # What the primary refuses the client is told as it is.
            told = [{**body, "pipeline": [{"$out": "system.x"}]}, {**body, "pipeline": [{"$merge": {"into": "c", "on": "x"}}]}]
            for command in told:
                there, here = raw(primary, "test", command), raw(secondary, "test", command)
                same = lambda reply: (reply["ok"], reply["code"], reply["codeName"], reply["errmsg"])
                assert there["ok"] == 0 and same(here) == same(there), (here, there)
            # A time that the client gave ends the wait for a primary that does not answer.
            os.kill(primary.process.pid, signal.SIGSTOP)
            try:
                reply = raw(secondary, "test", {**body, "maxTimeMS": 300})
            finally:
                os.kill(primary.process.pid, signal.SIGCONT)
            assert reply["codeName"] in ("MaxTimeMSExpired", "NotWritablePrimary"), reply
        cluster.wait_for_all()
        sizes = {name: len(found) for name, found in agreed(cluster).items()}
        assert sizes == {"a": 3000, "b": 1000, "c": 1000, "d": 3000}, sizes


def with_data(member):
    """Writes something into the member's directory, by a start without its options."""
    options, member.options = member.options, []
    with member.start().client() as client:
        client.test.a.insert_one({"_id": 1})
    member.stop()
    member.options = options
    return member


def refuses(first, name, hosts, *words):
    """What the members refuse names what is wrong; they go on waiting for a configuration."""
    members = [{"_id": i, "host": h} for i, h in enumerate(hosts)]
    reply = raw(first, "admin", {"replSetInitiate": {"_id": name, "members": members}})
    assert reply["ok"] == 0, reply
    for word in words:
        assert word in reply["errmsg"], (word, reply)


def waits_for_a_configuration(*members):
    for member in members:
        reply = raw(member, "admin", {"replSetGetStatus": 1})
        assert code_of(reply) == (0, NOT_YET_INITIALIZED), reply
        hello = member.hello()
        assert not hello["isWritablePrimary"] and not hello["secondary"] and hello["isreplicaset"], hello


def a_bad_initiate_is_refused_and_changes_nothing():
    full, stranger, alone = Fernd("--replSet", "rs"), Fernd("--replSet", "other"), Fernd()
    nobody = f"127.0.0.1:{lasting_port()}"
    with ReplicaSet(initiated=False) as cluster, with_data(full), stranger, alone:
        first, *rest = cluster.members
        good = [host(member) for member in cluster.members]
        for bad, *words in [
            (host(full), host(full), "data"),
            (host(stranger), host(stranger)),
            (host(alone), host(alone)),
            (nobody, nobody),
        ]:
            refuses(first, "rs", [*good[:2], bad], *words)
            waits_for_a_configuration(first, *rest)
        refuses(first, "another", good, "another")
        refuses(first, "rs", good[1:], "maps to this node")
        refuses(first, "rs", [*good, good[2]], good[2])
        waits_for_a_configuration(first, *rest, full, stranger)
        for member in cluster.members:
            member.stop()
        cluster.start()
        waits_for_a_configuration(first, *rest)
        cluster.initiate()
        with alone.client() as client:
            client.test.a.insert_one({"_id": 2})
        with cluster.client() as client:
            client.test.a.insert_one({"_id": 3})
        assert agreed(cluster) == {"a": [{"_id": 3}]}
        # Members of another set now: it is said, and nothing of theirs is touched.
        newcomer = Fernd("--replSet", "rs")
        with newcomer:
            refuses(newcomer, "rs", [host(newcomer), good[0]], good[0])
        assert agreed(cluster) == {"a": [{"_id": 3}]}


def a_killed_primary_is_replaced_unnoticed():
    with ReplicaSet() as cluster:
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        pauses = []
        for _ in range(5):
            primary = cluster.wait_for_primary()
            clock = time.monotonic()
            primary.kill()
            progress(writers, 1)
            pauses.append(time.monotonic() - clock)
            progress(writers)
            primary.start()
            cluster.wait_for_all()
            progress(writers)
        end(cluster, writers)
        written = sum(writer.acknowledged for writer in writers)
        shown = ", ".join(f"{pause:.2f}" for pause in pauses)
        print(f"  {written} times two writes; after a kill they went on within {shown} s")


def a_primary_that_dies_at_once_is_replaced():
    """The set is one of three from the moment on in which it says so, not only behind its first write."""
    for _ in range(2):
        with ReplicaSet() as cluster:
            primary = cluster.wait_for_primary()
            primary.kill()
            cluster.wait_for_primary(but=primary)
            with cluster.client() as client:
                client.test.a.insert_one({"_id": 1})
            primary.start()
            cluster.wait_for_all()
            assert agreed(cluster) == {"a": [{"_id": 1}]}


def a_killed_secondary_comes_back():
    with ReplicaSet() as cluster:
        writers = begin(Writer(cluster, 0))
        for secondary in cluster.secondaries():
            secondary.kill()
            progress(writers, 100)
            knows(cluster.primary(), {host(m): int(m is not secondary) for m in cluster.members})
            secondary.start()
            cluster.wait_for_all()
        end(cluster, writers)


def a_step_down_is_not_noticed():
    with ReplicaSet() as cluster:
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        for _ in range(4):
            primary = cluster.wait_for_primary()
            reply = raw(primary, "admin", {"replSetStepDown": 5})
            assert reply["ok"] == 1, reply
            cluster.wait_for_primary(but=primary)
            progress(writers)
        end(cluster, writers)


def a_frozen_member_and_one_in_maintenance_do_not_lead():
    with ReplicaSet() as cluster:
        writers = begin(Writer(cluster, 0))
        primary = cluster.wait_for_primary()
        for command in ({"replSetFreeze": 60}, {"replSetMaintenance": True}):
            assert code_of(raw(primary, "admin", command)) == (0, 95), "a primary is neither"
        held = cluster.secondaries()[0]
        for begins, ends in (({"replSetFreeze": 600}, {"replSetFreeze": 0}), ({"replSetMaintenance": True}, {"replSetMaintenance": False})):
            assert raw(held, "admin", begins)["ok"] == 1
            primary = cluster.wait_for_primary()
            others = [member for member in cluster.members if member not in (primary, held)]
            primary.kill()
            assert cluster.wait_for_primary(but=primary) is others[0]
            progress(writers)
            primary.start()
            wait_until(lambda: primary.hello().get("secondary"), "it does not come back")
            reply = raw(held, "test", {"find": "a", **SECONDARY_OK})
            assert code_of(reply) == ((0, 13436) if "replSetMaintenance" in begins else (1, None)), reply
            if "replSetMaintenance" in begins:
                for member in cluster.members:
                    states = lambda: {m["name"]: m["stateStr"] for m in status_of(member)["members"]}
                    wait_until(lambda: states()[host(held)] == "RECOVERING", "it is not known to be in maintenance", states)
            # Whoever hands over hands to the other one, too.
            leads = cluster.wait_for_primary()
            assert raw(leads, "admin", {"replSetStepDown": 5})["ok"] == 1
            assert cluster.wait_for_primary(but=leads) is not held
            assert raw(held, "admin", ends)["ok"] == 1
            cluster.wait_for_all()
        assert code_of(raw(held, "admin", {"replSetMaintenance": False})) == (0, 96)
        end(cluster, writers)


def the_member_of_the_highest_priority_leads_where_it_can():
    def change(configuration):
        configuration["members"][2]["priority"] = 5

    with ReplicaSet() as cluster:
        preferred = cluster.members[2]
        leads = lambda: preferred.hello().get("isWritablePrimary")
        writers = begin(Writer(cluster, 0))
        reconfigure(cluster, change)
        wait_until(leads, "it does not take over", cluster.tails)
        progress(writers)
        preferred.kill()
        cluster.wait_for_primary(but=preferred)
        progress(writers)
        preferred.start()
        wait_until(leads, "it does not take over again", cluster.tails)
        progress(writers)
        # Who steps down stays out for as long as was said, also where it would be preferred.
        clock = time.monotonic()
        assert raw(preferred, "admin", {"replSetStepDown": 8})["ok"] == 1
        while time.monotonic() - clock < 7:
            assert not leads(), f"it leads {time.monotonic() - clock:.1f} s after it stepped down for 8"
            time.sleep(0.5)
        wait_until(leads, "it does not lead after its time", cluster.tails)
        end(cluster, writers)


def a_stopped_primary_is_not_missed():
    with ReplicaSet() as cluster:
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        for _ in range(2):
            primary = cluster.wait_for_primary()
            assert primary.stop() == 0, primary.tail()
            progress(writers)
            primary.start()
            cluster.wait_for_all()
        end(cluster, writers)


def all_are_stopped_and_started():
    with ReplicaSet() as cluster:
        writers = begin(Writer(cluster, 0))
        end(cluster, writers)
        for member in cluster.members:
            member.process.terminate()
        for member in cluster.members:
            assert member.process.wait(60) == 0, member.tail()
        cluster.start()
        cluster.wait_for_all()
        writers[0].check(agreed(cluster))
        end(cluster, begin(Writer(cluster, 1)))


def a_member_that_was_away_while_the_others_were_started_again_catches_up():
    """What it lacks lies before the others' newest checkpoints."""
    with ReplicaSet() as cluster:
        away = cluster.secondaries()[0]
        with cluster.client() as client:
            client.test.a.insert_many([{"_id": n} for n in range(100)])
            away.kill()
            client.test.a.insert_many([{"_id": n} for n in range(100, 200)])
        others = cluster.others(away)
        for member in others:
            member.process.terminate()
        for member in others:
            assert member.process.wait(60) == 0, member.tail()
        for member in others:
            member.start()
        cluster.wait_for_primary()
        away.start()
        with cluster.client() as client:
            all_three = WriteConcern(w=3, wtimeout=20000)
            client.test.get_collection("a", write_concern=all_three).insert_one({"_id": 200})
        assert len(agreed(cluster)["a"]) == 201


def all_are_killed_at_once():
    with ReplicaSet() as cluster:
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        for member in cluster.members:
            member.process.kill()
        for member in cluster.members:
            member.process.wait()
        cluster.start()
        progress(writers)
        end(cluster, writers)


def a_write_waits_for_as_many_as_it_asks():
    with ReplicaSet() as cluster, cluster.client() as client:
        def insert(key, **concern):
            a = client.test.get_collection("a", write_concern=WriteConcern(**concern))
            return a.insert_one({"_id": key})

        insert("all", w=3)
        down = cluster.secondaries()[0]
        down.kill()
        insert("two", w=2)
        insert("majority", w="majority")
        insert("journal", w=1, j=True)
        try:
            insert("three", w=3, wtimeout=300)
            raise AssertionError("three members have it, of which one is down")
        except WTimeoutError as error:
            assert error.code == WRITE_CONCERN_TIMEOUT and error.details["errInfo"]["wtimeout"], error.details
        assert client.test.a.find_one("three"), "it is written all the same"
        try:
            insert("four", w=4)
            raise AssertionError("there are three")
        except WriteConcernError as error:
            assert error.code == CANNOT_SATISFY, error.details
        waiting = threading.Thread(target=insert, args=("later",), kwargs={"w": 3})
        waiting.start()
        down.start()
        waiting.join(30)
        assert not waiting.is_alive(), "the third is back, and the write still waits"
        names = [d["_id"] for d in agreed(cluster)["a"]]
        assert names == sorted(["all", "two", "majority", "journal", "three", "four", "later"]), names


def two_of_three_down_acknowledges_nothing():
    with ReplicaSet() as cluster:
        with cluster.client() as client:
            client.test.a.insert_one({"_id": "before"})
        agreed(cluster)
        left, *down = [cluster.wait_for_primary(), *cluster.secondaries()]
        for member in down:
            member.kill()
        for n in range(8):
            command = {"insert": "a", "documents": [{"_id": n}], "writeConcern": {"w": 1, "wtimeout": 400}}
            reply = raw(left, "test", command)
            refused = reply["ok"] == 0 or "writeConcernError" in reply
            assert refused, f"acknowledged by one of three: {reply}"
            with left.client() as client:
                assert client.test.a.find({}).to_list() == [{"_id": "before"}], "seen, and not safe"
        wait_until(lambda: left.hello()["secondary"], "it stays primary without a majority")
        down[0].start()
        with cluster.client() as client:
            cluster.wait_for_primary()
            client.test.a.insert_one({"_id": "after"})
            assert client.test.a.count_documents({"_id": {"$in": ["before", "after"]}}) == 2
        down[1].start()
        cluster.wait_for_all()
        agreed(cluster)


def a_primary_that_stands_still_is_replaced():
    with ReplicaSet() as cluster, cluster.client() as client:
        old = cluster.wait_for_primary()
        client.test.a.insert_one({"_id": 1, "n": 0})
        os.kill(old.process.pid, signal.SIGSTOP)
        try:
            others = cluster.others(old)
            new = wait_until(
                lambda: next((m for m in others if m.hello()["isWritablePrimary"]), None),
                "nobody takes over", cluster.tails)
            with new.client() as direct:
                direct.test.a.update_one({"_id": 1}, {"$set": {"n": 1}})
        finally:
            os.kill(old.process.pid, signal.SIGCONT)
        linear = {"find": "a", "filter": {}, "readConcern": {"level": "linearizable"}, "maxTimeMS": 5000}
        seen = raw(old, "test", linear)
        assert seen["ok"] == 0 or seen["cursor"]["firstBatch"] == [{"_id": 1, "n": 1}], seen
        late = raw(old, "test", {"insert": "a", "documents": [{"_id": "late"}]})
        cluster.wait_for_all()
        documents = agreed(cluster)["a"]
        acknowledged = late["ok"] == 1 and "writeConcernError" not in late
        assert not acknowledged or {"_id": "late"} in documents, (late, documents)


def a_write_sent_again_to_the_next_primary_is_done_once():
    session = Binary.from_uuid(uuid.uuid4())
    commands = [
        {"insert": "a", "documents": [{"_id": n} for n in range(3)]},
        {"update": "a", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]},
        {"findAndModify": "a", "query": {"_id": 2}, "remove": True},
    ]
    with ReplicaSet() as cluster:
        for number, command in enumerate(commands):
            command = {**command, "lsid": {"id": session}, "txnNumber": Int64(number)}
            primary = cluster.wait_for_primary()
            first = raw(primary, "test", command)
            assert first["ok"] == 1, first
            primary.kill()
            again = raw(cluster.wait_for_primary(but=primary), "test", command)
            assert again["ok"] == 1 and again["retriedStmtIds"], again
            for field in ("n", "nModified", "value", "lastErrorObject"):
                assert first.get(field) == again.get(field), (first, again)
            primary.start()
            cluster.wait_for_all()
        assert agreed(cluster) == {"a": [{"_id": 0}, {"_id": 1, "n": 1}]}


def a_transaction_goes_on_with_the_next_primary():
    with ReplicaSet() as cluster:
        with cluster.client() as client:
            client.test.accounts.insert_many([{"_id": "from", "coins": 0}, {"_id": "to", "coins": 0}])
            client.test.create_collection("moves")
        movers = begin(Mover(cluster, 0))
        for how in ("kill", "step down", "kill"):
            primary = cluster.wait_for_primary()
            if how == "kill":
                primary.kill()
                progress(movers)
                primary.start()
                cluster.wait_for_all()
            else:
                raw(primary, "admin", {"replSetStepDown": 5})
            progress(movers)
        end(cluster, movers)


def an_open_transaction_ends_with_its_primary():
    with ReplicaSet() as cluster:
        lsid = {"id": Binary.from_uuid(uuid.uuid4())}
        part = {"lsid": lsid, "txnNumber": Int64(1), "autocommit": False}
        insert = {"insert": "a", "documents": [{"_id": 1}], **part}
        with cluster.client() as client:
            client.test.b.insert_one({"_id": 1})
        primary = cluster.wait_for_primary()
        reply = raw(primary, "test", {**insert, "startTransaction": True})
        assert reply["ok"] == 1, reply
        primary.kill()
        new = cluster.wait_for_primary(but=primary)
        reply = raw(new, "admin", {"commitTransaction": 1, **part})
        assert (reply["ok"], reply["code"]) == (0, 251), reply
        assert reply["errorLabels"] == ["TransientTransactionError"], reply
        primary.start()
        cluster.wait_for_all()
        assert agreed(cluster) == {"b": [{"_id": 1}]}


def reconfigure(cluster, change):
    """Changes the configuration as `rs.reconfig` does; it is answered once it is in force."""
    primary = cluster.wait_for_primary()
    configuration = raw(primary, "admin", {"replSetGetConfig": 1})["config"]
    configuration["version"] += 1
    change(configuration)
    reply = raw(primary, "admin", {"replSetReconfig": configuration})
    assert reply["ok"] == 1, reply
    # Who was a set of one before starts again.
    now = lambda: raw(primary, "admin", {"replSetGetConfig": 1})["config"]
    wait_until(lambda: now()["version"] == configuration["version"], "it is not in force", cluster.tails)
    return configuration


def a_changed_configuration_reaches_all():
    def change(configuration):
        configuration["members"][1]["tags"] = {"dc": "east"}
        configuration["members"][2].update(priority=0, hidden=True)
        configuration["settings"]["getLastErrorModes"] = {"somewhere": {"dc": 1}}

    with ReplicaSet() as cluster:
        version = reconfigure(cluster, change)["version"]
        hosts = [host(member) for member in cluster.members[:2]]

        def there():
            hellos = [member.hello() for member in cluster.members]
            return all((h["setVersion"], h["hosts"]) == (version, hosts) for h in hellos)

        wait_until(there, "a member does not learn of it", cluster.tails)
        hello = cluster.members[2].hello()
        assert hello["hidden"] and hello["passive"], hello
        assert cluster.members[1].hello()["tags"] == {"dc": "east"}


def the_election_timeout_is_that_of_the_newest_configuration():
    def change(milliseconds):
        return lambda configuration: configuration["settings"].update(electionTimeoutMillis=milliseconds)

    with ReplicaSet() as cluster:
        # An hour: who stands still for several of the former timeouts is missed by nobody.
        for milliseconds, is_replaced in [(3_600_000, False), (1_000, True)]:
            reconfigure(cluster, change(milliseconds))
            shown = lambda member: raw(member, "admin", {"replSetGetConfig": 1})["config"]["settings"]
            there = lambda: all(shown(m)["electionTimeoutMillis"] == milliseconds for m in cluster.members)
            wait_until(there, "a member does not learn of it", cluster.tails)
            old = cluster.wait_for_primary()
            os.kill(old.process.pid, signal.SIGSTOP)
            try:
                leads = lambda: any(member.hello()["isWritablePrimary"] for member in cluster.others(old))
                if is_replaced:
                    wait_until(leads, "nobody takes over", cluster.tails)
                else:
                    time.sleep(8)
                    assert not leads()
            finally:
                os.kill(old.process.pid, signal.SIGCONT)
            cluster.wait_for_all()


def a_member_shows_after_its_start_what_it_has_shown_before():
    with ReplicaSet() as cluster:
        for n in range(3):
            primary = cluster.wait_for_primary()
            find = {"find": "a", "filter": {"_id": n}, "readConcern": {"level": "majority"}, **SECONDARY_OK}
            shows = lambda: raw(primary, "test", find)
            assert raw(primary, "test", {"insert": "a", "documents": [{"_id": n}]})["ok"] == 1
            assert shows()["cursor"]["firstBatch"] == [{"_id": n}]
            # It starts before the others have elected anybody: nobody can tell it what was decided.
            primary.kill()
            primary.start()
            answers = []

            def answered():
                answers.append(shows())
                return code_of(answers[-1])[0] == 1

            wait_until(answered, "it shows nothing", cluster.tails)
            assert answers[-1]["cursor"]["firstBatch"] == [{"_id": n}], answers[-1]
            cluster.wait_for_all()
        # Where there is no majority that could say it, it is shown after a while what is known.
        primary, *others = cluster.members
        for member in cluster.members:
            member.kill()
        primary.start()
        wait_until(lambda: primary.hello().get("secondary"), "it shows nothing for ever", cluster.tails)
        for member in others:
            member.start()
        cluster.wait_for_all()


def an_emptied_member_comes_back_by_itself():
    with ReplicaSet() as cluster, cluster.client() as client:
        client.test.a.insert_many([{"_id": n} for n in range(1000)])
        client.test.a.create_index("n")
        all_three = client.test.get_collection("a", write_concern=WriteConcern(w=3))
        # A secondary, then the primary.
        for round, member in enumerate([cluster.secondaries()[0], cluster.primary()]):
            before = raw(cluster.wait_for_primary(), "admin", {"replSetGetConfig": 1})["config"]
            member.kill()
            shutil.rmtree(member.dbpath)
            client.test.a.insert_one({"_id": f"meanwhile {round}"})
            member.start()
            wait_until(lambda: member.hello().get("secondary"), "it does not come back", cluster.tails)
            all_three.insert_one({"_id": f"again {round}"})
            assert len(agreed(cluster)["a"]) == 1002 + 2 * round
            after = raw(cluster.primary(), "admin", {"replSetGetConfig": 1})["config"]
            assert after["version"] > before["version"], after
            hosts = lambda c: {m["_id"]: (m["host"], m["votes"]) for m in c["members"]}
            assert hosts(after) == hosts(before), after
            all_vote(cluster, 3)


def a_stranger_takes_nobodys_place():
    with ReplicaSet() as cluster:
        member = cluster.secondaries()[0]
        for options in (["--replSet", "other"], []):
            member.kill()
            stranger = Fernd(*options)
            stranger.port = member.port
            with stranger:
                with cluster.client() as client:
                    client.test.a.insert_one({})
                time.sleep(9)
                assert "no replset config" in str(raw(stranger, "admin", {"replSetGetStatus": 1})) or not options
                assert "come back with an empty directory" not in cluster.tails()
            member.start()
            cluster.wait_for_all()
        agreed(cluster)


def a_member_that_was_removed_comes_back_with_its_data():
    with ReplicaSet() as cluster, cluster.client() as client:
        a = client.test.a
        a.insert_many([{"_id": n} for n in range(100)])
        added = lambda member, n: lambda c: c["members"].append({"_id": n, "host": host(member)})
        for round in ("told", "killed", "started again", "emptied"):
            member = cluster.secondaries()[-1]
            n = next(m["_id"] for m in raw(member, "admin", {"replSetGetConfig": 1})["config"]["members"]
                     if m["host"] == host(member))
            if round == "killed":
                member.kill()
            reconfigure(cluster, lambda c: c["members"].remove(next(m for m in c["members"] if m["_id"] == n)))
            a.with_options(write_concern=WriteConcern("majority")).insert_one({"_id": f"without it, {round}"})
            if round == "started again":
                member.kill()
            if round == "emptied":
                member.kill()
                shutil.rmtree(member.dbpath)
            if not member.is_running():
                member.start()
            before = member.process.pid
            reconfigure(cluster, added(member, n))
            cluster.wait_for_all()
            all_vote(cluster, 3)
            a.with_options(write_concern=WriteConcern(3, wtimeout=20000)).insert_one({"_id": f"with it, {round}"})
            agreed(cluster)
            assert member.process.pid == before and not started_with_a_copy(member), "it needs no copy"
        # Of another set it is nobody's, also with that name.
        with ReplicaSet(members=1) as other:
            with other.client() as theirs:
                theirs.test.a.insert_one({})
            configuration = raw(cluster.wait_for_primary(), "admin", {"replSetGetConfig": 1})["config"]
            configuration["version"] += 1
            configuration["members"].append({"_id": 9, "host": host(other.members[0])})
            reply = raw(cluster.primary(), "admin", {"replSetReconfig": configuration})
            assert reply.get("code") in (23, 110), reply


def a_member_that_was_away_learns_that_it_was_removed():
    """Its log never tells it: whoever refuses its links does."""
    with ReplicaSet() as cluster, cluster.client() as client:
        majority = client.test.a.with_options(write_concern=WriteConcern("majority"))
        member = cluster.secondaries()[-1]
        entry = next(m for m in raw(member, "admin", {"replSetGetConfig": 1})["config"]["members"]
                     if m["host"] == host(member))
        member.kill()
        configuration = reconfigure(
            cluster, lambda c: c.update(members=[m for m in c["members"] if m["_id"] != entry["_id"]]))
        majority.insert_one({"_id": "without it"})
        for _ in range(2):
            member.start()
            wait_until(lambda: "setName" not in member.hello(), "it does not learn that it was removed", cluster.tails)
            hello = member.hello()
            assert not hello["isWritablePrimary"] and not hello["secondary"], hello
            status = raw(member, "admin", {"replSetGetStatus": 1})
            assert status["code"] == 93 and "not a member" in status["errmsg"], status
            known = raw(member, "admin", {"replSetGetConfig": 1})["config"]
            assert known["version"] == configuration["version"], known
            # It stays so after a start, whoever tells it again.
            member.kill()
        member.start()
        reconfigure(cluster, lambda c: c["members"].append(entry))
        cluster.wait_for_all()
        all_vote(cluster, 3)
        client.test.a.with_options(write_concern=WriteConcern(3, wtimeout=20000)).insert_one({"_id": "with it"})
        agreed(cluster)
        assert not started_with_a_copy(member), "it needs no copy"


# A log of some files, which a checkpoint lets go of once memory that holds so little was written out.
SHORT_LOG = ("--oplogSize", "16", "--cacheSize", "64M")


def oplog_begins(member):
    reply = raw(member, "local", {"find": "oplog.rs", "limit": 1, **SECONDARY_OK})
    assert "cursor" in reply, reply
    first = reply["cursor"]["firstBatch"]
    return first[0]["ts"] if first else None


def outgrow_the_log(cluster):
    """Writes until the members' logs do not reach back to where they are now, and leaves nothing of it."""
    with cluster.client() as client:
        newest = []
        while not newest:
            # A checkpoint between the two may leave nothing of a log as short as this.
            client.test.big.insert_one({})
            newest = list(client.local["oplog.rs"].find().sort("$natural", -1).limit(1))
        now = newest[0]["ts"]
        for _ in range(60):
            client.test.big.insert_many([{"bytes": os.urandom(1 << 20)} for _ in range(10)])
            running = [member for member in cluster.members if member.is_running()]
            for member in running:
                raw(member, "admin", {"fsync": 1})
            begins = [oplog_begins(member) for member in running]
            if all(ts is not None and ts > now for ts in begins):
                client.test.big.drop()
                return
    raise AssertionError(f"the logs go on reaching back to {now}: {begins}")


def all_vote(cluster, count):
    """Who copies has no vote before it has caught up."""
    primary = cluster.wait_for_primary()
    voting = lambda: status_of(primary)["votingMembersCount"] == count
    wait_until(voting, f"there are not {count} votes", cluster.tails)


def started_with_a_copy(member):
    return sum("Started with a copy of another" in line for line in member.tail(1 << 22).splitlines())


def a_member_that_was_away_too_long_gets_a_copy():
    with ReplicaSet(*SHORT_LOG) as cluster:
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        away = cluster.secondaries()[0]
        pid = away.process.pid
        away.kill()
        outgrow_the_log(cluster)
        progress(writers)
        away.start()
        pid = away.process.pid
        wait_until(lambda: started_with_a_copy(away) == 1, "it gets no copy", cluster.tails)
        cluster.wait_for_all()
        assert away.process.pid == pid and away.process.poll() is None, "the process stays"
        assert away.hello()["secondary"], away.hello()
        progress(writers)
        documents = end(cluster, writers)
        # It is a member like the others: with one more down, the set goes on with it.
        other = next(member for member in cluster.secondaries() if member is not away)
        other.kill()
        with cluster.client() as client:
            client.test.writes.insert_one({"_id": "with two"})
        away.stop()
        away.start()
        other.start()
        cluster.wait_for_all()
        assert len(agreed(cluster)["writes"]) == len(documents["writes"]) + 1
        assert started_with_a_copy(away) <= 1


def a_member_is_added_when_the_log_has_no_beginning():
    with ReplicaSet(*SHORT_LOG, members=3) as cluster:
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        with cluster.client() as client:
            client.test.writes.create_index("when")
            client.test.create_collection("log", capped=True, size=4096)
        outgrow_the_log(cluster)
        fourth = Fernd("--replSet", cluster.name, *SHORT_LOG)
        fourth.port = lasting_port()
        fourth.start()
        cluster.members.append(fourth)
        reconfigure(cluster, lambda c: c["members"].append({"_id": 3, "host": host(fourth)}))
        cluster.wait_for_all()
        assert started_with_a_copy(fourth) == 1, cluster.tails()
        progress(writers)
        documents = end(cluster, writers)
        assert "log" in documents
        all_vote(cluster, 4)
        # What it has is enough to lead.
        preferred = lambda c: [m.update(priority=5 if m["_id"] == 3 else 1) for m in c["members"]]
        reconfigure(cluster, preferred)
        primary = cluster.wait_for_primary()
        if primary is not fourth:
            raw(primary, "admin", {"replSetStepDown": 30, "secondaryCatchUpPeriodSecs": 10})
        wait_until(lambda: cluster.primary() is fourth, "it does not lead", cluster.tails)
        with cluster.client() as client:
            client.test.writes.insert_one({"_id": "from the fourth"})
        agreed(cluster)


def a_set_of_one_with_data_grows():
    with ReplicaSet(members=3, initiated=False) as cluster:
        first, *others = cluster.members
        with first.client() as client:
            client.admin.command("replSetInitiate", {"_id": "rs", "members": [{"_id": 0, "host": host(first)}]})
        wait_until(lambda: first.hello().get("isWritablePrimary"), "it does not lead itself", cluster.tails)
        writer = Writer(cluster, 0)
        with first.client() as client:
            client.test.kept.insert_many([{"_id": n, "n": n % 7} for n in range(1000)])
            client.test.kept.create_index("n")
            before = client.admin.command("hello")["electionId"]
            configuration = client.admin.command("replSetGetConfig")["config"]
        begin(writer)
        for n, other in enumerate(others, 1):
            reconfigure(cluster, lambda c: c["members"].append({"_id": n, "host": host(other)}))
            progress([writer])
            wait_until(lambda: other.hello().get("secondary"), "it gets no copy", cluster.tails)
            all_vote(cluster, n + 1)
            progress([writer])
        assert started_with_a_copy(others[0]) == 1
        documents = end(cluster, [writer])
        assert [d["_id"] for d in documents["kept"]] == list(range(1000))
        after = cluster.wait_for_primary().hello()
        assert after["electionId"] > before, "drivers would take it for an older primary"
        now = raw(first, "admin", {"replSetGetConfig": 1})["config"]
        assert now["settings"]["replicaSetId"] == configuration["settings"]["replicaSetId"], now
        with first.client(readPreference="secondaryPreferred") as client:
            # What it kept as a set of one is not shown any more.
            assert client.local["system.replset"].find().to_list() == [now]
        # The data is on a majority: its first member may die.
        first.kill()
        cluster.wait_for_primary(but=first)
        with cluster.client() as client:
            assert client.test.kept.count_documents({}) == 1000
            client.test.kept.insert_one({"_id": "later"})
        first.start()
        cluster.wait_for_all()
        assert len(agreed(cluster)["kept"]) == 1001


def a_server_with_data_begins_a_set_with_others():
    with ReplicaSet(initiated=False) as cluster:
        first, *others = cluster.members
        first.stop()
        with_data(first)
        first.start()
        with first.client() as client:
            client.admin.command("replSetInitiate", cluster.config())
        cluster.wait_for_all()
        assert agreed(cluster) == {"a": [{"_id": 1}]}
        all_vote(cluster, 3)
        writers = begin(Writer(cluster, 0))
        first.kill()
        progress(writers)
        first.start()
        cluster.wait_for_all()
        assert end(cluster, writers)["a"] == [{"_id": 1}]


def a_copy_goes_on_where_it_was_interrupted():
    with ReplicaSet(*SHORT_LOG) as cluster:
        with cluster.client() as client:
            for n in range(20):
                client.test.kept.insert_many([{"_id": n * 10 + i, "b": os.urandom(1 << 20)} for i in range(10)])
        away = cluster.secondaries()[0]
        away.kill()
        writer = begin(Writer(cluster, 0))[0]
        outgrow_the_log(cluster)
        data = os.path.join(away.dbpath, "copy", "fern.data")
        copied = lambda: os.stat(data).st_blocks * 512 if os.path.exists(data) else 0
        # Killed in the middle, itself and then its source.
        for share in (20, 60, 100):
            away.start()
            wait_until(lambda: copied() > share << 20 or started_with_a_copy(away), "nothing comes", cluster.tails)
            if started_with_a_copy(away):
                break
            away.kill()
        if not started_with_a_copy(away):
            away.start()
            wait_until(lambda: "it copies the primary" in away.tail(1 << 22), "it does not begin", cluster.tails)
            source = cluster.primary()
            source.kill()
            source.start()
        wait_until(lambda: started_with_a_copy(away), "it gets no copy", cluster.tails)
        cluster.wait_for_all()
        documents = end(cluster, [writer])
        assert len(documents["kept"]) == 200


def a_copy_is_held_to_its_rate():
    # At this rate it takes longer than a test waits for anything.
    rate, most = 256 << 10, 40
    assert most << 20 > 1.25 * rate * PATIENCE
    options = ("--cacheSize", "64M", "--setParameter", f"initialSyncThrottle={rate}")
    with ReplicaSet(*options, members=2, initiated=False) as cluster:
        first, second = cluster.members
        assert raw(first, "admin", {"replSetInitiate": {"_id": "rs", "members": [{"_id": 0, "host": host(first)}]}})["ok"] == 1
        wait_until(lambda: first.hello().get("isWritablePrimary"), "it does not lead itself")
        with first.client() as client:
            client.test.a.insert_many([{"_id": i, "b": os.urandom(1 << 20)} for i in range(most)])
            client.admin.command("fsync")
        reconfigure(cluster, lambda c: c["members"].append({"_id": 1, "host": host(second)}))
        copied = lambda: raw(second, "admin", {"replSetGetStatus": 1}).get("initialSyncStatus", {}).get("receivedBytes")
        before = wait_until(copied, "nothing comes", cluster.tails)
        began = time.monotonic()
        wait_until(lambda: copied() >= before + 8 * rate, "nothing more comes", cluster.tails)
        came, seconds = copied() - before, time.monotonic() - began
        # A part has 512 KiB, and some are on their way.
        assert came <= rate * seconds + (3 << 19), (came, seconds)
        # From now on as fast as it goes.
        assert raw(second, "admin", {"setParameter": 1, "initialSyncThrottle": 0})["was"] == rate
        wait_until(lambda: started_with_a_copy(second), "it gets no copy: a new rate holds from the next part on", cluster.tails)
        assert second.tail(1 << 22).count("it copies the primary's data") == 1, "a copy that is complete is touched by nobody"
        all_vote(cluster, 2)


def a_stream_misses_and_repeats_nothing():
    with ReplicaSet() as cluster:
        with cluster.client() as client:
            start = client.admin.command("ping")["operationTime"]
        follower = Follower(cluster, start)
        follower.start()
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        for how in ("kill", "step down", "kill"):
            primary = cluster.wait_for_primary()
            seen = len(follower.events)
            if how == "kill":
                primary.kill()
                progress(writers)
                primary.start()
                cluster.wait_for_all()
            else:
                raw(primary, "admin", {"replSetStepDown": 5})
            progress(writers)
            wait_until(lambda: len(follower.events) > seen + 20, "the stream does not go on", cluster.tails)
        end(cluster, writers)
        written = sum(writer.acknowledged for writer in writers)
        wait_until(lambda: len(follower.events) >= written, "the stream does not come to the end")
        follower.ending.set()
        follower.join(30)
        assert follower.error is None, follower.error
        check_events(follower.events, writers)
        check_oplogs(cluster, follower.events)


def check_events(events, writers):
    tokens = [event["_id"]["_data"] for event in events]
    assert tokens == sorted(set(tokens)), "an event came twice, or out of its order"
    for writer in writers:
        ids = [event["documentKey"]["_id"] for event in events]
        told = [id["n"] for id in ids if id["writer"] == writer.number]
        assert told == list(range(writer.acknowledged)), "missed, or more than there is"


def check_oplogs(cluster, events):
    """The members' oplogs are the same, and tell what the stream told."""
    oplogs = []
    for member in cluster.members:
        with member.client(readPreference="secondaryPreferred") as client:
            found = client.local["oplog.rs"].find({"ns": "test.writes", "op": "i"})
            oplogs.append([(entry["ts"], entry["o"]["_id"]) for entry in found])
    assert oplogs[0] == oplogs[1] == oplogs[2], [len(o) for o in oplogs]
    assert oplogs[0] == [(e["clusterTime"], e["documentKey"]["_id"]) for e in events]


TESTS = [
    three_members_elect_one_and_say_so,
    a_set_of_one_and_of_two_begin_too,
    secondaries_show_what_was_written,
    secondaries_refuse_by_code,
    secondaries_hand_on_pipelines_that_write,
    a_bad_initiate_is_refused_and_changes_nothing,
    a_killed_primary_is_replaced_unnoticed,
    a_primary_that_dies_at_once_is_replaced,
    a_killed_secondary_comes_back,
    a_step_down_is_not_noticed,
    the_member_of_the_highest_priority_leads_where_it_can,
    a_frozen_member_and_one_in_maintenance_do_not_lead,
    a_stopped_primary_is_not_missed,
    all_are_stopped_and_started,
    a_member_that_was_away_while_the_others_were_started_again_catches_up,
    all_are_killed_at_once,
    a_write_waits_for_as_many_as_it_asks,
    two_of_three_down_acknowledges_nothing,
    a_primary_that_stands_still_is_replaced,
    a_write_sent_again_to_the_next_primary_is_done_once,
    a_transaction_goes_on_with_the_next_primary,
    an_open_transaction_ends_with_its_primary,
    a_changed_configuration_reaches_all,
    the_election_timeout_is_that_of_the_newest_configuration,
    a_member_shows_after_its_start_what_it_has_shown_before,
    an_emptied_member_comes_back_by_itself,
    a_member_that_was_removed_comes_back_with_its_data,
    a_member_that_was_away_learns_that_it_was_removed,
    a_stranger_takes_nobodys_place,
    a_member_that_was_away_too_long_gets_a_copy,
    a_member_is_added_when_the_log_has_no_beginning,
    a_set_of_one_with_data_grows,
    a_server_with_data_begins_a_set_with_others,
    a_copy_goes_on_where_it_was_interrupted,
    a_copy_is_held_to_its_rate,
    a_stream_misses_and_repeats_nothing,
]


if __name__ == "__main__":
    run_tests("replica set", TESTS)
