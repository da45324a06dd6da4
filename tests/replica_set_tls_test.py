"""A replica set whose members speak TLS to each other: by the key they share or by their certificates, on the way from
the one to the other, and who is not let in.

The certificates are made with the `openssl` command.
"""

import os
import shutil
import threading
import time

from bson import Binary
from certificates import HOME, authority, issue, path
from fernd import Fernd, ReplicaSet, fails, host, run_tests, wait_until
from pymongo.errors import OperationFailure, PyMongoError

SECONDARY_OK = {"$readPreference": {"mode": "secondaryPreferred"}}
# What members show is for members to judge.
SHOWN = {"tls": True, "tlsAllowInvalidCertificates": True, "tlsCertificateKeyFile": path("client.pem")}


class Member(Fernd):
    """A member that is spoken to by TLS, where it speaks it; logged in as `root` where that is asked for."""

    user = {}

    def mode(self):
        at = self.options.index("--tlsMode") if "--tlsMode" in self.options else None
        return "disabled" if at is None else self.options[at + 1]

    def client(self, **options):
        shown = {} if self.mode() == "disabled" else SHOWN
        return super().client(**{**shown, **self.user, **options})

    def start(self, **more):
        # Who asks whether it is there is nobody.
        user, self.user = self.user, {}
        try:
            return super().start(**more)
        finally:
            self.user = user

    def hello(self):
        with super().client(**({} if self.mode() == "disabled" else SHOWN)) as client:
            return client.admin.command("hello")

    def set(self, option, value):
        """Gives it an option, or another value of it; without one the option goes."""
        if option in self.options:
            at = self.options.index(option)
            del self.options[at:at + 2]
        if value is not None:
            self.options += [option, value]


class TlsSet(ReplicaSet):
    member_class = Member

    def __init__(self, *options, mode="requireTLS", key=True, **named):
        super().__init__(*options, **named)
        self.user = {}
        for member in self.members:
            if mode:
                member.set("--tlsMode", mode)
                member.set("--tlsCertificateKeyFile", path("server.pem"))
                member.set("--tlsCAFile", path("ca.pem"))
            if key:
                member.set("--keyFile", path("key"))

    def initiate(self):
        super().initiate()
        if any(option in self.members[0].options for option in ("--keyFile", "--clusterAuthMode")):
            with self.wait_for_primary().client() as nobody:
                nobody.admin.command("createUser", "root", pwd="pencil", roles=["root"])
            self.user = {"username": "root", "password": "pencil", "authSource": "admin"}
            for member in self.members:
                member.user = self.user

    def client(self, **options):
        shown = {} if self.members[0].mode() == "disabled" else SHOWN
        return super().client(**{**shown, **self.user, **options})

    def change(self, *changes, under=None):
        """Gives the members other options, one member after another, the primary last."""
        for member in [*self.secondaries(), self.wait_for_primary()]:
            assert member.stop() == 0
            for option, value in changes:
                member.set(option, value)
            member.start()
            self.wait_for_all()
            self.all_have(under.count if under else None)

    def all_have(self, count):
        if count is None:
            return
        for member in self.members:
            wait_until(lambda: documents_of(member) >= count, f"{host(member)} does not follow", self.tails)


class Writer:
    """Inserts documents one after another, and counts those that a majority has acknowledged."""

    def __init__(self, cluster):
        self.cluster, self.count, self.ended = cluster, 0, False
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        number = 0
        while not self.ended:
            # A member that has changed is reached in another way.
            try:
                with self.cluster.client(w="majority", serverSelectionTimeoutMS=2000) as client:
                    while not self.ended:
                        number += 1
                        client.test.c.insert_one({"_id": number})
                        self.count += 1
            except PyMongoError:
                continue

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.ended = True
        self.thread.join()


def documents_of(member):
    """How many documents a member has; none where it does not know the user yet."""
    try:
        with member.client() as one:
            return one.test.command("count", "c", **SECONDARY_OK)["n"]
    except OperationFailure as error:
        assert error.code in (13436, 18), error
        return -1


def members_speak_nothing_but_tls():
    with TlsSet() as cluster, cluster.client(w="majority") as root:
        root.test.c.insert_many([{"_id": i, "filler": "x" * 1000} for i in range(2000)])
        cluster.all_have(2000)
        with cluster.members[1].client() as one:
            assert sum(one.admin.command("serverStatus")["transportSecurity"].values()) > 0
        primary = cluster.wait_for_primary()
        primary.kill()
        cluster.wait_for_primary(but=primary)
        root.test.c.insert_one({"_id": 2000})
        primary.start()
        cluster.all_have(2001)
        # One that lost its disk gets a copy, by TLS too.
        secondary = cluster.secondaries()[0]
        assert secondary.stop() == 0
        shutil.rmtree(secondary.dbpath)
        secondary.start()
        cluster.all_have(2001)


def plain_members_become_members_by_tls_under_load():
    with TlsSet(mode=None, key=False) as cluster:
        tls = [("--tlsCertificateKeyFile", path("server.pem")), ("--tlsCAFile", path("ca.pem"))]
        with Writer(cluster) as writer:
            for mode in ("allowTLS", "preferTLS", "requireTLS"):
                cluster.change(("--tlsMode", mode), *tls, under=writer)
        with cluster.client() as client:
            assert client.test.c.count_documents({}) >= writer.count > 0, writer.count


def keys_give_way_to_certificates_under_load():
    with TlsSet() as cluster:
        with Writer(cluster) as writer:
            for mode in ("sendKeyFile", "sendX509", "x509"):
                cluster.change(("--clusterAuthMode", mode), under=writer)
            cluster.change(("--keyFile", None), under=writer)
        with cluster.client() as root:
            assert root.test.c.count_documents({}) >= writer.count > 0, writer.count
        # A key is nothing now.
        secondary = cluster.secondaries()[0]
        assert secondary.stop() == 0
        secondary.set("--clusterAuthMode", "keyFile")
        secondary.set("--keyFile", path("key"))
        secondary.start()
        wait_until(lambda: "authentication with this member's key file failed" in secondary.tail(1 << 20),
                   "the log says nothing of the key", cluster.tails)


def who_is_of_another_organization_is_no_member():
    with TlsSet("--clusterAuthMode", "x509", key=False, initiated=False) as cluster:
        third = cluster.members[2]
        for name, told in (
            ("stranger.pem", "it is no member's"),
            ("foreign.pem", "UnknownIssuer"),
            ("elsewhere.pem", "not valid for name"),
        ):
            assert third.stop() == 0
            third.set("--tlsCertificateKeyFile", path(name))
            third.start()
            with cluster.members[0].client() as nobody:
                error = fails(74, lambda: nobody.admin.command("replSetInitiate", cluster.config()))
                assert told in str(error) and host(third) in str(error), error
        # Shown to whoever connects is one certificate, and to members to log in by another.
        for member in cluster.members:
            assert member.stop() == 0
            member.set("--tlsCertificateKeyFile", path("front.pem"))
            member.set("--tlsClusterFile", path("member.pem"))
            member.start()
        cluster.initiate()
        with cluster.client(w="majority") as root:
            root.test.c.insert_one({"_id": 1})
        cluster.all_have(1)
        # They share no key; what they show of who does not exist is the same all the same.
        def shown(member):
            with Fernd.client(member, **SHOWN) as nobody:
                first = Binary(b"n,,n=ghost,r=abcdefgh")
                reply = nobody.admin.command("saslStart", mechanism="SCRAM-SHA-256", payload=first)
                return bytes(reply["payload"]).decode().split(",")[1]

        assert len({shown(member) for member in cluster.members}) == 1
        # One of a running set whose certificate is another one's.
        assert third.stop() == 0
        third.set("--tlsClusterFile", path("stranger.pem"))
        third.start()
        wait_until(lambda: "does not take this member's certificate" in third.tail(1 << 20),
                   "the log says nothing of the certificate", cluster.tails)


def a_members_certificate_is_no_users():
    for mode, by_certificate in (("keyFile", 18), ("sendKeyFile", 0)):
        with TlsSet("--clusterAuthMode", mode, members=1) as cluster:
            member = cluster.members[0]
            shown = {"tlsCertificateKeyFile": path("member.pem")}
            with member.client() as root:
                root["$external"].command("createUser", "CN=member,OU=Members,O=Tests",
                                          roles=[{"role": "read", "db": "test"}])
            with Fernd.client(member, **{**SHOWN, **shown, "authMechanism": "MONGODB-X509"}) as client:
                find = lambda: client.test.command("count", "c")
                if by_certificate:
                    assert "same O, OU and DC" in str(fails(by_certificate, find))
                else:
                    find()
                    users = client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
                    assert users == [{"user": "__system", "db": "local"}], users
        if by_certificate:
            with TlsSet("--setParameter", "enforceUserClusterSeparation=false", members=1) as cluster:
                member = cluster.members[0]
                with member.client() as root:
                    root["$external"].command("createUser", "CN=member,OU=Members,O=Tests",
                                              roles=[{"role": "read", "db": "test"}])
                with Fernd.client(member, **{**SHOWN, **shown, "authMechanism": "MONGODB-X509"}) as client:
                    client.test.command("count", "c")
                    fails(13, lambda: client.test.command("insert", "c", documents=[{}]))


def a_certificate_of_another_host_is_taken_where_that_is_said():
    with TlsSet("--tlsAllowInvalidHostnames", members=2, initiated=False) as cluster:
        cluster.members[1].stop()
        cluster.members[1].set("--tlsCertificateKeyFile", path("elsewhere.pem"))
        cluster.members[1].start()
        cluster.initiate()


class TlsSetWithArbiter(TlsSet):
    def config(self):
        config = super().config()
        config["members"][2]["arbiterOnly"] = True
        return config


def an_arbiter_helps_by_tls_and_takes_no_stranger():
    ways = [((), {}), (("--clusterAuthMode", "x509"), {"key": False})]
    for options, named in ways:
        with TlsSetWithArbiter(*options, **named) as cluster, cluster.client(w="majority") as root:
            arbiter = cluster.members[2]
            primary = cluster.wait_for_primary()
            secondary = next(m for m in cluster.members[:2] if m is not primary)
            assert arbiter.hello()["arbiterOnly"]
            try:
                Fernd.client(arbiter, serverSelectionTimeoutMS=1000).admin.command("ping")
                raise AssertionError("it speaks to who speaks no TLS")
            except PyMongoError:
                pass
            secondary.kill()
            root.test.c.insert_many([{"_id": n, "filler": "x" * 1000} for n in range(1000)])
            primary.kill()
            secondary.start()
            wait_until(lambda: secondary.hello()["isWritablePrimary"], "it does not lead", cluster.tails)
            assert documents_of(secondary) == 1000
            primary.start()
            cluster.wait_for_all()
        # The others do not speak to one whose certificate is of another authority.
    with TlsSetWithArbiter() as cluster:
        arbiter = cluster.members[2]
        arbiter.stop()
        arbiter.set("--tlsCertificateKeyFile", path("foreign.pem"))
        arbiter.start()
        primary = cluster.wait_for_primary()
        other = next(m for m in cluster.members[:2] if m is not primary)
        primary.kill()
        time.sleep(5)
        assert not other.hello()["isWritablePrimary"], "it was elected without a majority"
        arbiter.stop()
        arbiter.set("--tlsCertificateKeyFile", path("server.pem"))
        arbiter.start()
        wait_until(lambda: other.hello()["isWritablePrimary"], "it does not lead", cluster.tails)
        primary.start()
        cluster.wait_for_all()


TESTS = [
    members_speak_nothing_but_tls,
    plain_members_become_members_by_tls_under_load,
    keys_give_way_to_certificates_under_load,
    who_is_of_another_organization_is_no_member,
    a_members_certificate_is_no_users,
    a_certificate_of_another_host_is_taken_where_that_is_said,
    an_arbiter_helps_by_tls_and_takes_no_stranger,
]


def make_all():
    authority("ca")
    authority("other")
    issue("server", "/O=Tests/OU=Members/CN=server")
    issue("member", "/O=Tests/OU=Members/CN=member")
    issue("front", "/O=Tests/OU=Front/CN=front")
    issue("stranger", "/O=Tests/OU=Strangers/CN=stranger")
    issue("foreign", "/O=Tests/OU=Members/CN=foreign", by="other")
    issue("elsewhere", "/O=Tests/OU=Members/CN=elsewhere", extensions="subjectAltName=DNS:elsewhere.example")
    issue("client", "/O=Tests/OU=Clients/CN=client")
    with open(path("key"), "w") as file:
        file.write("bWVtYmVycyBzaGFyZSB0aGlz")
    os.chmod(path("key"), 0o600)


if __name__ == "__main__":
    try:
        make_all()
        run_tests("replica-set-tls", TESTS)
    finally:
        shutil.rmtree(HOME, ignore_errors=True)
