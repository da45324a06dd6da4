//! The seam between sockets and commands: what the network side asks of whoever runs requests.
//!
//! The server owns sockets, threads and frames and knows no command; a [`Service`] knows commands
//! and no socket. Tests put a small service of their own behind real sockets.

use bson::{RawDocument, RawDocumentBuf};
use limits::Charge;
use std::sync::Arc;
use std::time::Duration;
use wire::Compressor;

/// How a request arrived, which decides what its reply looks like to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// OP_MSG.
    Msg,
    /// OP_QUERY on `$cmd`, the way of the first handshake and of old clients.
    Query,
    /// Another message of old clients, translated into this command.
    Legacy {
        /// It goes on with the message before it: an error of the earlier part stays.
        goes_on: bool,
    },
}

/// The two ends of a connection, as logs and `whatsmyuri` show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// `address:port` of the client, or the path of the Unix socket.
    pub remote: String,
    /// `address:port` the client connected to, or the path of the Unix socket.
    pub local: String,
}

/// One request. Every document in it was checked by [`wire::validate`].
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// From `$db`, or from the namespace of an OP_QUERY.
    pub database: &'a str,
    /// The command.
    pub body: &'a RawDocument,
    /// Arrays of the command that travelled beside it.
    pub sequences: &'a [wire::Sequence<'a>],
    /// How it arrived.
    pub via: Via,
    /// Whether the client takes several replies to this request.
    pub exhaust_allowed: bool,
    /// The client's number for the message.
    pub request_id: i32,
    /// Asked again after it was to wait until then ([`Reply::wait`]).
    pub waited_until: Option<Duration>,
}

/// What goes back.
pub struct Reply {
    /// The reply, `ok` and all.
    pub document: RawDocumentBuf,
    /// Run this next, after sending `document` marked "more to come"; only where
    /// [`Request::exhaust_allowed`] was set.
    pub exhaust: Option<RawDocumentBuf>,
    /// Close the connection instead of answering (a fail point of test builds asks for it).
    pub hang_up: bool,
    /// Answer nothing yet: run the same request again at this monotonic time, or when the service asks
    /// for it ([`Service::on_change`]). No thread is held meanwhile.
    pub wait: Option<Duration>,
    /// For the document, until it is sent.
    pub memory: Option<Charge>,
}

impl From<RawDocumentBuf> for Reply {
    fn from(document: RawDocumentBuf) -> Self {
        Self { document, exhaust: None, hang_up: false, wait: None, memory: None }
    }
}

/// Runs waiting requests again.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Runs requests. Called from many threads at once, for one connection from one at a time.
pub trait Service: Send + Sync + 'static {
    /// What the service keeps per connection; small, for there may be tens of thousands.
    type Connection: Send + Sync + 'static;

    /// A client connected. Called on the network's one polling thread: must not wait.
    fn open_connection(&self, peer: Peer) -> Arc<Self::Connection>;

    /// The connection's number, in logs and everywhere: unique while the server runs.
    fn number(&self, connection: &Self::Connection) -> u64;

    /// Runs one request to its end. May wait and touch the disk.
    fn run(&self, connection: &Self::Connection, request: &Request<'_>) -> Reply;

    /// Whether the client may send messages packed like this.
    fn agreed(&self, _connection: &Self::Connection, _compressor: Compressor) -> bool {
        true
    }

    /// Calls `wake` whenever requests that wait should be run again. Called once.
    fn on_change(&self, _wake: Wake) {}

    /// An old client's write made no sense; it has no reply, but the client may ask later.
    fn write_refused(&self, _connection: &Self::Connection, _error: &errors::Error) {}

    /// The connection is gone, whoever closed it. Called exactly once for each opened one.
    fn close_connection(&self, connection: &Self::Connection);

    /// The client hung up while its request runs; what nobody waits for need not be finished.
    /// May be told again and again, and on the network's one polling thread: must not wait.
    fn client_left(&self, _connection: &Self::Connection) {}

    /// The server is going to stop: requests that only wait for time to pass should end now.
    fn stopping(&self) {}

    /// The time for running requests to finish is over: they should fail now.
    fn interrupt_all(&self) {}
}
