//! Commands behind sockets in the test's own process, and a client of them.

use bson::{RawDocument, RawDocumentBuf};
use dispatch::{ConnectionInfo, Reply, Request};
use net::{Endpoint, Listener, NetOptions, NetStats, Server};
use os::Os;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use wire::{Message, MsgFlags};

/// The commands, as the program puts them behind the sockets.
pub(crate) struct Commands(Arc<commands::Service>);

impl net::Service for Commands {
    type Connection = serverstate::Connection;

    fn open_connection(&self, peer: ConnectionInfo) -> Arc<serverstate::Connection> {
        self.0.open_connection(peer)
    }

    fn number(&self, connection: &serverstate::Connection) -> u64 {
        connection.id()
    }

    fn run(&self, connection: &serverstate::Connection, request: &Request<'_>) -> Reply {
        self.0.run(connection, request)
    }

    fn close_connection(&self, connection: &serverstate::Connection) {
        self.0.close_connection(connection);
    }
}

/// Serves the commands on a port of this machine that is free.
pub(crate) fn serve(
    os: &Os,
    service: &Arc<commands::Service>,
    options: NetOptions,
    stats: &Arc<NetStats>,
) -> (Server<Commands>, u16) {
    let any = Endpoint::resolve("127.0.0.1", 0, false).unwrap().remove(0);
    let listener = Listener::bind(&any, &*os.vfs).unwrap();
    let Endpoint::Tcp(address) = *listener.endpoint() else { panic!("not TCP") };
    let behind = Arc::new(Commands(Arc::clone(service)));
    let server = Server::start(os, vec![listener], behind, options, Arc::clone(stats)).unwrap();
    (server, address.port())
}

/// A connection.
pub(crate) struct Client(TcpStream);

impl Client {
    /// An answer that takes longer than `longest_wait` fails the test.
    pub(crate) fn connect(port: u16, longest_wait: Duration) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(longest_wait)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, body: &RawDocument) {
        let mut frame = Vec::new();
        wire::encode_msg(&mut frame, 1, 0, MsgFlags::NONE, body);
        self.0.write_all(&frame).unwrap();
    }

    pub(crate) fn receive(&mut self) -> RawDocumentBuf {
        let mut reply = vec![0; 4];
        self.0.read_exact(&mut reply).unwrap();
        reply.resize(u32::from_le_bytes(reply[..4].try_into().unwrap()) as usize, 0);
        self.0.read_exact(&mut reply[4..]).unwrap();
        let Ok((_, Message::Msg(msg))) = wire::decode(&reply) else { panic!("not OP_MSG") };
        msg.body.to_owned()
    }

    pub(crate) fn ask(&mut self, body: &RawDocument) -> RawDocumentBuf {
        self.send(body);
        self.receive()
    }
}
