//! Commands that one server asks of another, over a connection of their own: what is said before there are links, and
//! beside them.
//!
//! Always true: a command is answered, or given up, within its time; a connection on which one was given up is asked
//! nothing more.

use crate::address::HostAndPort;
use crate::dial::{DialError, DialLimits, WaitContext, read_message, send_message};
use crate::dialer::Dialer;
use crate::hello::{MAX_ANSWER, any_body_of, body_of, is_done};
use crate::signal::Signal;
use crate::stream::Stream;
use bson::{RawDocument, RawDocumentBuf};
use std::time::Duration;
use wire::MsgFlags;

/// A connection to another server, on which this one asks.
pub struct Connection {
    dialer: Dialer,
    stream: Stream,
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
    /// asked several times a second.
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
        let waiting = WaitContext { signal: &signal, clock: &*dialer.os.clock, ended };
        let limits = DialLimits { connect: limit, hello: limit };
        let stream = dialer.open(to, limits, waiting).map_err(said)?;
        Ok(Self { dialer: dialer.clone(), stream, signal })
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
        self.send(command, limit, ended)?;
        self.receive(limit, most_bytes, ended)
    }

    /// Sends a command, and does not wait for its answer: [`Connection::receive`] takes the answers in the order of
    /// the commands.
    ///
    /// # Errors
    /// Why it is not sent, in one line.
    pub fn send(
        &mut self,
        command: &RawDocument,
        limit: Duration,
        ended: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let mut message = Vec::new();
        wire::encode_msg(&mut message, 1, 0, MsgFlags::NONE, command);
        let waiting = WaitContext { signal: &self.signal, clock: &*self.dialer.os.clock, ended };
        send_message(&mut self.stream, &message, limit, waiting).map_err(said)
    }

    /// The answer, of at most so many bytes, to the oldest command that has none yet.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn receive(
        &mut self,
        limit: Duration,
        most_bytes: usize,
        ended: &dyn Fn() -> bool,
    ) -> Result<RawDocumentBuf, String> {
        let answer = self.read(limit, most_bytes, ended)?;
        body_of(&answer).map(RawDocument::to_owned)
    }

    /// Asks a command as [`Connection::ask`] does; an answer that refuses it is one, too.
    ///
    /// # Errors
    /// Why there is no answer, in one line.
    pub fn hand_on(
        &mut self,
        command: &RawDocument,
        limit: Duration,
        most_bytes: usize,
        ended: &dyn Fn() -> bool,
    ) -> Result<Answer, String> {
        self.send(command, limit, ended)?;
        let answer = self.read(limit, most_bytes, ended)?;
        let body = any_body_of(&answer)?;
        Ok(Answer { is_done: is_done(body)?, body: body.to_owned() })
    }

    fn read(
        &mut self,
        limit: Duration,
        most_bytes: usize,
        ended: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, String> {
        let waiting = WaitContext { signal: &self.signal, clock: &*self.dialer.os.clock, ended };
        read_message(&mut self.stream, limit, most_bytes, waiting).map_err(said)
    }
}

/// What another server answers.
pub struct Answer {
    /// It says that it has done the command.
    pub is_done: bool,
    /// All that it says.
    pub body: RawDocumentBuf,
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
