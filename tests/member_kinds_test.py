"""Members of a replica set that are not like the others: arbiters, delayed members, members without indexes; and a member
that is forced to go on alone."""

import os
import shutil
import time

from fernd import Fernd, ReplicaSet, host, lasting_port, raw, run_tests, wait_until
from pymongo import IndexModel
from pymongo.errors import DuplicateKeyError, WriteConcernError, WTimeoutError
from pymongo.write_concern import WriteConcern
from replica_set_test import (SECONDARY_OK, SHORT_LOG, Writer, agreed, all_vote, begin, code_of, contents, outgrow_the_log,
                              progress, reconfigure, started_with_a_copy, status_of)

NOT_PRIMARY, NOT_PRIMARY_OR_SECONDARY = 10107, 13436
INVALID, INCOMPATIBLE, NOT_ELECTABLE, INTERRUPTED = 93, 103, 104, 11602
ARBITER = 7


class WithArbiter(ReplicaSet):
    """Two members with data, and an arbiter."""

    def config(self):
        config = super().config()
        config["members"][2]["arbiterOnly"] = True
        return config

    def arbiter(self):
        return self.members[2]

    def with_data(self):
        primary = self.wait_for_primary()
        return primary, next(m for m in self.members[:2] if m is not primary)


def same(cluster, members):
    """What the members with data have, which is the same."""
    found = lambda: contents(members[0]) == contents(members[1])
    wait_until(found, "they do not have the same", cluster.tails)
    return documents_of(members[0])


def documents_of(member):
    return contents(member)["documents"]


def votes_count(cluster, count):
    """So many vote, and what is acknowledged from here on needs no vote of the configuration before."""
    all_vote(cluster, count)
    with cluster.client() as client:
        client.test.votes.insert_one({})


def told(member, words):
    return sum(words in line for line in member.tail(1 << 22).splitlines())


def an_arbiter_votes_and_shows_nothing():
    with WithArbiter() as cluster:
        primary, secondary = cluster.with_data()
        arbiter = cluster.arbiter()
        # It learns from the primary who that is.
        wait_until(lambda: "primary" in arbiter.hello(), "it knows no primary", cluster.tails)
        hello = arbiter.hello()
        assert hello["arbiterOnly"] and hello["arbiters"] == [host(arbiter)], hello
        assert not hello["isWritablePrimary"] and not hello["secondary"] and hello["primary"] == host(primary), hello
        assert host(arbiter) not in hello["hosts"] + hello.get("passives", []), hello
        for member in cluster.members:
            wait_until(lambda: {m["stateStr"] for m in status_of(member)["members"]} == {"PRIMARY", "SECONDARY", "ARBITER"},
                       "the states are others", lambda: status_of(member))
            status = status_of(member)
            row = next(m for m in status["members"] if m["name"] == host(arbiter))
            assert row["state"] == ARBITER and "optime" not in row, row
            counts = [status[f"{name}Count"] for name in
                      ("votingMembers", "majorityVote", "writeMajority", "writableVotingMembers")]
            assert counts == [3, 2, 2, 2], status
        assert status_of(arbiter)["myState"] == ARBITER
        read = raw(arbiter, "test", {"find": "a", **SECONDARY_OK})
        assert code_of(read) == (0, NOT_PRIMARY_OR_SECONDARY), read
        for command in ({"insert": "a", "documents": [{}]}, {"create": "a"}):
            assert code_of(raw(arbiter, "test", command)) == (0, NOT_PRIMARY), command
        with cluster.client() as client:
            wait_until(lambda: ("127.0.0.1", arbiter.port) in client.arbiters, "the driver does not know it")
            a = client.test.a
            a.insert_many([{"_id": n, "text": "x" * 1000} for n in range(1000)])
            assert same(cluster, [primary, secondary]) == {"a": [{"_id": n, "text": "x" * 1000} for n in range(1000)]}
            # It counts for the majority, and for no number of members.
            secondary.kill()
            a.with_options(write_concern=WriteConcern("majority")).insert_one({"_id": "with the arbiter"})
            for concern, error in ((WriteConcern(2, wtimeout=300), WTimeoutError), (WriteConcern(3), WriteConcernError)):
                try:
                    a.with_options(write_concern=concern).insert_one({"_id": str(concern)})
                    raise AssertionError(f"{concern} is satisfied by an arbiter")
                except error:
                    pass
            secondary.start()
            cluster.wait_for_all()
            primary.kill()
            assert cluster.wait_for_primary(but=primary) is secondary
            a.insert_one({"_id": "by the secondary"})
            primary.start()
            cluster.wait_for_all()
            assert len(same(cluster, [primary, secondary])["a"]) == 1004


def what_was_acknowledged_with_the_arbiter_outlives_the_primary():
    with WithArbiter() as cluster, cluster.client() as client:
        primary, secondary = cluster.with_data()
        client.test.writes.insert_one({"_id": "all three"})
        same(cluster, [primary, secondary])
        secondary.kill()
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        progress(writers, 200)
        arbiter = cluster.arbiter()
        # Over a restart of the arbiter too.
        arbiter.kill()
        arbiter.start()
        progress(writers, 200)
        primary.kill()
        time.sleep(6)
        assert cluster.primary() is None, "an arbiter that is alone makes no primary"
        secondary.start()
        wait_until(lambda: cluster.primary() is secondary, "it does not lead", cluster.tails)
        progress(writers)
        for writer in writers:
            writer.ending.set()
        for writer in writers:
            writer.join()
        documents = documents_of(secondary)
        for writer in writers:
            writer.check({"writes": [d for d in documents["writes"] if isinstance(d["_id"], dict)],
                          "counters": documents["counters"]})
        primary.start()
        cluster.wait_for_all()
        assert same(cluster, [primary, secondary]) == documents


def an_arbiter_is_added_where_the_log_has_no_beginning_and_comes_back_emptied():
    with ReplicaSet(*SHORT_LOG, members=2) as cluster:
        outgrow_the_log(cluster)
        arbiter = Fernd("--replSet", cluster.name, *SHORT_LOG)
        arbiter.port = lasting_port()
        arbiter.start()
        cluster.members.append(arbiter)
        both = cluster.members[:2]
        reconfigure(cluster, lambda c: c["members"].append({"_id": 2, "host": host(arbiter), "arbiterOnly": True}))
        cluster.wait_for_all()
        votes_count(cluster, 3)
        for round in range(2):
            primary = cluster.wait_for_primary()
            other = next(m for m in both if m is not primary)
            other.kill()
            with cluster.client() as client:
                client.test.a.insert_one({"_id": round})
            other.start()
            cluster.wait_for_all()
            same(cluster, both)
            if round == 0:
                arbiter.kill()
                shutil.rmtree(arbiter.dbpath)
                arbiter.start()
                wait_until(lambda: arbiter.hello().get("arbiterOnly"), "it does not come back", cluster.tails)
                votes_count(cluster, 3)
        # It keeps next to nothing while all are well.
        kept = os.path.join(arbiter.dbpath, "witness")
        assert sum(os.path.getsize(os.path.join(kept, name)) for name in os.listdir(kept)) < 300 << 20
        reconfigure(cluster, lambda c: c["members"].pop())
        votes_count(cluster, 2)


def a_removed_arbiter_starts_again_and_is_added_again():
    with WithArbiter() as cluster:
        primary, secondary = cluster.with_data()
        arbiter = cluster.arbiter()
        with cluster.client() as client:
            client.test.a.insert_one({"_id": "before"})
        for round in range(3):
            if round == 1:
                # Its log never tells it.
                arbiter.kill()
            reconfigure(cluster, lambda c: c["members"].pop())
            votes_count(cluster, 2)
            if round == 1:
                arbiter.start()
            wait_until(lambda: "setName" not in arbiter.hello() or not arbiter.hello().get("arbiterOnly"),
                       "it does not learn that it is removed", cluster.tails)
            with cluster.client() as client:
                client.test.a.insert_one({"_id": f"without it {round}"})
            # Killed or ended, it starts with what it has, and is no member.
            arbiter.kill() if round else arbiter.stop()
            arbiter.start()
            assert not arbiter.hello()["isWritablePrimary"] and not arbiter.hello()["secondary"], arbiter.hello()
            reconfigure(cluster, lambda c: c["members"].append(
                {"_id": 3 + round, "host": host(arbiter), "arbiterOnly": True}))
            wait_until(lambda: arbiter.hello().get("arbiterOnly"), "it is no arbiter again", cluster.tails)
            votes_count(cluster, 3)
            # Its vote and its log count.
            other = next(m for m in (primary, secondary) if m is not cluster.wait_for_primary())
            other.kill()
            with cluster.client() as client:
                client.test.a.insert_one({"_id": f"with it {round}"})
            other.start()
            cluster.wait_for_all()
        assert len(same(cluster, [primary, secondary])["a"]) == 7
        # As a member with data it is refused: it has none.
        reconfigure(cluster, lambda c: c["members"].pop())
        votes_count(cluster, 2)
        arbiter.kill()
        arbiter.start()
        configuration = raw(cluster.wait_for_primary(), "admin", {"replSetGetConfig": 1})["config"]
        configuration["members"].append({"_id": 9, "host": host(arbiter)})
        configuration["version"] += 1
        reply = raw(cluster.wait_for_primary(), "admin", {"replSetReconfig": configuration})
        assert reply["ok"] == 0 and "another kind of member" in reply["errmsg"], reply


def an_arbiter_says_when_its_log_is_as_long_as_it_may_be():
    with WithArbiter(*SHORT_LOG) as cluster:
        primary, secondary = cluster.with_data()
        arbiter = cluster.arbiter()
        warnings = lambda: status_of(arbiter).get("warnings", [])
        # Nothing that all have is missed by anybody.
        with cluster.client() as client:
            for _ in range(10):
                client.test.big.insert_many([{"bytes": os.urandom(1 << 20)} for _ in range(10)])
        same(cluster, [primary, secondary])
        assert not warnings() and not told(arbiter, '"id":9016880'), warnings()
        secondary.kill()
        with cluster.client() as client:
            for _ in range(10):
                client.test.big.insert_many([{"bytes": os.urandom(1 << 20)} for _ in range(10)])
        wait_until(warnings, "it says nothing", cluster.tails)
        assert "as long as it may be" in warnings()[0], warnings()
        assert told(arbiter, '"id":9016880') == 1
        assert "warnings" not in status_of(primary)
        secondary.start()
        cluster.wait_for_all()
        same(cluster, [primary, secondary])
        wait_until(lambda: not warnings(), "it warns of what is over", cluster.tails)
        assert told(arbiter, '"id":9016880') == 1


def what_no_arbiter_can_be_is_refused():
    with WithArbiter() as cluster:
        primary, _ = cluster.with_data()
        configuration = raw(primary, "admin", {"replSetGetConfig": 1})["config"]

        def refused(code, words, change):
            config = {**configuration, "members": [dict(m) for m in configuration["members"]],
                      "version": configuration["version"] + 1}
            change(config["members"])
            reply = raw(primary, "admin", {"replSetReconfig": config})
            assert reply.get("code") == code and words in reply["errmsg"], reply

        refused(INVALID, "priority 0", lambda m: m[2].update(priority=2))
        refused(INVALID, "must vote", lambda m: m[2].update(votes=0, priority=0))
        refused(INVALID, "tags", lambda m: m[2].update(tags={"a": "b"}))
        refused(INVALID, "Multiple arbiters", lambda m: m.append({"_id": 3, "host": "127.0.0.1:1", "arbiterOnly": True}))
        refused(INCOMPATIBLE, "arbiterOnly", lambda m: m[2].update(arbiterOnly=False))
    with ReplicaSet(members=2, initiated=False) as cluster:
        config = cluster.config()
        config["members"][0]["arbiterOnly"] = True
        reply = raw(cluster.members[0], "admin", {"replSetInitiate": config})
        assert reply.get("code") == NOT_ELECTABLE, reply


class WithDelay(ReplicaSet):
    """Two members, and one that shows everything some seconds late."""

    seconds = 6

    def config(self):
        config = super().config()
        config["members"][2].update(priority=0, secondaryDelaySecs=self.seconds)
        return config

    def delayed(self):
        return self.members[2]

    def in_time(self):
        primary = self.wait_for_primary()
        return primary, next(m for m in self.members[:2] if m is not primary)

    def write(self, _id):
        """A document that all three have when this returns; and when it was written."""
        with self.client() as client:
            began = time.time()
            client.test.a.with_options(write_concern=WriteConcern(3, wtimeout=20_000)).insert_one({"_id": _id})
            took = time.time() - began
            assert took < self.seconds - 2, f"a delayed member acknowledges what it has on disk: {took}"
            return time.time()

    def shows(self, _id):
        reply = raw(self.delayed(), "test", {"find": "a", "filter": {"_id": _id}, **SECONDARY_OK})
        return bool(reply["cursor"]["firstBatch"])

    def shows_in_time(self, _id, written):
        """Never before its time, and soon after it."""
        while not self.shows(_id):
            assert time.time() < written + self.seconds + 6, f"{_id} is not shown: {status_of(self.delayed())}"
            time.sleep(0.05)
        late = time.time() - written
        assert late > self.seconds - 0.5, f"{_id} is shown after {late} seconds"


def set_delay(cluster, seconds, **fields):
    reconfigure(cluster, lambda c: c["members"][2].update(secondaryDelaySecs=seconds, **fields))


def a_delayed_member_shows_what_is_old_enough():
    with WithDelay() as cluster:
        primary, _ = cluster.in_time()
        delayed = cluster.delayed()
        hello = delayed.hello()
        assert hello["secondary"] and hello["passive"] and hello["secondaryDelaySecs"] == cluster.seconds, hello
        assert host(delayed) not in hello["hosts"] and host(delayed) in hello["passives"], hello
        written = cluster.write("first")
        assert not cluster.shows("first")
        held_back = status_of(delayed)["heldBack"]
        assert held_back["entries"] > 0 and held_back["bytes"] > 0, held_back
        assert held_back["secondaryDelaySecs"] == cluster.seconds and not held_back["shownEarlyForWantOfRoom"], held_back
        assert "heldBack" not in status_of(primary)
        # The others say how far behind it is.
        behind = lambda: [m["optimeDate"] for m in status_of(primary)["members"]]
        wait_until(lambda: (max(behind()) - behind()[2]).total_seconds() >= cluster.seconds - 3, "it is not behind", cluster.tails)
        cluster.shows_in_time("first", written)
        # Over a kill; it votes and holds back as before.
        written = cluster.write("before the kill")
        delayed.kill()
        delayed.start()
        cluster.wait_for_all()
        assert not cluster.shows("before the kill")
        cluster.shows_in_time("before the kill", written)
        with delayed.client() as client:
            assert client.test.a.find_one({"_id": "first"}), "what was shown stays"


def another_delay_counts_at_once():
    with WithDelay() as cluster:
        cluster.in_time()
        delayed = cluster.delayed()
        set_delay(cluster, 3600)
        cluster.write("an hour")
        time.sleep(cluster.seconds + 2)
        assert not cluster.shows("an hour")
        set_delay(cluster, 0)
        wait_until(lambda: cluster.shows("an hour"), "it does not catch up", cluster.tails)
        wait_until(lambda: "heldBack" not in status_of(delayed), "it holds back", cluster.tails)
        # It is a member like the others now, and may lead.
        set_delay(cluster, 0, priority=5)
        wait_until(lambda: cluster.primary() is delayed, "it does not lead", cluster.tails)
        with cluster.client() as client:
            client.test.a.insert_one({"_id": "by itself"})
        # Who leads and becomes delayed hands over first.
        config = raw(delayed, "admin", {"replSetGetConfig": 1})["config"]
        config["version"] += 1
        config["members"][2].update(secondaryDelaySecs=cluster.seconds, priority=0)
        reply = raw(delayed, "admin", {"replSetReconfig": config})
        assert code_of(reply) in ((1, None), (0, INTERRUPTED)), reply
        cluster.wait_for_primary(but=delayed)
        wait_until(lambda: "heldBack" in status_of(delayed), "it is not delayed", cluster.tails)
        cluster.shows_in_time("afterwards", cluster.write("afterwards"))
        delayed.kill()
        delayed.start()
        cluster.wait_for_all()
        assert len(documents_of(cluster.wait_for_primary())["a"]) == 3
        wait_until(lambda: documents_of(delayed) == documents_of(cluster.primary()), "it lacks something", cluster.tails)


def what_was_acknowledged_with_a_delayed_member_outlives_the_primary():
    with WithDelay() as cluster:
        cluster.seconds = 30
        set_delay(cluster, 30)
        primary, other = cluster.in_time()
        cluster.write("all three")
        other.kill()
        writers = begin(Writer(cluster, 0), Writer(cluster, 1))
        progress(writers, 200)
        delayed = cluster.delayed()
        delayed.kill()
        delayed.start()
        progress(writers, 200)
        primary.kill()
        time.sleep(6)
        assert cluster.primary() is None and not delayed.hello()["isWritablePrimary"]
        other.start()
        wait_until(lambda: cluster.primary() is other, "it does not lead", cluster.tails)
        assert not cluster.shows("all three") and "writes" not in documents_of(delayed), "it shows nothing for that"
        progress(writers)
        for writer in writers:
            writer.ending.set()
        for writer in writers:
            writer.join()
        documents = documents_of(other)
        for writer in writers:
            writer.check({"writes": [d for d in documents["writes"] if isinstance(d["_id"], dict)],
                          "counters": documents["counters"]})
        primary.start()
        cluster.wait_for_all()
        set_delay(cluster, 0)
        for member in (primary, delayed):
            wait_until(lambda: documents_of(member) == documents, "it lacks something", cluster.tails)


def a_delayed_member_gets_a_copy_and_goes_on_alone():
    with WithDelay(*SHORT_LOG) as cluster:
        primary, other = cluster.in_time()
        delayed = cluster.delayed()
        cluster.shows_in_time("before", cluster.write("before"))
        set_delay(cluster, 3600)
        cluster.write("held back, and not in the copy's log")
        delayed.kill()
        outgrow_the_log(cluster)
        with cluster.client() as client:
            client.test.a.insert_one({"_id": "in the copy"})
        delayed.start()
        wait_until(lambda: started_with_a_copy(delayed) == 1, "it gets no copy", cluster.tails)
        cluster.wait_for_all()
        # A copy is as new as its source, as in MongoDB; what comes behind it is held back.
        assert cluster.shows("in the copy")
        all_vote(cluster, 3)
        cluster.write("behind the copy")
        time.sleep(2)
        assert not cluster.shows("behind the copy")
        # The others are lost: it has what it held back.
        primary.kill()
        other.kill()
        configuration = raw(delayed, "admin", {"replSetGetConfig": 1})["config"]
        member = {**configuration["members"][2], "priority": 1, "secondaryDelaySecs": 0}
        configuration.update(version=configuration["version"] + 1, members=[member])
        wait_until(lambda: raw(delayed, "admin", {"replSetReconfig": configuration, "force": True})["ok"] == 1,
                   "it is not forced", cluster.tails)
        assert cluster.wait_for_primary() is delayed
        assert {d["_id"] for d in documents_of(delayed)["a"]} == {"before", "held back, and not in the copy's log",
                                                                   "in the copy", "behind the copy"}
        with delayed.client() as client:
            client.test.a.insert_one({"_id": "alone"})


def members_follow_the_primary_and_nobody_else():
    with WithArbiter() as cluster:
        primary, secondary = cluster.with_data()
        asked = lambda member, host: raw(member, "admin", {"replSetSyncFrom": host})
        reply = asked(secondary, host(primary))
        assert (reply["ok"], reply["syncFromRequested"], reply["prevSyncTarget"]) == (1, host(primary), host(primary)), reply
        assert status_of(secondary)["syncSourceHost"] == host(primary)
        for member, to, code, words in ((primary, host(secondary), 95, "primaries"),
                                        (cluster.arbiter(), host(primary), 95, "arbiters"),
                                        (secondary, "127.0.0.1:1", 74, "find member"),
                                        (secondary, host(secondary), 72, "myself"),
                                        (secondary, host(cluster.arbiter()), 72, "arbiter"),
                                        (secondary, 7, 14, "type")):
            reply = asked(member, to)
            assert reply.get("code") == code and words in reply["errmsg"], (to, reply)
    with ReplicaSet() as cluster:
        primary = cluster.wait_for_primary()
        one, other = cluster.others(primary)
        reply = raw(one, "admin", {"replSetSyncFrom": host(other)})
        assert reply.get("code") == 72 and host(primary) in reply["errmsg"], reply
        primary.kill()
        other.kill()
        wait_until(lambda: raw(one, "admin", {"replSetSyncFrom": host(other)}).get("code") == 6, "it follows somebody",
                   cluster.tails)


def what_no_delayed_member_can_be_is_refused():
    with WithDelay() as cluster:
        primary, _ = cluster.in_time()
        configuration = raw(primary, "admin", {"replSetGetConfig": 1})["config"]
        assert configuration["members"][2]["secondaryDelaySecs"] == cluster.seconds, configuration

        def changed(change):
            config = {**configuration, "members": [dict(m) for m in configuration["members"]],
                      "version": raw(primary, "admin", {"replSetGetConfig": 1})["config"]["version"] + 1}
            change(config["members"])
            return raw(primary, "admin", {"replSetReconfig": config})

        def refused(words, change):
            reply = changed(change)
            assert reply.get("code") == INVALID and words in reply["errmsg"], reply

        refused("priority must be 0", lambda m: m[2].update(priority=2))
        refused("secondaryDelaySecs", lambda m: m[2].update(secondaryDelaySecs=-1))
        refused("old name", lambda m: m[2].update(slaveDelay=1))
        refused("arbiters", lambda m: m.append({"_id": 3, "host": "127.0.0.1:1", "arbiterOnly": True,
                                                "secondaryDelaySecs": 1}))
        # Shells from before MongoDB 5, and TokuMX's, say it so.
        reply = changed(lambda m: (m[2].pop("secondaryDelaySecs"), m[2].update(slaveDelay=9)))
        assert reply["ok"] == 1, reply
        now = raw(primary, "admin", {"replSetGetConfig": 1})["config"]["members"][2]
        assert now["secondaryDelaySecs"] == 9 and "slaveDelay" not in now, now


def a_member_goes_on_alone_and_the_others_begin_anew():
    with ReplicaSet() as cluster:
        primary = cluster.wait_for_primary()
        with cluster.client() as client:
            client.test.a.insert_many([{"_id": n} for n in range(500)])
        agreed(cluster)
        alone, other = cluster.others(primary)
        configuration = raw(primary, "admin", {"replSetGetConfig": 1})["config"]
        configuration["version"] += 1
        early = raw(alone, "admin", {"replSetReconfig": configuration, "force": True})
        assert early.get("code") == INCOMPATIBLE and "primary" in early["errmsg"], early
        # What only the others have is given up.
        alone.kill()
        with cluster.client() as client:
            client.test.a.insert_one({"_id": "given up"})
            # That it is decided stands with what follows it.
            for n in range(3):
                client.test.a.insert_one({"_id": f"given up too {n}"})
        primary.kill()
        other.kill()
        alone.start()
        wait_until(lambda: alone.hello().get("secondary"), "it does not start", cluster.tails)
        unforced = raw(alone, "admin", {"replSetReconfig": configuration})
        assert code_of(unforced) == (0, NOT_PRIMARY), unforced
        strange = {**configuration, "members": configuration["members"] + [{"_id": 9, "host": "127.0.0.1:1"}]}
        reply = raw(alone, "admin", {"replSetReconfig": strange, "force": True})
        assert reply.get("code") == INCOMPATIBLE and "add it" in reply["errmsg"], reply
        pid = alone.process.pid
        reply = raw(alone, "admin", {"replSetReconfig": configuration, "force": True})
        assert reply["ok"] == 1 and "given up" in reply["note"], reply
        assert cluster.wait_for_primary() is alone and alone.process.pid == pid
        status = status_of(alone)
        assert status["votingMembersCount"] == 1 and "given up" in status["forcedReconfig"], status
        now = raw(alone, "admin", {"replSetGetConfig": 1})["config"]
        assert now["version"] >= configuration["version"] + 10_000, now
        with alone.client() as client:
            a = client.test.get_collection("a", write_concern=WriteConcern("majority"))
            a.insert_one({"_id": "alone"})
            assert a.count_documents({}) == 501
        # Who was left behind is refused, keeps what it has, and decides nothing.
        primary.start()
        left = "took different ways when the set was forced"
        wait_until(lambda: told(primary, left) and told(alone, left), "nothing is said of it", cluster.tails)
        time.sleep(5)
        assert cluster.primary() is alone and not primary.hello()["isWritablePrimary"]
        assert told(alone, left) <= 3, "it is said again and again"
        # Nobody tells it what is decided of what it has: it shows that after a while.
        wait_until(lambda: primary.hello()["secondary"], "it shows nothing", cluster.tails)
        assert {"_id": "given up"} in documents_of(primary)["a"], "nothing is rolled back"
        assert raw(primary, "admin", {"replSetGetConfig": 1})["config"]["version"] < now["version"]
        # Emptied, they are filled again and vote.
        for member in (primary, other):
            if member.is_running():
                member.kill()
            shutil.rmtree(member.dbpath)
            member.start()
            wait_until(lambda: member.hello().get("secondary"), "it does not come back", cluster.tails)
        votes_count(cluster, 3)
        alone.stop()
        cluster.wait_for_primary(but=alone)
        with cluster.client() as client:
            client.test.a.insert_one({"_id": "by another one"})
        alone.start()
        cluster.wait_for_all()
        documents = agreed(cluster)["a"]
        assert len(documents) == 502 and {"_id": "given up"} not in documents, len(documents)


class WithoutIndexes(ReplicaSet):
    """Two members, and one that has no indexes but those on `_id`."""

    def config(self):
        config = super().config()
        config["members"][2].update(priority=0, buildIndexes=False)
        return config

    def bare(self):
        return self.members[2]

    def with_indexes(self):
        primary = self.wait_for_primary()
        return primary, next(m for m in self.members[:2] if m is not primary)

    def agreed(self):
        """The documents, once all running members have the same."""
        members = [member for member in self.members if member.is_running()]
        what = lambda member: {key: found for key, found in contents(member).items() if key != "indexes"}
        wait_until(lambda: all(what(member) == what(members[0]) for member in members), "they differ", self.tails)
        return documents_of(members[0])


def indexes_of(member):
    with member.client(readPreference="secondaryPreferred") as client:
        db = client.test
        return {name: sorted(db[name].index_information()) for name in sorted(db.list_collection_names())}


def read(member, command):
    return raw(member, "test", {**command, **SECONDARY_OK})


def fill_with_indexes(client):
    """Indexes of every kind, made before their documents and after them; what a member has without them."""
    db = client.test
    db.before.create_index("x")
    db.before.create_index("mail", unique=True)
    db.before.create_index([("text", "text")])
    db.before.create_index([("place", "2dsphere")])
    documents = lambda: [{"_id": n, "x": n % 7, "mail": f"{n}@example.org", "text": f"word{n % 3} more", "list": [n, -n],
                          "place": {"type": "Point", "coordinates": [n % 90, 10]}} for n in range(300)]
    db.before.insert_many(documents())
    db.after.insert_many(documents())
    db.after.create_indexes([IndexModel("x"), IndexModel("list"), IndexModel("mail", unique=True)])
    db.command("create", "by_key", primaryKey={"x": 1, "_id": 1})
    db.by_key.insert_many(documents())
    db.by_key.create_index("mail")
    db.create_collection("capped", capped=True, size=100_000)
    db.capped.create_index("n")
    db.capped.insert_many([{"_id": n, "n": -n} for n in range(50)])
    return {"after": ["_id_"], "before": ["_id_"], "by_key": sorted(["_id_", "primaryKey"]), "capped": ["_id_"]}


def a_member_without_indexes_answers_without_them():
    with WithoutIndexes() as cluster, cluster.client() as client:
        primary, other = cluster.with_indexes()
        bare = cluster.bare()
        hello = bare.hello()
        assert hello["buildIndexes"] is False and hello["passive"] and host(bare) in hello["passives"], hello
        assert "buildIndexes" not in primary.hello()
        few = fill_with_indexes(client)
        documents = cluster.agreed()
        assert indexes_of(bare) == few and len(indexes_of(primary)["before"]) == 5, (indexes_of(bare), indexes_of(primary))
        assert indexes_of(other) == indexes_of(primary)
        # What can be answered by a walk over the documents is, and what needs an index is refused as where there is none.
        by_x = {"find": "before", "filter": {"x": 3}, "sort": {"_id": 1}}
        assert read(bare, by_x)["cursor"]["firstBatch"] == read(primary, by_x)["cursor"]["firstBatch"] != []
        plan = lambda member: str(read(member, {"explain": by_x})["queryPlanner"]["winningPlan"])
        assert "x_1" in plan(primary) and "x_1" not in plan(bare), plan(bare)
        for command, code in (({**by_x, "hint": "x_1"}, 2), ({**by_x, "hint": {"x": 1}}, 2),
                              ({"find": "before", "filter": {"$text": {"$search": "word1"}}}, 27),
                              ({"find": "before", "filter": {"place": {"$nearSphere": [1, 1]}}}, 291)):
            assert read(primary, command)["ok"] == 1, command
            assert read(bare, command).get("code") == code, (command, read(bare, command))
        stats = read(bare, {"collStats": "after"})
        assert stats["nindexes"] == 1 and list(stats["indexSizes"]) == ["_id_"] and stats["count"] == 300, stats
        for name in few:
            reply = read(bare, {"validate": name})
            assert reply["valid"], reply
        # Its log is the others', whatever it leaves out; uniqueness is the primary's.
        try:
            client.test.after.insert_one({"mail": "1@example.org"})
            raise AssertionError("the index is not unique")
        except DuplicateKeyError:
            pass
        client.test.after.update_many({"x": 3}, {"$set": {"x": 99}, "$push": {"list": 5}})
        client.test.before.delete_many({"x": 2})
        client.test.after.create_index("x", name="again", sparse=True)
        client.test.after.drop_index("list_1")
        client.test.by_key.drop()
        client.test.before.rename("renamed")
        assert cluster.agreed() != documents
        wait_until(lambda: indexes_of(bare) == {name: ["_id_"] for name in ("after", "capped", "renamed")},
                   "it has indexes", lambda: indexes_of(bare))
        # It counts for the majority, over a kill; and an index that is made while it is away is left out all the same.
        other.kill()
        client.test.after.insert_one({"_id": "with the bare one", "x": 4})
        bare.kill()
        other.start()
        cluster.wait_for_all()
        client.test.after.create_index("text")
        client.test.late.insert_many([{"_id": n, "n": n} for n in range(500)])
        client.test.late.create_index("n")
        bare.start()
        cluster.wait_for_all()
        documents = cluster.agreed()
        assert indexes_of(bare) == {name: ["_id_"] for name in ("after", "capped", "late", "renamed")}, indexes_of(bare)
        # It never leads, and nobody gets its data.
        primary = cluster.wait_for_primary()
        primary.kill()
        assert cluster.wait_for_primary(but=primary) in cluster.members[:2]
        client.test.late.insert_one({"_id": "by the other one"})
        primary.start()
        cluster.wait_for_all()
        assert len(cluster.agreed()["late"]) == len(documents["late"]) + 1
        reply = raw(bare, "admin", {"backupStart": "anywhere"})
        assert reply.get("code") == 20 and "buildIndexes" in reply["errmsg"], reply


def a_member_without_indexes_gets_a_copy_and_leaves_out_what_it_has():
    with WithoutIndexes(*SHORT_LOG, members=2, initiated=False) as cluster:
        with cluster.members[0].client() as client:
            client.admin.command("replSetInitiate", ReplicaSet.config(cluster))
        cluster.wait_for_all()
        with cluster.client() as client:
            few = fill_with_indexes(client)
        outgrow_the_log(cluster)
        bare = Fernd("--replSet", cluster.name, *SHORT_LOG)
        bare.port = lasting_port()
        bare.start()
        cluster.members.append(bare)
        reconfigure(cluster, lambda c: c["members"].append(
            {"_id": 2, "host": host(bare), "priority": 0, "buildIndexes": False}))
        wait_until(lambda: started_with_a_copy(bare) == 1, "it gets no copy", cluster.tails)
        cluster.wait_for_all()
        all_vote(cluster, 3)
        cluster.agreed()
        assert indexes_of(bare) == few, indexes_of(bare)
        for _ in range(2):
            bare.kill()
            bare.start()
            cluster.wait_for_all()
            with cluster.client() as client:
                client.test.after.update_many({}, {"$inc": {"x": 1}})
            cluster.agreed()
            assert indexes_of(bare) == few, indexes_of(bare)
        # One that is removed is as it was, and comes on again with an empty directory, with indexes if that is asked for.
        reconfigure(cluster, lambda c: c["members"].pop())
        bare.kill()
        bare.start()
        wait_until(lambda: told(bare, "Waiting for connections") >= 1, "it does not start", cluster.tails)
        bare.kill()
        shutil.rmtree(bare.dbpath)
        bare.start()
        reconfigure(cluster, lambda c: c["members"].append({"_id": 3, "host": host(bare)}))
        cluster.wait_for_all()
        all_vote(cluster, 3)
        agreed(cluster)


def what_no_member_without_indexes_can_be_is_refused():
    with WithoutIndexes() as cluster:
        primary, other = cluster.with_indexes()
        bare = cluster.bare()
        configuration = raw(primary, "admin", {"replSetGetConfig": 1})["config"]
        assert [m["buildIndexes"] for m in configuration["members"]] == [True, True, False], configuration

        def changed(change, **options):
            config = {**configuration, "members": [dict(m) for m in configuration["members"]],
                      "version": configuration["version"] + 1}
            change(config["members"])
            return raw(primary if not options else bare, "admin", {"replSetReconfig": config, **options})

        for code, words, change in ((INVALID, "priority must be 0", lambda m: m[2].update(priority=1)),
                                    (INCOMPATIBLE, "buildIndexes", lambda m: m[2].update(buildIndexes=True)),
                                    (INCOMPATIBLE, "buildIndexes", lambda m: m[2].pop("buildIndexes")),
                                    (INCOMPATIBLE, "buildIndexes", lambda m: m[1].update(priority=0, buildIndexes=False))):
            reply = changed(change)
            assert reply.get("code") == code and words in reply["errmsg"], reply
        # Nobody copies it, also where it is asked.
        stored = lambda member: raw(member, "admin", {"_fernMember": 1})
        ask = {"_fernCopyBegin": 1, "source": stored(bare)["member"], "receiver": stored(other)["member"],
               "founder": stored(bare)["founder"]}
        reply = raw(bare, "admin", ask)
        assert reply.get("code") == NOT_PRIMARY_OR_SECONDARY and f"{host(bare)} has no indexes" in reply["errmsg"], reply
        # It cannot be forced to go on alone.
        primary.kill()
        other.kill()
        refused = lambda: changed(lambda m: m.__delitem__(slice(0, 2)), force=True)
        wait_until(lambda: refused().get("code") == INVALID, "it goes on alone", lambda: refused())
    with ReplicaSet(members=2, initiated=False) as cluster:
        config = cluster.config()
        config["members"][0].update(priority=0, buildIndexes=False)
        reply = raw(cluster.members[0], "admin", {"replSetInitiate": config})
        assert reply.get("code") == NOT_ELECTABLE, reply


TESTS = [
    an_arbiter_votes_and_shows_nothing,
    what_was_acknowledged_with_the_arbiter_outlives_the_primary,
    an_arbiter_is_added_where_the_log_has_no_beginning_and_comes_back_emptied,
    a_removed_arbiter_starts_again_and_is_added_again,
    an_arbiter_says_when_its_log_is_as_long_as_it_may_be,
    what_no_arbiter_can_be_is_refused,
    a_delayed_member_shows_what_is_old_enough,
    another_delay_counts_at_once,
    what_was_acknowledged_with_a_delayed_member_outlives_the_primary,
    a_delayed_member_gets_a_copy_and_goes_on_alone,
    what_no_delayed_member_can_be_is_refused,
    members_follow_the_primary_and_nobody_else,
    a_member_goes_on_alone_and_the_others_begin_anew,
    a_member_without_indexes_answers_without_them,
    a_member_without_indexes_gets_a_copy_and_leaves_out_what_it_has,
    what_no_member_without_indexes_can_be_is_refused,
]


if __name__ == "__main__":
    run_tests("member kinds", TESTS)
