"""The helpers of TokuMX's shell in mongosh: packaging/tokumx.js as the manual says to start it."""

import os
import subprocess
import sys

from fernd import Fernd

HERE = os.path.dirname(os.path.abspath(__file__))
HELPERS = os.path.join(os.path.dirname(HERE), "packaging", "tokumx.js")
OPTIONS = "?maxPoolSize=1&retryWrites=false"


def shell(mongosh, server, query, *arguments, text=None):
    """What mongosh prints, and how it ends."""
    done = subprocess.run(
        [mongosh, "--quiet", "--norc", f"mongodb://127.0.0.1:{server.port}/test{query}", *arguments], input=text,
        capture_output=True, text=True, timeout=300, env={**os.environ, "HOME": server.home, "NO_COLOR": "1"})
    return done.stdout + done.stderr, done.returncode


def each_helper_does_what_it_did(mongosh, server):
    told, ended = shell(mongosh, server, OPTIONS, "--file", HELPERS, "--file", os.path.join(HERE, "mongosh", "tokumx.js"))
    assert ended == 0 and "0 failed" in told, told
    print(" ", told.strip().splitlines()[-1])


def they_are_there_at_the_prompt(mongosh, server):
    """The manual's example, line by line."""
    told, ended = shell(mongosh, server, OPTIONS, "--shell", HELPERS, text=(
        "db.beginTransaction()\ndb.foo.insertOne({_id: 2}).acknowledged\nuse other\ndb.rollbackTransaction()\n"
        "db.getSiblingDB('test').foo.countDocuments() + ' of them'\nexit\n"))
    assert ended == 0 and "transaction began" in told and "transaction rolled back" in told, told
    assert "0 of them" in told and "Error" not in told, told


def without_one_connection_none_is_begun(mongosh, server):
    for query, lacks in (("", "maxPoolSize=1 and retryWrites=false"), ("?maxPoolSize=1", "retryWrites=false"),
                         ("?maxPoolSize=10&retryWrites=false", "maxPoolSize=1"),
                         ("?retryWrites=true&maxPoolSize=1", "retryWrites=false")):
        told, ended = shell(mongosh, server, query, "--shell", HELPERS, text=(
            "db.beginTransaction()\ndb.showLiveTransactions().transactions.length + ' live'\nexit\n"))
        assert f"it lacks {lacks})" in told and "0 live" in told, (query, told)
    # The names of options are the driver's to spell.
    told, ended = shell(mongosh, server, "?MAXPOOLSIZE=1&retrywrites=false", "--shell", HELPERS, text="db.beginTransaction()\nexit\n")
    assert "transaction began" in told, told


def main():
    [mongosh] = sys.argv[1:]
    tests = [each_helper_does_what_it_did, they_are_there_at_the_prompt, without_one_connection_none_is_begun]
    with Fernd("--cacheSize", "128M") as server:
        for test in tests:
            print(test.__name__.replace("_", " "), flush=True)
            test(mongosh, server)
    print(f"tokumx-shell: {len(tests)} passed, 0 failed")


if __name__ == "__main__":
    main()
