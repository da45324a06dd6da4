//! One request, as sockets hand it to whoever runs commands, and the connection it came by.

use bson::RawDocument;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// A kind 1 section of an `OP_MSG`: its name and its documents.
pub type Sequence<'a> = (&'a str, Vec<&'a RawDocument>);

/// Which message a request came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OpKind {
    /// `OP_MSG`.
    #[default]
    Msg,
    /// `OP_QUERY` on `$cmd`: answered by the server with `OP_REPLY`.
    Query,
    /// Another message from before `OP_MSG`, which the server translated. What becomes of a write
    /// is told to `getLastError`.
    Legacy {
        /// It goes on with the message before it: an error of the earlier part stays.
        goes_on: bool,
    },
}

impl OpKind {
    /// Is it a message that was translated?
    pub fn is_legacy(self) -> bool {
        matches!(self, Self::Legacy { .. })
    }
}

/// A command as it came, its bytes already walked by `wire`.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The database it is sent to.
    pub database: &'a str,
    /// The command document; its first field names the command.
    pub body: &'a RawDocument,
    /// The kind 1 sections of an `OP_MSG`.
    pub sequences: &'a [Sequence<'a>],
    /// Which message it came in.
    pub op: OpKind,
    /// The client takes a stream of replies.
    pub exhaust_allowed: bool,
    /// The message's own number.
    pub request_id: i32,
    /// It was to wait until this server time ([`Reply::wait`]) and is run again.
    pub waited_until: Option<Duration>,
    /// Where it may wait without a thread ([`Reply::wait`]): makes what runs it again before its time.
    pub waker: Option<MakeWaker<'a>>,
    /// Where its answer may wait without a thread ([`Reply::unfinished`]): makes what goes on with that before its
    /// time.
    pub finisher: Option<MakeWaker<'a>>,
}

/// Makes what runs one waiting request again. That may be called at any time and on any thread, does not wait,
/// and does nothing once the request is answered.
#[derive(Clone, Copy)]
pub struct MakeWaker<'a>(pub &'a dyn Fn() -> Wake);

impl std::fmt::Debug for MakeWaker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MakeWaker")
    }
}

/// Where a connection comes from and ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// `host:port` of the client, or what a Unix socket offers.
    pub remote: String,
    /// `host:port` it came in by.
    pub local: String,
}

impl ConnectionInfo {
    /// The client's address, if it came by the network.
    pub fn remote_ip(&self) -> Option<IpAddr> {
        self.remote.parse::<SocketAddr>().ok().map(|at| at.ip())
    }

    /// Whether the client is on this machine: a loopback address, or a Unix socket, whose ends have
    /// no address of the network.
    pub fn is_of_this_machine(&self) -> bool {
        self.remote.parse::<SocketAddr>().map_or(true, |at| at.ip().to_canonical().is_loopback())
    }
}

/// Runs waiting requests again.
pub type Wake = Arc<dyn Fn() + Send + Sync>;
