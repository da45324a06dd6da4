"""Members of a replica set that are not like the others: arbiters; and a member that is forced to go on alone."""

import os
import shutil
import time

from fernd import Fernd, ReplicaSet, host, lasting_port, raw, run_tests, wait_until
from pymongo.errors import WriteConcernError, WTimeoutError
from pymongo.write_concern import WriteConcern
from replica_set_test import (SECONDARY_OK, SHORT_LOG, Writer, agreed, all_vote, begin, code_of, contents, outgrow_the_log,
                              progress, reconfigure, status_of)

NOT_PRIMARY, NOT_PRIMARY_OR_SECONDARY = 10107, 13436
INVALID, INCOMPATIBLE, NOT_ELECTABLE = 93, 103, 104
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


TESTS = [
    an_arbiter_votes_and_shows_nothing,
    what_was_acknowledged_with_the_arbiter_outlives_the_primary,
    an_arbiter_is_added_where_the_log_has_no_beginning_and_comes_back_emptied,
    an_arbiter_says_when_its_log_is_as_long_as_it_may_be,
    what_no_arbiter_can_be_is_refused,
    a_member_goes_on_alone_and_the_others_begin_anew,
]


if __name__ == "__main__":
    run_tests("member kinds", TESTS)
