"""`wtimeout` ends the wait of every command that takes a write concern, on a set whose followers take nothing.

The commands are those of the server itself: one that is new and has no row here fails the test. The followers are held
(SIGSTOP), so that no majority has anything; once they go on, what was answered as done is done on all three.
"""

import time

from bson import Int64
from fernd import raw, run_tests, wait_until
from replica_set_waits_test import Patient, held

TIME_IS_OVER, WRONG_TYPE = 64, 14
UNASKED = {"shutdown"}
SHORT = {"w": 3, "wtimeout": 100}
# How long an answer may take on a busy machine that waits for nothing in the middle of its work, and one that does: such a wait lasts two
# seconds at least, and a command may have several.
SOON, LATER = 5, 30

USER = {"pwd": "x", "roles": []}
ROLE = {"privileges": [], "roles": []}
READ = [{"role": "read", "db": "test"}]
FIND_ANY = [{"resource": {"db": "test", "collection": "a"}, "actions": ["find"]}]
# Each works on what those before it have left.
DONE = [
    ("test", {"insert": "a", "documents": [{"_id": "new"}]}),
    ("made", {"insert": "by_insert", "documents": [{"_id": 1}]}),
    ("made", {"insert": "by_insert", "documents": [{"_id": 2}]}),
    ("test", {"update": "a", "updates": [{"q": {"_id": 1}, "u": {"$set": {"b": 2}}}]}),
    ("made", {"update": "by_upsert", "updates": [{"q": {"_id": 1}, "u": {"b": 2}, "upsert": True}]}),
    ("made", {"update": "by_insert", "updates": [{"q": {"_id": 1}, "u": {"$set": {"b": 2}}}]}),
    ("test", {"delete": "a", "deletes": [{"q": {"_id": 2}, "limit": 1}]}),
    ("test", {"delete": "whole", "deletes": [{"q": {}, "limit": 0}]}),
    ("test", {"findAndModify": "a", "query": {"_id": 3}, "update": {"$set": {"b": 3}}}),
    ("admin", {"bulkWrite": 1, "ops": [{"insert": 0, "document": {"_id": "bulk"}}], "nsInfo": [{"ns": "test.a"}]}),
    ("test", {"aggregate": "source", "pipeline": [{"$out": "out"}], "cursor": {}}),
    ("test", {"aggregate": "source", "pipeline": [{"$merge": "merged"}], "cursor": {}}),
    ("test", {"mapReduce": "source", "map": "function() { emit(1, 1) }",
              "reduce": "function(key, values) { return 1 }", "out": "reduced"}),
    ("test", {"create": "new"}),
    ("test", {"create": "capped_new", "capped": True, "size": 4096}),
    ("test", {"create": "view", "viewOn": "new", "pipeline": []}),
    ("test", {"create": "series", "timeseries": {"timeField": "t"}}),
    ("test", {"createIndexes": "empty", "indexes": [{"key": {"a": 1}, "name": "a_1"}]}),
    ("test", {"createIndexes": "empty", "indexes": [{"key": {"b": 1}, "name": "b_1"}]}),
    ("test", {"createIndexes": "new", "indexes": [{"key": {"a": 1}, "name": "a_1"}]}),
    ("test", {"createIndexes": "new", "indexes": [{"key": {"a": 1}, "name": "a_1"}]}),
    ("test", {"dropIndexes": "empty", "index": "a_1"}),
    ("test", {"dropIndexes": "indexed", "index": "b_1"}),
    ("test", {"collMod": "a", "validator": {"c": {"$exists": False}}}),
    ("test", {"collMod": "new", "validationLevel": "moderate"}),
    ("test", {"collMod": "indexed", "index": {"name": "a_1", "hidden": True}}),
    ("test", {"collMod": "new"}),
    ("admin", {"renameCollection": "test.moved", "to": "test.moved_to"}),
    ("admin", {"renameCollection": "test.moved_to", "to": "test.source", "dropTarget": True}),
    ("test", {"drop": "gone"}),
    ("test", {"drop": "new"}),
    ("test", {"create": "gone"}),
    ("dropped", {"dropDatabase": 1}),
    ("made", {"dropDatabase": 1}),
    ("made", {"insert": "by_insert", "documents": [{"_id": 3}]}),
    ("test", {"reIndex": "indexed"}),
    ("test", {"cloneCollectionAsCapped": "a", "toCollection": "copy", "size": 4096}),
    ("test", {"emptycapped": "capped"}),
    ("admin", {"applyOps": [{"op": "i", "ns": "test.a", "o": {"_id": "applied"}}]}),
    ("admin", {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": 1}}),
    ("admin", {"setFeatureCompatibilityVersion": "7.0", "confirm": True}),
]
# Whoever changes users or roles sees what was changed before: each alone is done, and fails behind another one.
ACCOUNTS = [
    ("test", {"createUser": "eve", **USER}),
    ("test", {"updateUser": "ann", "roles": READ}),
    ("test", {"grantRolesToUser": "ann", "roles": READ}),
    ("test", {"revokeRolesFromUser": "ann", "roles": READ}),
    ("test", {"dropUser": "bob"}),
    ("other", {"dropAllUsersFromDatabase": 1}),
    ("test", {"createRole": "new", **ROLE}),
    ("test", {"updateRole": "role", "privileges": FIND_ANY}),
    ("test", {"grantPrivilegesToRole": "role", "privileges": FIND_ANY}),
    ("test", {"revokePrivilegesFromRole": "role", "privileges": FIND_ANY}),
    ("test", {"grantRolesToRole": "role", "roles": READ}),
    ("test", {"revokeRolesFromRole": "role", "roles": READ}),
    ("test", {"dropRole": "role_to_drop"}),
    ("other", {"dropAllRolesFromDatabase": 1}),
    ("admin", {"_mergeAuthzCollections": 1, "tempUsersCollection": "admin.temp", "drop": False, "db": ""}),
]
# Find nothing to do, and so nothing to wait for.
NOTHING_TO_DO = [("admin", {"authSchemaUpgrade": 1}), ("empty", {"dropAllUsersFromDatabase": 1})]
# Read documents that a majority has, or do their work in steps that a majority has: without one they are not begun.
NOT_BEGUN = [
    ("test", {"createIndexes": "filled", "indexes": [{"key": {"a": 1}, "name": "a_1"}]}),
    ("test", {"convertToCapped": "filled", "size": 4096}),
    ("test", {"addPartition": "parts", "newMax": {"_id": 100}}),
    ("test", {"dropPartition": "parts", "id": Int64(0)}),
    ("test", {"collMod": "prepared", "index": {"name": "a_1", "unique": True}}),
]
# Tell of a transaction, or of a message of the old kind: tested by themselves.
BY_THEMSELVES = {"commitTransaction", "abortTransaction", "getLastError"}


def patient():
    # `emptycapped` is a command for tests.
    return Patient("--setParameter", "enableTestCommands=1")


def prepare(primary):
    """What the commands work on; all three have it."""
    def ask(database, command):
        reply = raw(primary, database, command)
        assert reply["ok"] == 1 and "writeErrors" not in reply, (command, reply)

    for name in ("a", "source", "whole", "filled", "moved", "indexed", "prepared"):
        ask("test", {"insert": name, "documents": [{"_id": n, "a": n} for n in range(5)]})
    for name in ("empty", "gone"):
        ask("test", {"create": name})
    ask("test", {"create": "capped", "capped": True, "size": 4096})
    ask("test", {"insert": "capped", "documents": [{"_id": 1}]})
    ask("test", {"create": "parts", "partitioned": True})
    ask("test", {"insert": "parts", "documents": [{"_id": 5}]})
    ask("test", {"addPartition": "parts"})
    ask("test", {"createIndexes": "indexed", "indexes": [{"key": {name: 1}, "name": f"{name}_1"} for name in ("a", "b")]})
    ask("test", {"createIndexes": "prepared", "indexes": [{"key": {"a": 1}, "name": "a_1", "prepareUnique": True}]})
    ask("dropped", {"insert": "a", "documents": [{"_id": 1}]})
    for database, user in (("test", "ann"), ("test", "bob"), ("other", "eve")):
        ask(database, {"createUser": user, **USER})
    ask("other", {"createRole": "role", **ROLE})
    for role in ("role", "role_to_drop"):
        ask("test", {"createRole": role, **ROLE})
    ask("admin", {"create": "temp"})
    all_have_it(primary)


def all_have_it(primary):
    concern = {"w": 3, "wtimeout": 60_000}
    reply = raw(primary, "test", {"update": "mark", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}, "upsert": True}],
                                  "writeConcern": concern})
    assert reply["ok"] == 1 and "writeConcernError" not in reply, reply
    return reply["operationTime"]


def shown_up_to(member, reached):
    """`w: 3` means that each member has a write on its disk; a follower shows it once it hears that the majority has it."""
    concern = {"level": "local", "afterClusterTime": reached}
    reply = raw(member, "test", {"find": "mark", "readConcern": concern, "$readPreference": {"mode": "nearest"}})
    assert reply["ok"] == 1, reply


def timed(primary, database, command):
    began = time.monotonic()
    reply = raw(primary, database, {**command, "writeConcern": SHORT})
    return reply, time.monotonic() - began


def check_concern(reply, command):
    error = reply.get("writeConcernError")
    assert error and (error["code"], error["codeName"]) == (TIME_IS_OVER, "WriteConcernTimeout"), (command, reply)
    assert error["errInfo"]["wtimeout"] is True and error["errInfo"]["writeConcern"]["wtimeout"] == 100, (command, reply)


def check_done(primary, database, command, within=SOON):
    reply, took = timed(primary, database, command)
    assert reply["ok"] == 1 and "writeErrors" not in reply, (command, reply)
    check_concern(reply, command)
    assert took < within, f"{command}: {took:.1f} s"
    return reply


def check_not_begun(primary, database, command):
    reply, took = timed(primary, database, command)
    assert (reply["ok"], reply.get("code")) == (0, TIME_IS_OVER), (command, reply)
    assert took < LATER, f"{command}: {took:.1f} s"


def takes_a_concern(primary):
    """The commands of this server that take one: they look at it before anything else."""
    names = raw(primary, "admin", {"listCommands": 1})["commands"]
    wrong = {"w": 1, "wtimeout": "soon"}
    asked = {name: raw(primary, "admin", {name: 1, "writeConcern": wrong}) for name in names if name not in UNASKED}
    assert all(reply["ok"] == 0 for reply in asked.values()), [name for name, reply in asked.items() if reply["ok"]]
    return {name for name, reply in asked.items() if reply["code"] == WRONG_TYPE}


def name_of(command):
    return next(iter(command))


def every_command_that_takes_a_concern_has_a_row():
    with patient() as cluster:
        known = {name_of(command) for _, command in DONE + ACCOUNTS + NOTHING_TO_DO + NOT_BEGUN} | BY_THEMSELVES
        asked = takes_a_concern(cluster.wait_for_primary())
        assert asked - known == set(), f"no row: {sorted(asked - known)}"
        assert known - asked == {"getLastError"}, f"no command that takes a concern: {sorted(known - asked)}"


def what_is_done_is_answered_in_time_and_stays_done():
    with patient() as cluster:
        primary = cluster.wait_for_primary()
        prepare(primary)
        followers = cluster.others(primary)
        with held(followers):
            for database, command in DONE:
                check_done(primary, database, command)
            readers_see_the_state_before(primary)
        reached = all_have_it(primary)
        for member in cluster.members:
            shown_up_to(member, reached)
            changes_are_there(member)


def names(member, database):
    reply = raw(member, database, {"listCollections": 1, "nameOnly": True, "$readPreference": {"mode": "nearest"}})
    return {row["name"] for row in reply["cursor"]["firstBatch"]}


def found(member, collection, database="test"):
    reply = raw(member, database, {"find": collection, "sort": {"_id": 1}, "$readPreference": {"mode": "nearest"}})
    return [document["_id"] for document in reply["cursor"]["firstBatch"]]


def readers_see_the_state_before(primary):
    there = names(primary, "test")
    assert "gone" in there and "moved" in there and "new" not in there and "out" not in there, there
    assert names(primary, "dropped") == {"a"} and names(primary, "made") == set()
    assert found(primary, "a") == [0, 1, 2, 3, 4] and found(primary, "source") == [0, 1, 2, 3, 4]


def changes_are_there(member):
    there = names(member, "test")
    assert not there & {"new", "moved", "moved_to"} and there >= {"gone", "out", "merged", "view", "series", "source"}, there
    assert names(member, "dropped") == set() and names(member, "made") == {"by_insert"}
    assert found(member, "by_insert", "made") == [3] and found(member, "whole") == []
    assert {0, 1, 3, 4, "new", "bulk", "applied"} <= set(found(member, "a")), found(member, "a")
    assert {0, 1, 3, 4, "new", "bulk"} <= set(found(member, "copy")) and found(member, "capped") == []
    nearest = {"$readPreference": {"mode": "nearest"}}
    indexes = raw(member, "test", {"listIndexes": "empty", **nearest})["cursor"]["firstBatch"]
    assert [index["name"] for index in indexes] == ["_id_", "b_1"], indexes


def each_change_of_users_is_done_and_the_next_one_waits():
    with patient() as cluster:
        primary = cluster.wait_for_primary()
        prepare(primary)
        for database, command in ACCOUNTS:
            with held(cluster.others(primary)):
                check_done(primary, database, command)
            all_have_it(primary)
        with held(cluster.others(primary)):
            for database, command in NOTHING_TO_DO:
                reply, took = timed(primary, database, command)
                assert reply["ok"] == 1 and took < SOON, (command, reply, took)
            check_done(primary, "test", {"createUser": "first", **USER})
            check_not_begun(primary, "test", {"createUser": "second", **USER})
        all_have_it(primary)
        users = raw(primary, "test", {"usersInfo": 1})["users"]
        assert {user["user"] for user in users} == {"ann", "eve", "first"}, users


def what_needs_a_majority_in_the_middle_is_not_begun():
    with patient() as cluster:
        primary = cluster.wait_for_primary()
        prepare(primary)
        with held(cluster.others(primary)):
            check_done(primary, "test", {"insert": "filled", "documents": [{"_id": "more"}]})
            for database, command in NOT_BEGUN:
                check_not_begun(primary, database, command)
        all_have_it(primary)
        wait_until(lambda: "more" in found(primary, "filled"), "the document is lost")
        for database, command in NOT_BEGUN:
            reply = raw(primary, database, {**command, "writeConcern": {"w": 3, "wtimeout": 60_000}})
            assert reply["ok"] == 1 and "writeConcernError" not in reply, (command, reply)


def a_transactions_commit_is_answered_in_time():
    with patient() as cluster:
        primary = cluster.wait_for_primary()
        prepare(primary)
        with primary.client() as client, client.start_session() as session:
            numbered = {"lsid": session.session_id, "txnNumber": Int64(1), "autocommit": False}
            begin = {"insert": "a", "documents": [{"_id": "inside"}], "startTransaction": True, **numbered}
            create = {"create": "made_inside", **numbered}
            for command in (begin, create):
                assert raw(primary, "test", command)["ok"] == 1
            with held(cluster.others(primary)):
                # Sent again it is the same commit.
                for _ in range(2):
                    check_done(primary, "admin", {"commitTransaction": 1, **numbered})
                assert "inside" not in found(primary, "a"), "seen, and not safe"
                check_done(primary, "test", {"insert": "made_inside", "documents": [{"_id": 1}]})
            all_have_it(primary)
            assert "inside" in found(primary, "a") and found(primary, "made_inside") == [1]
            again = {**begin, "txnNumber": Int64(2), "documents": [{"_id": "undone"}]}
            assert raw(primary, "test", again)["ok"] == 1
            with held(cluster.others(primary)):
                abort = {"abortTransaction": 1, **numbered, "txnNumber": Int64(2), "writeConcern": SHORT}
                assert raw(primary, "admin", abort)["ok"] == 1


def one_member_that_is_down_is_waited_for_as_long_as_asked():
    with patient() as cluster:
        primary = cluster.wait_for_primary()
        prepare(primary)
        with held(cluster.others(primary)[:1]):
            for database, command in [*DONE, *NOT_BEGUN[1:]]:
                check_done(primary, database, command, within=LATER)
            there = names(primary, "test")
            assert "gone" in there and "moved" not in there and "out" in there, there
        all_have_it(primary)


TESTS = [
    every_command_that_takes_a_concern_has_a_row,
    what_is_done_is_answered_in_time_and_stays_done,
    each_change_of_users_is_done_and_the_next_one_waits,
    what_needs_a_majority_in_the_middle_is_not_begun,
    a_transactions_commit_is_answered_in_time,
    one_member_that_is_down_is_waited_for_as_long_as_asked,
]


if __name__ == "__main__":
    run_tests("wtimeout", TESTS)
