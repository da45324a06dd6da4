//! The seam between sockets and commands: what the network side asks of whoever runs requests.
//!
//! The server owns sockets, threads and frames and knows no command; a [`Service`] knows commands
//! and no socket. Tests put a small service of their own behind real sockets.

use dispatch::{ConnectionInfo, Reply, Request, Wake};
use limits::{Arrivals, BeforeLogin};
use std::net::IpAddr;
use std::sync::Arc;
use tls::Established;
use wire::Compressor;

/// Runs requests. Called from many threads at once, for one connection from one at a time.
pub trait Service: Send + Sync + 'static {
    /// What the service keeps per connection; small, for there may be tens of thousands.
    type Connection: Send + Sync + 'static;

    /// A client connected. Called on the network's one polling thread: must not wait.
    fn open_connection(&self, peer: ConnectionInfo) -> Arc<Self::Connection>;

    /// The connection's number, in logs and everywhere: unique while the server runs.
    fn number(&self, connection: &Self::Connection) -> u64;

    /// What the client is held to, as long as it has to log in and has not. Must not wait.
    fn before_login(&self, _connection: &Self::Connection) -> Option<&BeforeLogin> {
        None
    }

    /// How many connections may come, and how fast; any number where nothing says.
    fn arrivals(&self) -> Option<&Arrivals> {
        None
    }

    /// Whether connections from there are let in beyond the usual number. Called as
    /// [`Service::open_connection`] is.
    fn is_let_in_beyond(&self, _from: IpAddr) -> bool {
        false
    }

    /// Runs one request to its end. May wait and touch the disk. Every document in the request was
    /// checked by [`wire::validate`].
    fn run(&self, connection: &Self::Connection, request: &Request<'_>) -> Reply;

    /// The client speaks TLS from here on, and this is what was agreed on. Told once, before its first request.
    fn secured(&self, _connection: &Self::Connection, _established: &Established) {}

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
