"""A replica set whose members have a key file: who may join, who may log in, what the others learn of users."""

import concurrent.futures
import os
import signal
import tempfile
import time
import urllib.parse

import pymongo
from bson import Binary, Int64, Timestamp
from fernd import ReplicaSet, fails, host, raw, run_tests, wait_until
from pymongo.errors import OperationFailure, PyMongoError

KEY, OTHER_KEY = "bWVtYmVycyBzaGFyZSB0aGlz", "YW5vdGhlciBrZXkgYWx0b2dldGhlcg=="
SECONDARY_OK = {"$readPreference": {"mode": "secondaryPreferred"}}


class KeyedSet(ReplicaSet):
    """A set with a key file for each member, and a user `root` once it is initiated."""

    def __init__(self, *options, **named):
        super().__init__(*options, **named)
        self.keys = tempfile.mkdtemp(prefix="fernd-keys-")
        for member in self.members:
            self.give_key(member, KEY)

    def key_of(self, member):
        return os.path.join(self.keys, str(member.port))

    def give_key(self, member, text):
        with open(self.key_of(member), "w") as file:
            file.write(text)
        os.chmod(self.key_of(member), 0o600)
        if "--keyFile" not in member.options:
            member.options += ["--keyFile", self.key_of(member)]

    def initiate(self):
        super().initiate()
        with self.wait_for_primary().client() as nobody:
            nobody.admin.command("createUser", "root", pwd="pencil", roles=["root"])

    def client(self, user="root", password="pencil", **options):
        return super().client(**{"username": user, "password": password, "authSource": "admin", **options})

    def one(self, member, user="root", password="pencil", **options):
        """A client of one member alone."""
        return member.client(username=user, password=password, **{"authSource": "admin", **options})


def a_set_begins_without_users_and_asks_everybody_afterwards():
    with KeyedSet() as cluster, cluster.client(w="majority") as root:
        root.test.c.insert_many([{"_id": i} for i in range(100)])
        for member in cluster.members:
            with member.client() as nobody:
                fails(13, lambda: nobody.test.command("count", "c", **SECONDARY_OK))
                fails(13, lambda: nobody.admin.command("replSetGetStatus"))
                fails(13, lambda: nobody.admin.command("createUser", "x", pwd="x", roles=["root"]))
            wait_until(lambda: cluster.one(member).test.command("count", "c", **SECONDARY_OK)["n"] == 100,
                       "a member does not follow", cluster.tails)

        def states():
            return sorted(m["stateStr"] for m in root.admin.command("replSetGetStatus")["members"])

        wait_until(lambda: states() == ["PRIMARY", "SECONDARY", "SECONDARY"], "a member has another state", cluster.tails)


def users_and_writes_outlive_the_primary():
    with KeyedSet() as cluster, cluster.client(w="majority") as root:
        root.test.command("createUser", "reader", pwd="pencil", roles=["read"])
        root.test.c.insert_one({"_id": 1})
        primary = cluster.wait_for_primary()
        primary.kill()
        cluster.wait_for_primary(but=primary)
        root.test.c.insert_one({"_id": 2})
        with cluster.client("reader", authSource="test") as reader:
            assert reader.test.c.count_documents({}) == 2
            fails(13, lambda: reader.test.c.insert_one({}))
        primary.start()
        wait_until(lambda: cluster.one(primary).test.command("count", "c", **SECONDARY_OK)["n"] == 2,
                   "who was killed does not come back", cluster.tails)


def what_is_taken_away_is_felt_on_every_member():
    with KeyedSet() as cluster, cluster.client(w="majority") as root:
        root.test.c.insert_one({"_id": 1})
        root.test.command("createUser", "u", pwd="pencil", roles=["read"])
        secondary = cluster.secondaries()[0]

        def may_come():
            try:
                user = cluster.one(secondary, "u", authSource="test", maxPoolSize=1)
                user.test.command("count", "c", **SECONDARY_OK)
                return user
            except OperationFailure:
                return None

        with wait_until(may_come, "a secondary does not learn of a user", cluster.tails) as user:
            def may_read():
                try:
                    return user.test.command("count", "c", **SECONDARY_OK)["n"] == 1
                except OperationFailure as error:
                    assert error.code == 13, error
                    return False

            for change, reads in (("revokeRolesFromUser", False), ("grantRolesToUser", True)):
                root.test.command(change, "u", roles=["read"])
                wait_until(lambda: may_read() == reads, f"{change} is not felt", cluster.tails)
            root.test.command("dropUser", "u")
            wait_until(lambda: not may_read(), "who was dropped reads on", cluster.tails)


def a_member_with_another_key_does_not_get_in():
    with KeyedSet(initiated=False) as cluster:
        cluster.members[2].stop()
        cluster.give_key(cluster.members[2], OTHER_KEY)
        cluster.members[2].start()
        with cluster.members[0].client() as nobody:
            text = str(fails(74, lambda: nobody.admin.command("replSetInitiate", cluster.config())))
            assert "key files" in text and host(cluster.members[2]) in text, text
        cluster.members[2].stop()
        cluster.give_key(cluster.members[2], KEY)
        cluster.members[2].start()
        cluster.initiate()
        # One of a running set that loses the key is not let in, nor is what it says heard.
        with cluster.client(w="majority") as root:
            secondary = cluster.secondaries()[0]
            secondary.stop()
            cluster.give_key(secondary, OTHER_KEY)
            secondary.start()
            root.test.c.insert_one({"_id": 1})
            wait_until(lambda: "authentication with this member's key file failed" in secondary.tail(1 << 20),
                       "the log says nothing of the key", cluster.tails)
            with cluster.one(secondary) as one:
                assert one.test.command("count", "c", **SECONDARY_OK)["n"] == 0
            secondary.stop()
            cluster.give_key(secondary, KEY)
            secondary.start()
            wait_until(lambda: cluster.one(secondary).test.command("count", "c", **SECONDARY_OK)["n"] == 1,
                       "a member with its key again does not follow", cluster.tails)


def without_a_majority_no_user_is_made_and_nobody_waits_for_ever():
    with KeyedSet() as cluster, cluster.client() as root:
        root.test.c.insert_one({"_id": 1})
        primary = cluster.wait_for_primary()
        with cluster.one(primary) as one, cluster.one(primary) as other:
            for client in (one, other):
                client.admin.command("ping")
            for member in cluster.others(primary):
                os.kill(member.process.pid, signal.SIGSTOP)
            try:
                def make(client, name):
                    # 50: its time is over; 11602, 10107: this member has noticed that it leads no more.
                    try:
                        client.admin.command("createUser", name, pwd="x", roles=[], maxTimeMS=700)
                        return None
                    except OperationFailure as error:
                        return error.code

                with concurrent.futures.ThreadPoolExecutor(2) as pool:
                    codes = list(pool.map(make, (one, other), ("a", "b")))
                assert set(codes) <= {50, 189, 246, 10107, 11602}, codes
            finally:
                for member in cluster.others(primary):
                    os.kill(member.process.pid, signal.SIGCONT)
        cluster.wait_for_all()
        assert root.admin.command("createUser", "c", pwd="x", roles=[])["ok"] == 1


def what_members_ask_each_other_nobody_else_may():
    with KeyedSet() as cluster:
        primary = cluster.wait_for_primary()
        link = {"hello": 1, "fernLink": {"version": 1}}
        asked = [{"_fernMember": 1}, {"_fernJoin": 1, "document": Binary(b""), "founder": 1}, {"_fernCopyBegin": 1},
                 {"_fernCopyRead": 1, "copy": 1}, {"_fernCopyLog": 1, "copy": 1}, {"_fernCopyEnd": 1, "copy": 1}]
        for command in [link, *asked]:
            assert raw(primary, "admin", command)["code"] == 13, command
        with cluster.one(primary) as root:
            for command in [link, *asked]:
                fails(13, lambda: root.admin.command(command))
        with cluster.one(primary, "__system", urllib.parse.unquote(KEY), authSource="local") as member:
            assert member.admin.command("_fernMember", 1)["setName"] == "rs"
            assert member.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"][0]["user"] == "__system"
        with cluster.one(primary, "__system", OTHER_KEY, authSource="local") as stranger:
            fails(18, lambda: stranger.admin.command("ping"))
        with cluster.one(primary) as root:
            fails(2, lambda: root.admin.command("createUser", "__system", pwd="x", roles=[]))
            assert root.admin.command("createUser", "u", pwd="x", roles=[])["ok"] == 1
            fails(31, lambda: root.admin.command("grantRolesToUser", "u", roles=["__system"]))


def the_key_changes_one_member_after_another():
    with KeyedSet() as cluster, cluster.client(w="majority") as root:
        written = 0
        for text in (f"- {KEY}\n- {OTHER_KEY}\n", f"- {OTHER_KEY}\n- {KEY}\n", OTHER_KEY):
            for member in cluster.members:
                member.stop()
                cluster.give_key(member, text)
                member.start()
                cluster.wait_for_all()
                root.test.c.insert_one({"_id": written})
                written += 1
        for member in cluster.members:
            wait_until(lambda: cluster.one(member).test.command("count", "c", **SECONDARY_OK)["n"] == written,
                       "a member does not follow", cluster.tails)


def an_emptied_member_gets_a_copy_with_its_key():
    with KeyedSet() as cluster, cluster.client(w="majority") as root:
        root.test.c.insert_many([{"_id": i, "x": "x" * 1000} for i in range(2000)])
        secondary = cluster.secondaries()[0]
        secondary.kill()
        for name in os.listdir(secondary.dbpath):
            path = os.path.join(secondary.dbpath, name)
            os.system(f"rm -rf '{path}'")
        secondary.start()

        def is_back():
            try:
                with cluster.one(secondary) as one:
                    return one.test.command("count", "c", **SECONDARY_OK)["n"] == 2000
            except PyMongoError:
                return False

        wait_until(is_back, "an emptied member does not come back", cluster.tails)


def a_set_without_users_turns_them_on_one_member_after_another():
    with KeyedSet(initiated=False) as cluster:
        for member in cluster.members:
            member.stop()
            member.options = member.options[:-2]
            member.start()
        ReplicaSet.initiate(cluster)
        plain = pymongo.MongoClient(cluster.uri(), w="majority", serverSelectionTimeoutMS=30000)
        plain.test.c.insert_one({"_id": "before"})
        plain.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        for options in (["--transitionToAuth"], []):
            for member in cluster.members:
                member.stop()
                member.options = [*member.options[:2], "--keyFile", cluster.key_of(member), *options]
                member.start()
                cluster.wait_for_all()
                with cluster.client(w="majority") as root:
                    root.test.c.insert_one({})
        with cluster.client() as root:
            assert root.test.c.count_documents({}) == 7
        fails(13, lambda: plain.test.c.find_one())
        plain.close()


def what_is_shown(member, user):
    """The salt that a member shows for a name, which may be nobody's."""
    first = Binary(f"n,,n={user},r=abcdefgh".encode())
    reply = raw(member, "admin", {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": first})
    return bytes(reply["payload"]).decode().split(",")[1]


def times_are_signed_and_believed_by_every_member():
    with KeyedSet() as cluster, cluster.client(w="majority") as root:
        root.test.c.insert_one({"_id": 1})
        root.test.command("createUser", "u", pwd="pencil", roles=["readWrite"])

        def told(member):
            return raw(member, "admin", {"ping": 1}).get("$clusterTime")

        for member in cluster.members:
            wait_until(lambda: told(member), "a member signs no time", cluster.tails)
            signature = told(member)["signature"]
            assert signature["keyId"] > 0 and any(signature["hash"]), signature
        # A driver carries times from one member to the others.
        with cluster.client("u", authSource="test", readPreference="secondary", readConcernLevel="majority") as user:
            with user.start_session(causal_consistency=True) as session:
                for n in range(20):
                    user.test.c.insert_one({"_id": f"s{n}"}, session=session)
                    assert user.test.c.find_one({"_id": f"s{n}"}, session=session), n
            newest = max((told(member) for member in cluster.members), key=lambda time: time["clusterTime"])
            later = Timestamp(newest["clusterTime"].time + 1000, 1)
            none = {"hash": Binary(bytes(20)), "keyId": Int64(0)}
            for forged, code in (({**newest, "clusterTime": later}, 204), ({"clusterTime": later, "signature": none}, 211)):
                for member in cluster.members:
                    with cluster.one(member, "u", authSource="test") as one, one.start_session() as session:
                        session.advance_cluster_time(forged)
                        fails(code, lambda: one.test.command("count", "c", session=session, **SECONDARY_OK))
        # The set is another process tomorrow, and goes on.
        primary = cluster.wait_for_primary()
        primary.kill()
        cluster.wait_for_primary(but=primary)
        primary.start()
        with cluster.client("u", authSource="test") as user, user.start_session() as session:
            session.advance_cluster_time(newest)
            assert user.test.c.count_documents({}, session=session) == 21


def who_does_not_exist_looks_alike_on_every_member():
    with KeyedSet() as cluster:
        shown = lambda user: {what_is_shown(member, user) for member in cluster.members}
        wait_until(lambda: len(shown("root")) == 1, "the members do not know the user yet", cluster.tails)
        ghost = shown("ghost")
        assert len(ghost) == 1 and ghost != shown("root") and ghost != shown("ghost2"), ghost
        # Also after the key was changed, and after a start, as those of users are.
        for member in cluster.members:
            cluster.give_key(member, f"- {OTHER_KEY}\n- {KEY}\n")
            assert member.stop() == 0
            member.start()
            wait_until(lambda: what_is_shown(member, "root"), "it does not come back", cluster.tails)
            assert what_is_shown(member, "ghost") in ghost
        cluster.wait_for_all()


class KeyedSetWithArbiter(KeyedSet):
    def config(self):
        config = super().config()
        config["members"][2]["arbiterOnly"] = True
        return config


def an_arbiter_helps_who_has_the_key_and_lets_no_user_in():
    with KeyedSetWithArbiter() as cluster, cluster.client(w="majority") as root:
        arbiter = cluster.members[2]
        primary = cluster.wait_for_primary()
        secondary = next(m for m in cluster.members[:2] if m is not primary)
        states = lambda: sorted(m["stateStr"] for m in root.admin.command("replSetGetStatus")["members"])
        wait_until(lambda: states() == ["ARBITER", "PRIMARY", "SECONDARY"], "a member has another state", cluster.tails)
        # It has no users: who is on its machine may look at it, as with MongoDB's, and do nothing else.
        assert arbiter.hello()["arbiterOnly"]
        with arbiter.client() as nobody:
            assert nobody.admin.command("replSetGetStatus")["myState"] == 7
            fails(13, lambda: nobody.test.command("find", "c", **SECONDARY_OK))
            fails(13, lambda: nobody.admin.command("replSetFreeze", 5))
            fails(13, lambda: nobody.admin.command("createUser", "x", pwd="x", roles=["root"]))
            config = root.admin.command("replSetGetConfig")["config"]
            for force in (False, True):
                fails(13, lambda: nobody.admin.command("replSetReconfig", config, force=force))
        with cluster.one(arbiter) as user:
            fails(18, lambda: user.test.command("count", "c", **SECONDARY_OK))
        # A user and a document of the primary and the arbiter are there when the primary is gone.
        secondary.kill()
        root.test.command("createUser", "late", pwd="pencil", roles=["read"])
        root.test.c.insert_one({"_id": "with the arbiter"})
        primary.kill()
        secondary.start()
        wait_until(lambda: cluster.primary() is secondary, "it does not lead", cluster.tails)
        with cluster.client("late", authSource="test") as late:
            assert late.test.c.find_one() == {"_id": "with the arbiter"}
        primary.start()
        cluster.wait_for_all()
        # With another key it votes for nobody.
        arbiter.stop()
        cluster.give_key(arbiter, OTHER_KEY)
        arbiter.start()
        wait_until(lambda: "authentication with this member's key file failed" in arbiter.tail(1 << 20),
                   "the log says nothing of the key", cluster.tails)
        old = cluster.wait_for_primary()
        other = next(m for m in cluster.members[:2] if m is not old)
        old.kill()
        time.sleep(5)
        assert not other.hello()["isWritablePrimary"], "it was elected without a majority"
        arbiter.stop()
        cluster.give_key(arbiter, KEY)
        arbiter.start()
        wait_until(lambda: cluster.primary() is other, "it does not lead", cluster.tails)
        root.test.c.insert_one({"_id": "with its key again"})
        old.start()
        cluster.wait_for_all()


TESTS = [
    a_set_begins_without_users_and_asks_everybody_afterwards,
    users_and_writes_outlive_the_primary,
    what_is_taken_away_is_felt_on_every_member,
    a_member_with_another_key_does_not_get_in,
    without_a_majority_no_user_is_made_and_nobody_waits_for_ever,
    what_members_ask_each_other_nobody_else_may,
    the_key_changes_one_member_after_another,
    an_emptied_member_gets_a_copy_with_its_key,
    a_set_without_users_turns_them_on_one_member_after_another,
    times_are_signed_and_believed_by_every_member,
    who_does_not_exist_looks_alike_on_every_member,
    an_arbiter_helps_who_has_the_key_and_lets_no_user_in,
]


if __name__ == "__main__":
    run_tests("replica set with a key file", TESTS)
