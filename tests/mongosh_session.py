"""Runs tests/mongosh/session.js in mongosh against a `fernd` of its own, and the lines a person
types (`show dbs`), which only an interactive shell knows. With `--auth` and `--tls` the shell logs in, and
speaks TLS alone."""

import argparse
import os
import subprocess

from secured import Secured, add_options, missing


def shell(mongosh, server, *arguments, text=None):
    done = subprocess.run(
        [mongosh, "--quiet", "--norc", server.uri(), *arguments],
        input=text, capture_output=True, text=True, timeout=300,
        env={**os.environ, "HOME": server.home, "NO_COLOR": "1"},
    )
    print(done.stdout[-3000:], end="")
    if done.returncode != 0:
        raise SystemExit(f"mongosh ended with {done.returncode}:\n{done.stderr}\n{done.stdout}")
    return done.stdout


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("mongosh", help="the program")
    add_options(p)
    a = p.parse_args()
    if why := missing(a):
        print(f"skipped: {why}")
        return
    mongosh = a.mongosh
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mongosh", "session.js")
    with Secured("--cacheSize", "256M", auth=a.auth, tls=a.tls) as server:
        assert "0 failed" in shell(mongosh, server, "--file", script)
        typed = shell(mongosh, server, text=(
            "use garden\ndb.beds.insertOne({a: 1})\nshow dbs\nshow collections\nshow log global\n"
            "it\ndb.beds.find()\nexit\n"))
        assert "garden" in typed and "beds" in typed and "a: 1" in typed, typed
        assert "MongoServerError" not in typed, typed


if __name__ == "__main__":
    main()
