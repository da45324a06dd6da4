"""YCSB's six core workloads against a `fernd` of their own: its own client and generators, from Maven
Central, over the official Java driver through `tests/ycsb-java`.

Checked: not one operation fails, as many are done as were asked for, the collection counts what was
inserted, and a full `validate` is clean.
Reported: operations/s and latencies as YCSB tells them; CPU and bytes written of the server per
operation, background work included, its peak resident memory so far, and what share of the machine
others took meanwhile.

Needs a JDK of 11 or later, Maven and its repository; says so and passes where they are missing.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import time

from fernd import TICKS, validate
from secured import Secured, add_options, java_trust, missing

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ycsb-java")

# In the order that YCSB recommends: the first four leave the number of records as it is, D adds some,
# E starts from an empty collection again.
WORKLOADS = {
    "A": {"readproportion": 0.5, "updateproportion": 0.5, "requestdistribution": "zipfian"},
    "B": {"readproportion": 0.95, "updateproportion": 0.05, "requestdistribution": "zipfian"},
    "C": {"readproportion": 1, "updateproportion": 0, "requestdistribution": "zipfian"},
    "F": {"readproportion": 0.5, "updateproportion": 0, "readmodifywriteproportion": 0.5,
          "requestdistribution": "zipfian"},
    "D": {"readproportion": 0.95, "updateproportion": 0, "insertproportion": 0.05,
          "requestdistribution": "latest"},
    "E": {"readproportion": 0, "updateproportion": 0, "scanproportion": 0.95,
          "insertproportion": 0.05, "requestdistribution": "zipfian", "maxscanlength": 100,
          "scanlengthdistribution": "uniform"},
}

# TokuMX 2.0.2's CPU per operation, its server's process: 200,000 records, cached, 8 threads.
TOKUMX = {"A": 22.0, "B": 17.4, "C": 15.1, "E": 74.8}
TOKUMX_JOURNAL = {"A": 50.6}

COMPOUND = "READ-MODIFY-WRITE"  # counted by YCSB as a read and an update, too


def ycsb(target):
    """The class path: jars as the pom pins them, fetched once, and our binding."""
    jars, classes = os.path.join(target, "jars"), os.path.join(target, "classes")
    pom, fetched = os.path.join(HERE, "pom.xml"), os.path.join(target, "fetched")
    if not os.path.exists(fetched) or os.path.getmtime(fetched) < os.path.getmtime(pom):
        shutil.rmtree(jars, ignore_errors=True)
        subprocess.run(
            ["mvn", "--quiet", "--batch-mode", "-Dstyle.color=never", "--file", pom,
             "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"],
            check=True,
        )
        open(fetched, "w").close()
    return os.pathsep.join([classes, os.path.join(jars, "*")])


def compile_binding(target, path):
    subprocess.run(
        ["javac", "--release", "11", "-d", os.path.join(target, "classes"), "-cp", path,
         os.path.join(HERE, "FernBinding.java")],
        check=True,
    )


class Run:
    """One run of YCSB's client: what it said, and what it cost the server."""

    def __init__(self, name, server, path, phase, a):
        self.name, self.asked = name, a.records if phase == "-load" else a.operations
        properties = {
            "workload": "site.ycsb.workloads.CoreWorkload",
            "recordcount": a.records,
            "operationcount": a.operations,
            # Java is told elsewhere whom to trust.
            "mongodb.url": server.uri("ycsb", ca=False, w=1, **({"journal": "true"} if a.journal else {})),
            **WORKLOADS.get(name, WORKLOADS["A"]),
            **dict(given.split("=", 1) for given in a.extra),
        }
        logging = os.path.join(HERE, "logging.properties")
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", f"-Djava.util.logging.config.file={logging}",
                   *(["-XX:TieredStopAtLevel=1"] if a.short else []),
                   *(java_trust() if server.tls else []),
                   "-cp", path, "site.ycsb.Client", "-db", "FernBinding", phase,
                   "-threads", str(a.threads)]
        for key, value in properties.items():
            command += ["-p", f"{key}={value}"]
        with server.client() as client:
            client.admin.command("checkpoint")
            cpu, written = server.cpu_seconds(), server.bytes_written()
            (busy, whole), clients = machine(), children()
            self.done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
            cpu = server.cpu_seconds() - cpu
            busy, whole = (now - then for now, then in zip(machine(), (busy, whole)))
        others = busy - cpu - (children() - clients)
        self.others_percent = max(0, others) / whole * 100
        self.cpu_us = cpu / self.asked * 1e6
        self.written = (server.bytes_written() - written) / self.asked
        self.peak_resident = server.peak_resident()
        self.said = said(self.done.stdout)
        self.tokumx = (TOKUMX_JOURNAL if a.journal else TOKUMX).get(name)

    def per_second(self):
        return float(self.said.get("OVERALL", {}).get("Throughput(ops/sec)", 0))

    def operations(self):
        """What the client asked the server for, by kind: its count and latencies."""
        return {
            kind: {"count": int(of["Operations"]),
                   "p95_us": int(of.get("95thPercentileLatency(us)", 0)),
                   "p99_us": int(of.get("99thPercentileLatency(us)", 0))}
            for kind, of in sorted(self.said.items())
            if "Operations" in of and kind not in ("CLEANUP", "VERIFY")
        }

    def inserted(self):
        return int(self.said.get("INSERT", {}).get("Return=OK", 0))

    def complaints(self):
        """What is wrong with the run, in words; empty for a good one."""
        found = []
        if self.done.returncode != 0:
            found.append(f"the client ended with {self.done.returncode}")
        for kind, of in self.said.items():
            if kind.endswith("-FAILED"):
                found.append(f"{kind}: {of.get('Operations')} operations")
            returns = {key: n for key, n in of.items() if key.startswith("Return=")}
            found += [f"{kind}: {n} with {key}" for key, n in returns.items() if key != "Return=OK"]
            counted = int(of.get("Operations", 0))
            if returns and int(returns.get("Return=OK", 0)) != counted:
                found.append(f"{kind}: {returns.get('Return=OK', 0)} of {counted} are OK")
        count = {kind: of["count"] for kind, of in self.operations().items()}
        twice = count.pop(COMPOUND, 0)
        if sum(count.values()) - twice != self.asked:
            found.append(f"{sum(count.values()) - twice} operations, {self.asked} were asked for")
        return found

    def figures(self):
        return {
            "workload": self.name,
            "ops_per_s": round(self.per_second()),
            "cpu_us_per_op": round(self.cpu_us, 1),
            "tokumx_cpu_us_per_op": self.tokumx,
            "written_per_op": round(self.written),
            "peak_resident_mb": self.peak_resident >> 20,
            "others_percent": round(self.others_percent),
            "operations": self.operations(),
        }


def machine():
    """Seconds that the processors worked, or the hypervisor took, and seconds that there were."""
    with open("/proc/stat") as f:
        user, nice, system, idle, wait, *other = map(int, f.readline().split()[1:9])
    busy = user + nice + system + sum(other)
    return busy / TICKS, (busy + idle + wait) / TICKS


def children():
    """CPU seconds of the clients so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def said(output):
    """`[READ], Operations, 49873` and its like: by kind, then by name."""
    found = {}
    for line in output.splitlines():
        words = line.split(", ")
        if len(words) == 3 and words[0].startswith("["):
            found.setdefault(words[0].strip("[]"), {})[words[1]] = words[2]
    return found


HEADINGS = ("", "ops/s", "CPU us/op", "TokuMX", "written B/op", "peak MB",
            "others %", "operation", "count", "p95 us", "p99 us")
ROW = "{:<5}{:>9}{:>11}{:>8}{:>14}{:>9}{:>10}  {:<18}{:>9}{:>9}{:>9}"


def table(runs):
    print(ROW.format(*HEADINGS))
    for f in (run.figures() for run in runs):
        first = (f["workload"], f"{f['ops_per_s']:,}", f["cpu_us_per_op"],
                 f["tokumx_cpu_us_per_op"] or "",
                 f"{f['written_per_op']:,}", f["peak_resident_mb"], f["others_percent"])
        for kind, of in f["operations"].items():
            print(ROW.format(*first, kind, f"{of['count']:,}", of["p95_us"], of["p99_us"]))
            first = ("",) * len(first)


def work(server, path, a):
    """Loads and runs; the runs done, and how many of them are wrong."""
    runs, failed, records = [], 0, None

    def run(name, phase):
        nonlocal failed
        clock = time.monotonic()
        one = Run(name, server, path, phase, a)
        wrong = one.complaints()
        print(f"  {name}: {one.per_second():,.0f}/s, {time.monotonic() - clock:.1f} s", flush=True)
        for words in wrong:
            print(f"    FAILED: {words}")
        if wrong:
            print(one.done.stderr[-2000:])
            failed += 1
        runs.append(one)
        return one.inserted()

    with server.client() as client:
        records_in = client.ycsb.usertable
        for name in (name for name in WORKLOADS if name in a.workloads.upper()):
            if records != a.records:
                records_in.drop()
                records = run("load", "-load")
            records += run(name, "-t")
            counted = records_in.count_documents({})
            if counted != records:
                print(f"    FAILED: {counted} documents, {records} were inserted")
                failed += 1
        report = validate(records_in)
        assert report["nrecords"] == records, (report["nrecords"], records)
    return runs, failed


def options():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--records", type=int, default=200_000, help="of ten fields of 100 bytes")
    p.add_argument("--operations", type=int, default=100_000, help="of each workload")
    p.add_argument("--threads", type=int, default=8)
    p.add_argument("--workloads", default="abcdef", help="in YCSB's order, however they are given")
    p.add_argument("--cache-size", default="256M")
    p.add_argument("--journal", action="store_true", help="writes are acknowledged from the disk")
    p.add_argument("--extra", metavar="PROPERTY=VALUE", action="append", default=[],
                   help="a property for YCSB; may be given again and again")
    p.add_argument("--short", action="store_true", help="5,000 records and operations: no figures")
    add_options(p)
    p.add_argument("--json", metavar="FILE", help="write the figures here")
    a = p.parse_args()
    if a.short:
        a.records = a.operations = 5000
    if not a.workloads or set(a.workloads.upper()) - set(WORKLOADS):
        p.error(f"--workloads takes letters out of {''.join(sorted(WORKLOADS))}")
    if any("=" not in given for given in a.extra):
        p.error("--extra takes PROPERTY=VALUE")
    return a


def class_path():
    """What Java is to run, fetched and compiled; or None, and why is printed."""
    if not (shutil.which("javac") and shutil.which("mvn")):
        print("skipped: no JDK or no Maven here")
        return None
    target = os.path.join(os.path.abspath(os.environ["FERN_TARGET"]), "ycsb")
    os.makedirs(target, exist_ok=True)
    try:
        path = ycsb(target)
    except subprocess.CalledProcessError as error:
        print(f"skipped: YCSB cannot be fetched ({error})")
        return None
    compile_binding(target, path)
    return path


def main():
    a = options()
    path = class_path()
    if path is None:
        return
    if why := missing(a):
        print(f"skipped: {why}")
        return
    with Secured("--cacheSize", a.cache_size, auth=a.auth, tls=a.tls) as server:
        runs, failed = work(server, path, a)
        if server.process.poll() is not None:
            raise SystemExit(f"fernd died:\n{server.tail()}")
        assert server.stop() == 0, server.tail()
    table(runs)
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"options": vars(a), "runs": [run.figures() for run in runs]}, f, indent=2)
    print(f"ycsb: {len(runs) - failed} passed, {failed} failed")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
