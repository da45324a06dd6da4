"""The Debian package in a fresh Debian root: installed, started by its unit file's command as its
unit's user, upgraded, removed, purged. Data and the operator's configuration stay throughout.

    package_test.py PACKAGE NEWER_PACKAGE

`cargo xtask package --check` builds both and runs this. The root is made by debootstrap (about a minute,
from the machine's own Debian mirror), once, and kept as an archive under the target directory. Where there can be
no root, on a system other than Debian or for a user other than root, the test says so and ends well.
"""

import glob
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pymongo

from fernd import free_port

DATA = "var/lib/fernd"


def codename():
    try:
        with open("/etc/os-release") as f:
            release = dict(line.strip().split("=", 1) for line in f if "=" in line)
    except OSError:
        return None
    return release.get("VERSION_CODENAME") if release.get("ID") == "debian" else None


def fresh_root(home):
    """An unpacked Debian root below `home`; a text that says why where there can be none."""
    name = codename()
    if name is None or os.geteuid() != 0:
        return None, "it needs Debian, and root"
    if shutil.which("debootstrap") is None:
        with open(os.path.join(home, "apt.log"), "w") as log:
            for command in (["update"], ["install", "-y", "debootstrap"]):
                subprocess.run(["apt-get", "-q", *command], stdout=log, stderr=log)
        if shutil.which("debootstrap") is None:
            return None, "debootstrap cannot be installed"
    root = os.path.join(home, "root")
    kept = os.path.join(os.environ["FERN_TARGET"], "package", f"{name}-root.tar")
    if not os.path.exists(kept):
        subprocess.run(
            ["debootstrap", "--variant=minbase", name, root], check=True, stdout=subprocess.DEVNULL
        )
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        subprocess.run(["tar", "-C", root, "-cf", kept + ".part", "."], check=True)
        os.rename(kept + ".part", kept)
    else:
        os.makedirs(root)
        subprocess.run(["tar", "-C", root, "-xpf", kept], check=True)
    return root, None


class Machine:
    """The root, as a machine that has just been installed."""

    def __init__(self, root):
        self.root = root
        self.server = None

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def run(self, *command, check=True):
        done = subprocess.run(
            ["chroot", self.root, *command], text=True, capture_output=True, stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive",
                 "LC_ALL": "C"},
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def install(self, package):
        shutil.copy(package, self.path("tmp", "fernd.deb"))
        return self.run("apt-get", "install", "-y", "--no-install-recommends", "/tmp/fernd.deb")

    def unit(self):
        with open(self.path("lib/systemd/system/fernd.service")) as f:
            pairs = [line.strip().split("=", 1) for line in f if re.match(r"[A-Za-z]+=", line)]
        return dict(pairs)

    def start(self, port):
        """What systemd does with the unit: its directories, its user, its command."""
        unit = self.unit()
        self.run("install", "-d", "-m", unit["RuntimeDirectoryMode"], "-o", unit["User"], "-g",
                 unit["Group"], f"/run/{unit['RuntimeDirectory']}")
        inside = shlex.join(["chroot", f"--userspec={unit['User']}:{unit['Group']}", self.root,
                             *shlex.split(unit["ExecStart"])])
        script = f"mount -t proc proc {shlex.quote(self.path('proc'))} && exec {inside}"
        log = open(self.path("tmp", "fernd.log"), "ab")
        self.server = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=log, stderr=log)
        client = pymongo.MongoClient("127.0.0.1", port, directConnection=True,
                                     serverSelectionTimeoutMS=1000)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self.server.poll() is not None:
                raise RuntimeError(f"fernd ended with {self.server.returncode}:\n{self.log()}")
            try:
                client.admin.command("ping")
                return client
            except pymongo.errors.PyMongoError:
                time.sleep(0.1)
        raise RuntimeError(f"fernd does not answer:\n{self.log()}")

    def log(self):
        with open(self.path("tmp", "fernd.log"), errors="replace") as f:
            return f.read()[-4000:]

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        status = self.server.wait(120)
        assert status == 0, f"fernd ended with {status}:\n{self.log()}"
        self.server = None

    def version(self):
        return self.run("dpkg-query", "--show", "--showformat=${Version} ${db:Status-Status}", "fernd")


def set_ports(machine, port, status_port):
    """Edits the configuration as an operator would."""
    path = machine.path("etc/fernd.conf")
    with open(path) as f:
        text = f.read()
    changed = text.replace("port: 27017", f"port: {port}").replace("28017", str(status_port))
    assert changed != text
    changed = changed.replace("bindIp:", "# changed by the operator\n  bindIp:")
    with open(path, "w") as f:
        f.write(changed)
    return changed


def check_contents(machine):
    """What stands beside the programs: owner, modes, manual, completions, the unit's links."""
    about = os.stat(machine.path(DATA))
    owner = machine.run("stat", "-c", "%U:%G", f"/{DATA}").strip()
    assert owner == "fernd:fernd" and about.st_mode & 0o777 == 0o700, (owner, oct(about.st_mode))
    assert os.path.lexists(
        machine.path("etc/systemd/system/multi-user.target.wants/fernd.service"))
    pages = sorted(map(os.path.basename, glob.glob(machine.path("usr/share/man/man1/fern*.gz"))))
    assert "fernd.1.gz" in pages and "fern-check.1.gz" in pages, pages
    with open(machine.path("usr/share/fernd/tokumx.js")) as f:
        assert "beginTransaction" in f.read()
    for program, crate in (("fernd", "engine"), ("fern", "blockfile"), ("fern-client", "mongodb")):
        with open(machine.path(f"usr/share/doc/fernd/{program}.cdx.json")) as f:
            materials = json.load(f)
        assert crate in [part["name"] for part in materials["components"]], (program, crate)
        assert "path+file:///crates/" in json.dumps(materials), "places are from the root on"
    for program, word, full in (("fernd", "--cacheS", "--cacheSize"), ("fern", "insp", "inspect")):
        script = (f". /usr/share/bash-completion/completions/{program}; "
                  f"COMP_WORDS=({program} {word}); COMP_CWORD=1; "
                  f"_{program} {program} {word} {program}; echo ${{COMPREPLY[@]}}")
        offered = machine.run("bash", "-c", script).split()
        assert offered == [full], (program, offered)


def check_version(machine, client):
    printed = machine.run("fernd", "--version").strip()
    commit = client.admin.command("buildInfo")["gitVersion"]
    assert re.fullmatch(rf"fernd \S+ \(commit {re.escape(commit)}\)", printed), (printed, commit)
    assert re.fullmatch(r"[0-9a-f]{40}|unknown", commit), commit
    return printed


def life(machine, package, newer):
    machine.install(package)
    first = machine.version()
    check_contents(machine)
    port, status_port = free_port(), free_port()
    configuration = set_ports(machine, port, status_port)

    def same_configuration():
        with open(machine.path("etc/fernd.conf")) as f:
            assert f.read() == configuration

    def documents(client):
        return sorted(d["_id"] for d in client.shop.orders.find({}, {"_id": 1}))

    client = machine.start(port)
    client.shop.orders.insert_many([{"_id": n, "text": "x" * 100} for n in range(1000)])
    assert os.path.exists(machine.path(f"run/fernd/mongodb-{port}.sock"))
    printed = check_version(machine, client)
    client.close()
    machine.stop()
    assert machine.run("fern", "check", f"/{DATA}")
    # done by `fern-client`, in the name of `fern`
    assert "Usage: fern bench " in machine.run("fern", "bench", "--help")
    print(f"package: installed {first}; {printed}; 1000 documents written through the unit's command")

    machine.install(newer)
    upgraded = machine.version()
    assert upgraded != first and upgraded.endswith(" installed"), (first, upgraded)
    same_configuration()
    client = machine.start(port)
    assert documents(client) == list(range(1000))
    client.shop.orders.insert_one({"_id": 1000})
    client.close()
    machine.stop()
    print(f"package: upgraded to {upgraded}; data and configuration kept")

    machine.run("apt-get", "remove", "-y", "fernd")
    assert not os.path.exists(machine.path("usr/bin/fernd"))
    assert os.path.exists(machine.path(DATA, "fern.data"))
    same_configuration()
    machine.install(newer)
    client = machine.start(port)
    assert documents(client) == list(range(1001))
    client.close()
    machine.stop()
    print("package: removed and installed again; data and configuration kept")

    machine.run("apt-get", "purge", "-y", "fernd")
    assert not os.path.exists(machine.path("etc/fernd.conf"))
    assert os.path.exists(machine.path(DATA, "fern.data"))
    print("package: purged; the configuration is gone, the data kept")


def main():
    package, newer = sys.argv[1:]
    home = tempfile.mkdtemp(prefix="fernd-package-")
    try:
        root, reason = fresh_root(home)
        if root is None:
            print(f"package: not installed anywhere: {reason}")
            return
        machine = Machine(root)
        try:
            life(machine, package, newer)
        finally:
            if machine.server is not None:
                machine.server.kill()
                machine.server.wait()
    finally:
        shutil.rmtree(home, ignore_errors=True)


main()
