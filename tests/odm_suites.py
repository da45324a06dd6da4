"""mongoengine's, beanie's and odmantic's own test suites, from their source packages on PyPI, against
`fernd` as a replica set of one.

The packages are the newest that hold tests: of beanie and odmantic later ones hold none, and that of
mongoengine holds those of its top folder. Prints what passed and every failure by its name;
`--at-most-failed N` fails the run where more fail, all suites together.
"""

import argparse
import collections
import os
import shutil
import subprocess
import sys
import tarfile

from fernd import Fernd
from pymongo_suite import SUITES_OWN_PORT, is_free, outcomes, reason

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "odm")
# By package: its version, what it runs with, and whether its tests look for a server nowhere but at
# MongoDB's own port.
SUITES = {
    "beanie": ("2.0.0", "requirements.txt", False),
    "odmantic": ("1.0.0", "odmantic-requirements.txt", False),
    "mongoengine": ("0.29.3", "requirements.txt", True),
}


def python(target, requirements):
    """An environment's Python, made where it is missing or the pins have changed."""
    home = os.path.join(target, "odm", requirements.removesuffix(".txt"))
    pins, stamp = os.path.join(HERE, requirements), os.path.join(home, "installed-from")
    program = os.path.join(home, "bin", "python")
    wanted = open(pins).read()
    if not os.path.exists(stamp) or open(stamp).read() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        subprocess.run([program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "-r", pins], check=True)
        with open(stamp, "w") as file:
            file.write(wanted)
    return program


def sources(target, name, version):
    """The suite's folder, unpacked from the source package."""
    home = os.path.join(target, "odm")
    folder = os.path.join(home, f"{name}-{version}")
    if not os.path.isdir(folder):
        os.makedirs(home, exist_ok=True)
        archive = f"{folder}.tar.gz"
        if not os.path.exists(archive):
            # Nothing is built, but pip asks the package for its name, and for that its tools.
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                            "--no-binary", ":all:", "--disable-pip-version-check", "-d", home,
                            f"{name}=={version}"], check=True)
        with tarfile.open(archive) as packed:
            packed.extractall(home, filter="data")
        # The tests run against what is installed.
        os.rename(os.path.join(folder, name), os.path.join(folder, f"{name}.not-installed"))
    if name == "mongoengine":
        shutil.copy(os.path.join(HERE, "mongoengine_utils.py"), os.path.join(folder, "tests/utils.py"))
        with open(os.path.join(folder, "tests", "__init__.py"), "w") as file:
            file.write("from pathlib import Path\n\nDOCS_DIR = Path(__file__).parent.parent / 'docs'\n")
    return folder


def run(target, name, selection, verbose):
    """What became of each test of a suite, and the server's last words where it died."""
    version, requirements, own_port = SUITES[name]
    program, folder = python(target, requirements), sources(target, name, version)
    report = os.path.join(target, "odm", f"{name}.xml")
    if os.path.exists(report):
        os.remove(report)
    server = Fernd("--cacheSize", "256M", "--replSet", "rs0", "--replSetAutoInitiate")
    if own_port:
        if not is_free(SUITES_OWN_PORT):
            raise SystemExit(f"{name} asks for a server at port {SUITES_OWN_PORT}, which is taken")
        server.port = SUITES_OWN_PORT
    with server:
        address = f"mongodb://127.0.0.1:{server.port}"
        environment = {
            **os.environ,
            "MONGODB_DSN": f"{address}/beanie_db",
            "TEST_MONGO_URI": f"{address}/?replicaSet=rs0",
            "TEST_MONGO_MODE": "replicaSet",
        }
        command = [program, "-m", "pytest", "tests", "-q", "-p", "no:cacheprovider", "--tb=short",
                   "-o", f"addopts=--junitxml={report}"]
        if selection:
            command += ["-k", selection]
        output = None if verbose else subprocess.DEVNULL
        done = subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=output,
                              timeout=1800)
        if not os.path.exists(report):
            raise SystemExit(f"{name}: pytest ended with {done.returncode} and wrote no report; "
                             "--verbose")
        if server.process.poll() is not None:
            raise SystemExit(f"fernd died:\n{server.tail()}")
    return list(outcomes(report))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--suite", choices=SUITES, action="append", help="only this one; may be repeated")
    p.add_argument("--at-most-failed", type=int)
    p.add_argument("-k", help="pytest's -k")
    p.add_argument("--show", action="store_true", help="every failure's text")
    p.add_argument("--verbose", action="store_true", help="pytest's own output")
    a = p.parse_args()
    target = os.path.abspath(os.environ["FERN_TARGET"])
    failed = 0
    for name in a.suite or SUITES:
        counts = collections.Counter()
        for case, outcome, text in run(target, name, a.k, a.verbose):
            counts[outcome] += 1
            if outcome == "failed":
                print(f"  {case}: {reason(text)}", flush=True)
                if a.show:
                    print(text)
        failed += counts["failed"]
        print(f"{name} {SUITES[name][0]}: {counts['passed']} passed, {counts['failed']} failed, "
              f"{counts['skipped']} skipped", flush=True)
        if not counts["passed"]:
            raise SystemExit(f"no test of {name} passed")
    if a.at_most_failed is not None and failed > a.at_most_failed:
        raise SystemExit(f"more than {a.at_most_failed} failed")


if __name__ == "__main__":
    main()
