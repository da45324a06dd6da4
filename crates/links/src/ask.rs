//! Commands that one server asks of another, over a connection of their own: what is said before there are links, and
//! beside them.
//!
//! Always true: a command is answered, or given up, within its time; a connection on which one was given up is asked
//! nothing more.

use crate::address::HostAndPort;
use crate::dial::{DialError, DialLimits, Waiting, connect, converse};
use crate::dialer::Dialer;
use crate::hello::{MAX_ANSWER, body_of};
use crate::signal::Signal;
use bson::{RawDocument, RawDocumentBuf};
use std::net::TcpStream;
use std::time::Duration;
use wire::MsgFlags;

/// A connection to another server, on which this one asks.
pub struct Connection {
    dialer: Dialer,
    socket: TcpStream,
    signal: Signal,
}

fn said(error: DialError) -> String {
    match error {
        DialError::Refused => "nobody listens there".to_owned(),
        DialError::Ended => "it was not waited for".to_owned(),
        DialError::Failed(why) => why,
    }
}

impl Connection {
    /// Connects, and says who this member is where it has a key. `ended` says whether nobody waits any more: it is
    /// asked before each wait.
    ///
    /// # Errors
    /// Why there is no connection, in one line.
    pub fn open(
        dialer: &Dialer,
        to: &HostAndPort,
        limit: Duration,
        ended: &dyn Fn() -> bool,
    ) -> Result<Self, String> {
        let signal = Signal::new().map_err(|error| error.to_string())?;
        let waiting = Waiting { signal: &signal, clock: &*dialer.os.clock, ended };
        let limits = DialLimits { connect: limit, hello: limit };
        let socket = connect(to, limits, waiting).map_err(said)?;
        dialer.log_in(&socket, limit, waiting).map_err(said)?;
        Ok(Self { dialer: dialer.clone(), socket, signal })
    }

    /// Asks a command, which names its database under `$db`, and takes an answer of at most so many bytes.
    ///
    /// # Errors
    /// Why there is no answer, or what the other server refuses, in one line.
    pub fn ask(
        &mut self,
        command: &RawDocument,
        limit: Duration,
        most_bytes: usize,
        ended: &dyn Fn() -> bool,
    ) -> Result<RawDocumentBuf, String> {
        let waiting = Waiting { signal: &self.signal, clock: &*self.dialer.os.clock, ended };
        let mut message = Vec::new();
        wire::encode_msg(&mut message, 1, 0, MsgFlags::NONE, command);
        let answer = converse(&self.socket, &message, limit, most_bytes, waiting).map_err(said)?;
        body_of(&answer).map(RawDocument::to_owned)
    }
}

/// Asks the server at a port one command.
///
/// # Errors
/// As [`Connection::open`] and [`Connection::ask`].
pub fn ask(
    dialer: &Dialer,
    to: &HostAndPort,
    command: &RawDocument,
    limit: Duration,
    ended: &dyn Fn() -> bool,
) -> Result<RawDocumentBuf, String> {
    Connection::open(dialer, to, limit, ended)?.ask(command, limit, MAX_ANSWER, ended)
}
