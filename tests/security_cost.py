"""What users and TLS cost: YCSB's client at a plain server, at one that asks for users and at one that takes nothing
but TLS, in turns, in one run.

A round is one run of YCSB at each server, each round in another order; what is told of a server is the median over the
rounds of its ratio to the plain one of the same round. C reads one record by `_id`, U sets all fields of one.
Each run of the client begins with connections and logins of its own, and with Java's warming up; a password is worked out
in each of its logins by the client, for which the server's count of iterations is the smallest that it takes.

A client that works more takes more of the machine, and the server's own code is slower beside it: with `--pinned` the
servers have one processor and the client another one. With `--target` the client asks so often and no more, and only the
CPU per operation tells something.

With `--bars` it fails where C's CPU per operation is over 1.02 of plain with users or over 1.15 with TLS.

    FERND=… FERN_TARGET=… python tests/security_cost.py [--rounds 7] [--threads 64] [--workloads CU] [--pinned]
"""

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import time

import ycsb
from secured import Secured

ycsb.WORKLOADS["U"] = {"readproportion": 0, "updateproportion": 1, "requestdistribution": "zipfian",
                       "writeallfields": "true"}
KINDS = {"plain": {"auth": False, "tls": False}, "users": {"auth": True, "tls": False},
         "tls": {"auth": False, "tls": True}, "both": {"auth": True, "tls": True}}
BARS = {"users": 1.02, "tls": 1.15}


# Seconds after the loads until the servers are at rest.
SETTLES = 10


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--threads", type=int, default=64)
    p.add_argument("--records", type=int, default=50_000)
    p.add_argument("--operations", type=int, default=200_000, help="of a run")
    p.add_argument("--workloads", default="CU")
    p.add_argument("--kinds", default="plain,users,tls", help=f"of {', '.join(KINDS)}")
    p.add_argument("--pinned", action="store_true", help="servers on the first processor, the client on the second")
    p.add_argument("--target", type=int, help="operations a second that the client asks for")
    p.add_argument("--bars", action="store_true", help="fail where a bar is missed")
    p.add_argument("--json", metavar="FILE")
    a = p.parse_args()
    a.short, a.journal, a.extra = False, False, []
    kinds = a.kinds.split(",")
    path = ycsb.class_path()
    if path is None:
        return
    rows, missed = [], []
    with contextlib.ExitStack() as stack:
        options = ("--cacheSize", "512M", "--setParameter", "scramSHA256IterationCount=5000")
        servers = {kind: stack.enter_context(Secured(*options, **KINDS[kind])) for kind in kinds}
        for kind, server in servers.items():
            loaded = ycsb.Run("load", server, path, "-load", a)
            assert not loaded.complaints(), (kind, loaded.complaints(), loaded.done.stderr[-2000:])
            # What is merged in the background is no part of what is measured.
            with server.client() as client:
                client.admin.command("checkpoint")
        time.sleep(SETTLES)
        if a.pinned:
            for server in servers.values():
                subprocess.run(["taskset", "-apc", "0", str(server.process.pid)], check=True, stdout=subprocess.DEVNULL)
            os.sched_setaffinity(0, {1})
        if a.target:
            a.extra.append(f"target={a.target}")
        for name in a.workloads:
            runs = {kind: [] for kind in kinds}
            for turn in range(a.rounds):
                first = turn % len(kinds)
                for kind in kinds[first:] + kinds[:first]:
                    run = ycsb.Run(name, servers[kind], path, "-t", a)
                    assert not run.complaints(), (kind, run.complaints(), run.done.stderr[-2000:])
                    runs[kind].append(run)
                told = ", ".join(f"{kind} {runs[kind][-1].per_second():,.0f}/s {runs[kind][-1].cpu_us:.1f} us"
                                 for kind in kinds)
                print(f"{name} {turn + 1}: {told}; others {max(runs[k][-1].others_percent for k in kinds):.0f} %",
                      flush=True)
            for kind in kinds:
                mine, plain = runs[kind], runs["plain"]
                rate = [one.per_second() / other.per_second() for one, other in zip(mine, plain)]
                cpu = [one.cpu_us / other.cpu_us for one, other in zip(mine, plain)]
                rows.append({"workload": name, "kind": kind, "rate": statistics.median(r.per_second() for r in mine),
                             "cpu_us": statistics.median(r.cpu_us for r in mine),
                             "rate_ratio": quartiles(rate), "cpu_ratio": quartiles(cpu)})
                if name == "C" and rows[-1]["cpu_ratio"][1] > BARS.get(kind, math.inf):
                    missed.append(f"{kind}: {rows[-1]['cpu_ratio'][1]:.3f}, and {BARS[kind]} is the bar")
    print(f"\n{'':<3}{'server':<8}{'ops/s':>10}{'CPU us':>8}   rate against plain (quartiles)   CPU against plain (quartiles)")
    for row in rows:
        shown = ["{1:.3f} ({0:.3f} to {2:.3f})".format(*row[key]) for key in ("rate_ratio", "cpu_ratio")]
        print(f"{row['workload']:<3}{row['kind']:<8}{row['rate']:>10,.0f}{row['cpu_us']:>8.1f}   {shown[0]:<32}{shown[1]}")
    if a.json:
        with open(a.json, "w") as file:
            json.dump({"options": vars(a), "rows": rows}, file, indent=2)
    if a.bars and missed:
        raise SystemExit("; ".join(missed))


if __name__ == "__main__":
    main()
