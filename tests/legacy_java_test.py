"""Runs tests/legacy-java/Legacy.java with the Java driver 2.14.3, from Maven Central, against a
`fernd` of its own; with `--auth` and `--tls` as a user and over TLS. Needs a JDK of 11 or later, Maven and its
repository; says so and passes where they are missing."""

import argparse
import os
import shutil
import subprocess

from secured import Secured, add_options, java_trust, missing

DRIVER = ("org.mongodb", "mongo-java-driver", "2.14.3")


def driver(target):
    """The driver's jar, fetched once."""
    folder = os.path.join(target, "legacy-java")
    jar = os.path.join(folder, f"{DRIVER[1]}-{DRIVER[2]}.jar")
    if not os.path.exists(jar):
        subprocess.run(
            ["mvn", "--quiet", "--batch-mode", "dependency:copy",
             f"-Dartifact={':'.join(DRIVER)}", f"-DoutputDirectory={folder}"],
            check=True,
        )
    return jar


def run(jar, uri, *options):
    """What it printed, and how it ended."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "legacy-java", "Legacy.java")
    return subprocess.run(["java", *options, "-cp", jar, source, uri], capture_output=True, text=True, timeout=300)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    add_options(p)
    a = p.parse_args()
    if why := missing(a):
        print(f"skipped: {why}")
        return
    if not (shutil.which("javac") and shutil.which("mvn")):
        print("skipped: no JDK or no Maven here")
        return
    try:
        jar = driver(os.path.abspath(os.environ["FERN_TARGET"]))
    except subprocess.CalledProcessError as error:
        print(f"skipped: the driver cannot be fetched ({error})")
        return
    with Secured("--cacheSize", "256M", auth=a.auth, tls=a.tls) as server:
        done = run(jar, server.uri(ca=False), *(java_trust() if a.tls else []))
        print(done.stdout, end="")
        if done.returncode != 0 or not done.stdout.rstrip().endswith("0 failed"):
            raise SystemExit(f"java ended with {done.returncode}:\n{done.stderr}")
        if server.process.poll() is not None:
            raise SystemExit(f"fernd died:\n{server.tail()}")


if __name__ == "__main__":
    main()
