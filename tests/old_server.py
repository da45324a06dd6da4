"""A server of 2013 as a client sees it: TokuMX 2.0, which is MongoDB 2.4.

It understands OP_QUERY, OP_GET_MORE and OP_KILL_CURSORS and hangs up on anything else. Collections and indexes are
documents of `system.namespaces` and `system.indexes`, users those of each database's `system.users`, logins are
MONGODB-CR. Documents are those of a `fernd` behind it, which understands the old messages itself.
"""

import contextlib
import hashlib
import socket
import socketserver
import struct
import threading

import bson

OP_REPLY, OP_QUERY, OP_GET_MORE, OP_KILL_CURSORS = 1, 2004, 2005, 2007


def md5(text):
    return hashlib.md5(text.encode()).hexdigest()


def receive(stream):
    head = stream.read(16)
    if len(head) < 16:
        return None
    length, request, answered, opcode = struct.unpack("<iiii", head)
    return request, answered, opcode, stream.read(length - 16)


class OldServer:
    """In front of a server; `users` are {(database, name): password}, and whoever asks must be one where there are any."""

    def __init__(self, server, users=None, lose_cursors=False):
        self.server, self.users, self.lose_cursors = server, users or {}, lose_cursors
        self.opcodes, self.lost = set(), 0
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with contextlib.suppress(OSError, struct.error):
                    proxy.serve(self.request)

        class Listener(socketserver.ThreadingTCPServer):
            daemon_threads = allow_reuse_address = True

        self.listener = Listener(("127.0.0.1", 0), Handler)
        self.port = self.listener.server_address[1]

    def __enter__(self):
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.listener.shutdown()
        self.listener.server_close()

    def serve(self, client):
        is_known = not self.users
        behind = socket.create_connection(("127.0.0.1", self.server.port), 60)
        stream, replies = client.makefile("rb"), behind.makefile("rb")
        with behind, stream, replies:
            while message := receive(stream):
                request, _, opcode, body = message
                self.opcodes.add(opcode)
                if opcode not in (OP_QUERY, OP_GET_MORE, OP_KILL_CURSORS):
                    return
                own = None
                if opcode == OP_QUERY:
                    own, is_known = self.answer(body, is_known)
                elif opcode == OP_GET_MORE and self.lose_cursors and self.lost < 3:
                    self.lost += 1
                    self.reply(client, request, [], flags=1)
                    continue
                if own is not None:
                    self.reply(client, request, own)
                    continue
                behind.sendall(struct.pack("<iiii", 16 + len(body), request, 0, opcode) + body)
                if opcode != OP_KILL_CURSORS:
                    number, answered, kind, told = receive(replies)
                    client.sendall(struct.pack("<iiii", 16 + len(told), number, answered, kind) + told)

    def reply(self, client, request, documents, flags=0):
        body = struct.pack("<iqii", flags, 0, 0, len(documents)) + b"".join(map(bson.encode, documents))
        client.sendall(struct.pack("<iiii", 16 + len(body), 0, request, OP_REPLY) + body)

    def answer(self, body, is_known):
        """What it says by itself, or None; and whether the connection has logged in."""
        end = body.index(b"\0", 4)
        database, collection = body[4:end].decode().split(".", 1)
        query = bson.decode(body[end + 9:end + 9 + struct.unpack_from("<i", body, end + 9)[0]])
        if collection == "$cmd":
            name = next(iter(query))
            if name.lower() == "ismaster":
                return [{"ismaster": True, "maxBsonObjectSize": 1 << 24, "ok": 1.0}], is_known
            if name == "buildInfo":
                return [{"version": "2.4.10", "tokumxVersion": "2.0.2", "ok": 1.0}], is_known
            if name == "getnonce":
                return [{"nonce": "2375531c32080ae8", "ok": 1.0}], is_known
            if name == "authenticate":
                password = self.users.get((database, query["user"]), "")
                kept = md5(f"{query['user']}:mongo:{password}")
                if query["key"] != md5(f"{query['nonce']}{query['user']}{kept}"):
                    return [{"ok": 0.0, "errmsg": "auth fails"}], False
                return [{"dbname": database, "user": query["user"], "ok": 1.0}], True
            if not is_known:
                return [{"ok": 0.0, "errmsg": "unauthorized"}], is_known
            if name in ("hello", "listCollections", "listIndexes", "find"):
                return [{"ok": 0.0, "errmsg": f"no such cmd: {name}"}], is_known
            return None, is_known
        if not is_known:
            return [{"$err": "not authorized"}], is_known
        if collection.startswith("system."):
            with self.server.client() as client:
                return self.system(client, database, collection), is_known
        return None, is_known

    def system(self, client, database, collection):
        if collection == "system.users":
            return [{"_id": bson.ObjectId(), "user": user, "pwd": md5(f"{user}:mongo:{password}"), "roles": ["readWrite"]}
                    for (of, user), password in self.users.items() if of == database]
        db, found = client[database], []
        for listed in db.list_collections():
            name = f"{database}.{listed['name']}"
            if collection == "system.namespaces":
                options = {"create": listed["name"], **listed["options"]} if listed["options"] else {}
                found.append({"name": name, "options": options} if options else {"name": name})
                found.append({"name": f"{name}.$_id_"})
            elif collection == "system.indexes":
                for index in db[listed["name"]].list_indexes():
                    found.append({**index, "v": 1, "ns": name, "background": True})
        return found
