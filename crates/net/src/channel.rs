//! How the bytes of a connection's socket become those of messages: as they are, or by TLS. Its first bytes say which.
//!
//! What is always true:
//! 1. Which it is is decided once. What begins as the other one of what the port takes is closed before anything of it
//!    is run.
//! 2. Nothing here waits. What is in here of a connection that nobody serves is half a handshake, half a record, or
//!    encrypted bytes that the client has not taken; plain bytes were given out before.

use crate::exchange::Ended;
use crate::settings::TlsPort;
use crate::stream::Stream;
use std::io::{self, Read};
use std::net::TcpStream;
use tls::{Arrived, Established, Mode, Session, Sniffed};

/// The encrypted bytes of a reply that may lie here until the client takes them.
const MOST_ENCRYPTED: usize = 64 * 1024;

/// How a connection speaks.
#[derive(Default)]
pub(crate) enum Channel {
    /// Nothing has arrived yet that says.
    #[default]
    Unknown,
    Plain,
    Tls(Box<Session>),
}

impl Channel {
    /// That of a new connection: who comes by a socket of this machine's files speaks plainly.
    pub(crate) fn of(stream: &Stream) -> Self {
        match stream {
            Stream::Tcp(_) => Self::Unknown,
            Stream::Unix(_) => Self::Plain,
        }
    }

    /// Decides by the first bytes, where that is left to do. Whether they were TLS, and are taken.
    ///
    /// # Errors
    /// Where the port does not take what they are.
    pub(crate) fn decide(
        &mut self,
        stream: &Stream,
        port: &TlsPort,
        first: &[u8],
    ) -> Result<bool, Ended> {
        if !matches!(self, Self::Unknown) {
            return Ok(false);
        }
        let refused = |reason: &str| Err(Ended(Some(reason.to_owned())));
        match (tls::sniff(first), port.mode, &port.certificates) {
            (Sniffed::NeedMore, ..) => Ok(false),
            (Sniffed::Plain, Mode::Require, _) => {
                refused("the client speaks without TLS, and tlsMode is requireTLS")
            }
            (Sniffed::Plain, ..) => {
                *self = Self::Plain;
                Ok(false)
            }
            (Sniffed::Tls, Mode::Disabled, _) | (Sniffed::Tls, _, None) => {
                refused("the client speaks TLS, and tlsMode is disabled")
            }
            (Sniffed::Tls, _, Some(certificates)) => {
                let mut session = Session::new(&certificates.now())?;
                session.feed(&mut &*stream, first)?;
                *self = Self::Tls(Box::new(session));
                Ok(true)
            }
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Reads what is there; `WouldBlock` where nothing is. `emptied`: the socket has nothing more.
    pub(crate) fn read(
        &mut self,
        stream: &Stream,
        into: &mut [u8],
        emptied: &mut bool,
    ) -> io::Result<Arrived> {
        if let Self::Tls(session) = self {
            return session.read(&mut &*stream, into, emptied);
        }
        let received = stream.read(into)?;
        *emptied = received < into.len();
        Ok(if received == 0 { Arrived::Ended } else { Arrived::Plain(received) })
    }

    /// What a handshake agreed on: once, after it is done.
    pub(crate) fn established(&mut self) -> io::Result<Option<Established>> {
        match self {
            Self::Tls(session) => session.established(),
            _ => Ok(None),
        }
    }

    /// Writes as much of both pieces as the socket has room for ([`Stream::write_both`]).
    pub(crate) fn write_both(
        &mut self,
        stream: &Stream,
        first: &[u8],
        second: &[u8],
        sent: usize,
    ) -> io::Result<usize> {
        match self {
            Self::Tls(session) => session.write_both(&mut &*stream, first, second, sent),
            _ => stream.write_both(first, second, sent),
        }
    }

    /// Writes what is encrypted and not with the client; whether nothing of it is left.
    pub(crate) fn flush(&mut self, stream: &Stream) -> io::Result<bool> {
        match self {
            Self::Tls(session) => session.flush(&mut &*stream),
            _ => Ok(true),
        }
    }

    /// Whether something is encrypted and not with the client.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(self, Self::Tls(session) if session.has_unsent())
    }

    /// Memory that a reply may take here while the client does not take it.
    pub(crate) fn most_unsent_bytes(&self) -> usize {
        if self.is_tls() { MOST_ENCRYPTED } else { 0 }
    }

    /// Whether a handshake or a record is half.
    pub(crate) fn is_half(&self) -> bool {
        matches!(self, Self::Tls(session) if session.is_half())
    }

    /// Memory of that.
    pub(crate) fn half_bytes(&self) -> usize {
        match self {
            Self::Tls(session) if session.is_half() => session.half_bytes(),
            _ => 0,
        }
    }

    /// What comes by the socket from here on, for somebody who reads. He may wait in it.
    pub(crate) fn into_input(self, socket: TcpStream) -> Box<dyn Read + Send> {
        match self {
            Self::Tls(session) => Box::new(Decrypted { session, socket }),
            _ => Box::new(socket),
        }
    }

    /// Tells the client that nothing more comes, if that is done by words.
    pub(crate) fn close(&mut self, stream: &Stream) {
        if let Self::Tls(session) = self {
            session.close(&mut &*stream);
        }
    }
}

/// The plain bytes of a socket by which TLS comes.
struct Decrypted {
    session: Box<Session>,
    socket: TcpStream,
}

impl Read for Decrypted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.read(&mut self.socket, into, &mut false)? {
                Arrived::Plain(count) => return Ok(count),
                Arrived::Nothing => {}
                Arrived::Ended => return Ok(0),
            }
        }
    }
}
