"""A network between the members of a replica set that fails as a test says: a proxy for each ordered pair of them.

    member A ──▶ proxy of (A, B) ──▶ member B's port        bytes that A says go the way (A, B), what B answers the way (B, A)

A member dials the others by `testLinkAddresses` (`NetworkedSet`), so that everything it has to say to another goes through
the proxy of the pair. Clients go to the members' own ports: they are on each side of every cut.

What a way does with bytes:

    pass        as a network does
    hold        nothing arrives, and nobody is told: a black hole. Healed, what was held arrives late, or its connections
                are reset, as packets are sent again or given up
    delay       arrives so much later, in order
    throttle    so many bytes a second

A proxy can also refuse: its connections are reset, and its port is closed until it is opened again.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time

from fernd import ReplicaSet, host, lasting_port

CHUNK = 64 << 10
# Chunks of one direction that are under way; beyond them its sender is not read any more.
UNDER_WAY = 64
# How long the proxies' thread may take to do what it is told.
ANSWERS = 20


class Way:
    """What becomes of the bytes that one member says to another, by whichever connection."""

    def __init__(self):
        self.passes = asyncio.Event()
        self.delay = self.jitter = 0.0
        self.bytes_a_second = None
        self.reset_share = 0.0
        self.carried = 0
        self.heal()

    def heal(self):
        self.delay = self.jitter = self.reset_share = 0.0
        self.bytes_a_second = None
        self.passes.set()


class Proxy:
    """The connections that one member opens to another."""

    def __init__(self, port, to_port, there, back, rng):
        self.port, self.to_port = port, to_port
        self.there, self.back, self.rng = there, back, rng
        self.server, self.connections = None, set()

    async def open(self):
        if self.server is None:
            self.server = await asyncio.start_server(self.carry, "127.0.0.1", self.port, limit=CHUNK)

    async def refuse(self):
        if self.server is not None:
            self.server.close()
            self.server = None
        self.reset()

    def reset(self):
        for writers in list(self.connections):
            for writer in writers:
                abort(writer)

    async def carry(self, reader, writer):
        try:
            onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self.to_port, limit=CHUNK)
        except OSError:
            abort(writer)
            return
        pair = (writer, onward_writer)
        self.connections.add(pair)
        try:
            pumps = [self.pump(reader, onward_writer, self.there), self.pump(onward_reader, writer, self.back)]
            await asyncio.gather(*pumps)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.connections.discard(pair)
            for end in pair:
                abort(end)

    async def pump(self, reader, writer, way):
        """Hands on what comes, until an end is closed or the connection is reset."""
        queue = asyncio.Queue(UNDER_WAY)
        feeding = asyncio.ensure_future(self.feed(reader, queue, way))
        try:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0, due - time.monotonic()))
                await way.passes.wait()
                if data is None:
                    writer.write_eof()
                    return
                if way.bytes_a_second:
                    await asyncio.sleep(len(data) / way.bytes_a_second)
                if self.rng.random() < way.reset_share:
                    raise ConnectionResetError
                writer.write(data)
                way.carried += len(data)
                await writer.drain()
        finally:
            feeding.cancel()

    async def feed(self, reader, queue, way):
        due = 0.0
        while True:
            try:
                data = await reader.read(CHUNK)
            except OSError:
                data = b""
            # Later ones do not overtake.
            due = max(due, time.monotonic() + way.delay + self.rng.random() * way.jitter)
            await queue.put((due, data or None))
            if not data:
                return


def abort(writer):
    """Closes a connection so that the other end is told by a reset."""
    with contextlib.suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Network:
    """The proxies between members, whose own ports these are. Members are named by their place in that list."""

    def __init__(self, ports, seed=0):
        self.ports, self.rng = ports, random.Random(seed)
        self.pairs = [(a, b) for a in range(len(ports)) for b in range(len(ports)) if a != b]
        self.proxied = {pair: lasting_port() for pair in self.pairs}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.ways, self.proxies = {}, {}

    def start(self):
        self.thread.start()
        self.do(self._open)

    def stop(self):
        if self.thread.is_alive():
            self.do(self._close)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(ANSWERS)

    def do(self, action):
        """Has the proxies' thread do something that is awaited."""
        return asyncio.run_coroutine_threadsafe(action(), self.loop).result(ANSWERS)

    async def _open(self):
        self.ways = {pair: Way() for pair in self.pairs}
        for a, b in self.pairs:
            ways = self.ways[a, b], self.ways[b, a]
            self.proxies[a, b] = Proxy(self.proxied[a, b], self.ports[b], *ways, self.rng)
            await self.proxies[a, b].open()

    async def _close(self):
        for proxy in self.proxies.values():
            await proxy.refuse()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.05)

    def addresses_for(self, member):
        """`testLinkAddresses` of a member."""
        return ",".join(f"127.0.0.1:{self.ports[b]}=127.0.0.1:{self.proxied[a, b]}" for a, b in self.pairs if a == member)

    # What fails. Each lasts until `heal`.

    def ways_of(self, members, said=True, heard=True):
        """The ways on which these members say something to the others, and hear something of them."""
        one = [(a, b) for a, b in self.pairs if (a in members) != (b in members)]
        return [(a, b) for a, b in one if (said and a in members) or (heard and b in members)]

    def hold(self, pairs):
        async def action():
            for pair in pairs:
                self.ways[pair].passes.clear()

        self.do(action)

    def slow(self, pairs, delay=0.0, jitter=0.0, bytes_a_second=None):
        async def action():
            for pair in pairs:
                way = self.ways[pair]
                way.delay, way.jitter, way.bytes_a_second = delay, jitter, bytes_a_second

        self.do(action)

    def reset_now_and_then(self, pairs, share):
        """Of the chunks that go that way, this share resets its connection."""
        async def action():
            for pair in pairs:
                self.ways[pair].reset_share = share

        self.do(action)

    def reset(self, pairs):
        """The connections that are open are reset; new ones can be opened."""
        async def action():
            for pair in pairs:
                self.proxies[pair].reset()

        self.do(action)

    def refuse(self, pairs):
        """Connections are reset, and the proxies' ports are closed."""
        async def action():
            for pair in pairs:
                await self.proxies[pair].refuse()

        self.do(action)

    def open(self, pairs):
        async def action():
            for pair in pairs:
                await self.proxies[pair].open()

        self.do(action)

    def heal(self, resets=False):
        """All is well again. Where connections that were held are not reset, what they held arrives now."""
        async def action():
            held = [pair for pair, way in self.ways.items() if not way.passes.is_set()]
            for a, b in held if resets else []:
                self.proxies[a, b].reset()
                self.proxies[b, a].reset()
            for way in self.ways.values():
                way.heal()

        self.do(action)

    def carried(self):
        """Bytes that have arrived, by who said them to whom."""
        return {pair: way.carried for pair, way in self.ways.items()}


class NetworkedSet(ReplicaSet):
    """A replica set whose members reach each other through a `Network` only."""

    def __init__(self, *options, seed=0, **more):
        super().__init__("--setParameter", "enableTestCommands=1", *options, **more)
        self.network = Network([member.port for member in self.members], seed)
        for number, member in enumerate(self.members):
            member.options += ["--setParameter", f"testLinkAddresses={self.network.addresses_for(number)}"]

    def __enter__(self):
        self.network.start()
        return super().__enter__()

    def __exit__(self, *error):
        try:
            super().__exit__(*error)
        finally:
            self.network.stop()

    def number(self, member):
        return self.members.index(member)

    def tails(self):
        names = ", ".join(f"{n}: {host(member)}" for n, member in enumerate(self.members))
        return f"{names}\n{super().tails()}"

    # A member whose process is gone closes its port: the others are told, as without proxies.

    def kill(self, member):
        to_it = [pair for pair in self.network.pairs if pair[1] == self.number(member)]
        member.kill()
        self.network.refuse(to_it)

    def revive(self, member):
        member.start()
        self.network.open([pair for pair in self.network.pairs if pair[1] == self.number(member)])
