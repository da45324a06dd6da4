"""Whether the time of an answer tells a user that exists from one that does not: wrong logins of known and of unknown
users in random order, from an address of their own each (who guesses from one waits), and Welch's t of the two.

t is that of all times and of those below several quantiles of all, for a long tail hides a small difference; the largest
one counts. Under 4.5 nothing is told apart. Each answer is measured by itself: `saslStart` with a made-up or a real salt,
and `saslContinue` with a wrong proof. On a machine that does other things at once the times are noise, and t is small: run
it alone.

    FERND=… python tests/login_timing.py [--logins 100000] [--mechanism SCRAM-SHA-256]
"""

import argparse
import base64
import math
import os
import random
import socket
import statistics
import struct
import time

import bson
from fernd import Fernd

BAR = 4.5
USERS = 200


def message(command):
    body = bson.encode({**command, "$db": "admin"})
    return struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body


def ask(one, request):
    """The answer, and the nanoseconds until its first bytes."""
    began = time.perf_counter_ns()
    one.sendall(request)
    head = one.recv(4, socket.MSG_WAITALL)
    took = time.perf_counter_ns() - began
    return bson.decode(one.recv(struct.unpack("<i", head)[0] - 4, socket.MSG_WAITALL)[17:]), took


def log_in(port, user, mechanism):
    """Nanoseconds of both answers to a login with a wrong proof."""
    source = f"127.{random.randrange(1, 250)}.{random.randrange(250)}.{random.randrange(1, 250)}"
    with socket.create_connection(("127.0.0.1", port), 30, (source, 0)) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = message({"saslStart": 1, "mechanism": mechanism, "payload": f"n,,n={user},r=abcdefghijklmnop".encode()})
        reply, first = ask(one, begin)
        nonce = reply["payload"].split(b",")[0]
        proof = base64.b64encode(os.urandom(20 if mechanism.endswith("-1") else 32))
        go_on = message({"saslContinue": 1, "conversationId": 1, "payload": b"c=biws," + nonce + b",p=" + proof})
        reply, second = ask(one, go_on)
        assert reply["code"] == 18, reply
        return first, second


def welch(one, other):
    spread = statistics.variance(one) / len(one) + statistics.variance(other) / len(other)
    return (statistics.fmean(one) - statistics.fmean(other)) / math.sqrt(spread)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--logins", type=int, default=100_000)
    p.add_argument("--mechanism", default="SCRAM-SHA-256")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    random.seed(a.seed)
    # One between two others in order, so that both kinds stand in the same places of the server's tables.
    names = {known: [f"user{2 * at + first:03}" for at in range(USERS)] for known, first in ((True, 0), (False, 1))}
    times = {True: [], False: []}
    with Fernd("--auth", "--quiet") as server:
        with server.client() as first:
            first.admin.command("createUser", "root", pwd="pencil", roles=["root"])
        with server.client(username="root", password="pencil") as root:
            for name in names[True]:
                root.admin.command("createUser", name, pwd="pencil", roles=[])
        for at in range(a.logins):
            known = random.random() < 0.5
            taken = log_in(server.port, random.choice(names[known]), a.mechanism)
            # The first ones warm up.
            if at >= a.logins // 50:
                times[known].append(taken)
    worst = 0
    print(f"{a.logins} logins by {a.mechanism}: {len(times[True])} known, {len(times[False])} unknown")
    for at, answer in enumerate(("saslStart", "saslContinue")):
        one, other = ([taken[at] for taken in times[known]] for known in (True, False))
        every = sorted(one + other)
        for share in (0.5, 0.75, 0.9, 0.99, 1):
            limit = every[min(len(every) - 1, int(len(every) * share))]
            a_part, b_part = ([value for value in values if value <= limit] for values in (one, other))
            t = welch(a_part, b_part)
            worst = max(worst, abs(t))
            print(f"  {answer:<13} below {share * 100:3.0f} %: known {statistics.fmean(a_part) / 1e3:8.2f} us, "
                  f"unknown {statistics.fmean(b_part) / 1e3:8.2f} us, t = {t:6.2f}")
    print(f"login-timing: the largest |t| is {worst:.2f}, the bar {BAR}")
    if worst >= BAR:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
