//! One connection's TLS: bytes of a socket in and out, plain bytes on the other side.
//!
//! What is always true:
//! 1. Nothing here waits: what the socket does not take stays here, and is told of ([`Session::has_unsent`]).
//! 2. While nothing is under way no plain byte and no record lies here: plain bytes are given out before the socket is
//!    asked again, and encrypted ones were taken by the socket.
//! 3. Of a reply no more is called sent than the socket took, and never all of it before the socket took it all.
//! 4. One read of the socket a call: who sends records without contents is served no longer than anybody.

use crate::certificates::Loaded;
use crate::failure;
use crate::records::Records;
use crate::roles::roles;
use crate::subject::subject;
use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

/// What came of a look at the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// So many plain bytes.
    Plain(usize),
    /// Bytes that are not a whole record, or one without contents.
    Nothing,
    /// The client closed its side.
    Ended,
}

/// A version of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl Version {
    /// Its number.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        }
    }
}

/// What the handshake agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Established {
    /// The version.
    pub version: Version,
    /// The subject of the client's certificate, where its chain was verified.
    pub subject: Option<String>,
    /// Whether that is a certificate of a member of the set.
    pub of_member: bool,
    /// The roles that it holds, each with its database.
    pub roles: Vec<(String, String)>,
    /// Why it was not, where one was shown and let pass.
    pub unverified: Option<String>,
}

/// Memory of a connection on which nothing is under way: what `crates/net/tests/idle_tls.rs` measures, roundly.
pub const SESSION_BYTES: u64 = 9 * 1024;

/// Memory of a handshake beside the bytes that came, roughly.
const HANDSHAKE_BYTES: usize = 8 * 1024;

/// One connection's TLS.
pub struct Session {
    rustls: ServerConnection,
    records: Records,
    /// What it began with; none once the handshake is done.
    begun_with: Option<Arc<Loaded>>,
    /// Bytes that came while the handshake was under way.
    in_handshake: usize,
    /// Of the reply that is being sent: plain bytes that are encrypted here, beyond those called sent.
    encrypted: usize,
    /// Of those, how many encrypted bytes the socket has taken.
    taken: usize,
}

impl Session {
    /// Begins one.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub fn new(loaded: &Arc<Loaded>) -> io::Result<Self> {
        let rustls =
            ServerConnection::new(Arc::clone(&loaded.clients)).map_err(io::Error::other)?;
        Ok(Self {
            rustls,
            records: Records::default(),
            begun_with: Some(Arc::clone(loaded)),
            in_handshake: 0,
            encrypted: 0,
            taken: 0,
        })
    }

    /// Takes bytes that were read from the socket already: the first ones.
    pub fn feed(&mut self, socket: &mut (impl Read + Write), mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let before = bytes;
            if self.rustls.read_tls(&mut bytes)? == 0 {
                break;
            }
            self.note(&before[..before.len() - bytes.len()]);
            self.process(socket)?;
        }
        Ok(())
    }

    fn note(&mut self, bytes: &[u8]) {
        self.records.pass(bytes);
        if self.begun_with.is_some() {
            self.in_handshake += bytes.len();
        }
    }

    /// Reads plain bytes; `WouldBlock` where neither is there one nor anything in the socket. `emptied`: the socket has
    /// nothing more, which is known where it gave less than there was room for.
    pub fn read(
        &mut self,
        socket: &mut (impl Read + Write),
        into: &mut [u8],
        emptied: &mut bool,
    ) -> io::Result<Arrived> {
        if let Some(arrived) = self.take_plain(into)? {
            return Ok(arrived);
        }
        if *emptied {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut watched = Watched { socket, records: self.records, bytes: 0, emptied: false };
        let read = self.rustls.read_tls(&mut watched);
        let Watched { records, bytes, emptied: is_empty, .. } = watched;
        self.records = records;
        if self.begun_with.is_some() {
            self.in_handshake += bytes;
        }
        *emptied = is_empty;
        if read? == 0 {
            return Ok(Arrived::Ended);
        }
        self.process(socket)?;
        Ok(self.take_plain(into)?.unwrap_or(Arrived::Nothing))
    }

    fn take_plain(&mut self, into: &mut [u8]) -> io::Result<Option<Arrived>> {
        match self.rustls.reader().read(into) {
            Ok(0) => Ok(Some(Arrived::Ended)),
            Ok(count) => Ok(Some(Arrived::Plain(count))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // Without a word before: as of a client without TLS.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Some(Arrived::Ended)),
            Err(error) => Err(error),
        }
    }

    fn process(&mut self, socket: &mut impl Write) -> io::Result<()> {
        let processed = self.rustls.process_new_packets();
        // Also what tells the client why it is refused.
        let flushed = self.flush(socket);
        if let Err(error) = processed {
            return Err(io::Error::other(failure::text(&error)));
        }
        flushed.map(drop)
    }

    /// What the handshake agreed on: once, after it is done.
    ///
    /// # Errors
    /// Where a resumed connection's certificate is no longer good.
    pub fn established(&mut self) -> io::Result<Option<Established>> {
        if self.rustls.is_handshaking() {
            return Ok(None);
        }
        let Some(loaded) = self.begun_with.take() else { return Ok(None) };
        let version = match self.rustls.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
            _ => Version::Tls12,
        };
        let mut established = Established {
            version,
            subject: None,
            of_member: false,
            roles: Vec::new(),
            unverified: None,
        };
        let (Some(chain), Some(verifier)) = (self.rustls.peer_certificates(), &loaded.verifier)
        else {
            return Ok(Some(established));
        };
        let Some((first, between)) = chain.split_first() else { return Ok(Some(established)) };
        // A resumed connection brings its certificate along, and one that is let pass may be any.
        let is_verified = !loaded.takes_any
            && self.rustls.handshake_kind().is_some_and(|kind| kind != HandshakeKind::Resumed);
        let judged = if is_verified {
            Ok(())
        } else {
            verifier.verify_client_cert(first, between, loaded.time()).map(|_| ())
        };
        match judged {
            Ok(()) => {
                established.subject = subject(first);
                established.of_member = loaded.is_of_member(first);
                established.roles =
                    roles(first).map_err(|text| io::Error::other(format!("TLS: {text}")))?;
            }
            Err(error) if loaded.takes_any => established.unverified = Some(error.to_string()),
            Err(error) => {
                failure::note_refused(subject(first));
                return Err(io::Error::other(failure::text(&error)));
            }
        }
        Ok(Some(established))
    }

    /// Writes as much of both pieces, the second behind the first, as the socket has room for; `sent` bytes of them
    /// were called sent before. Returns how many are now.
    pub fn write_both(
        &mut self,
        socket: &mut impl Write,
        first: &[u8],
        second: &[u8],
        sent: usize,
    ) -> io::Result<usize> {
        let length = first.len() + second.len();
        let mut sent = sent;
        loop {
            if !self.flush(socket)? {
                // The encrypted bytes are more than the plain ones, so that less than all is called sent.
                let arrived = self.taken.min(self.encrypted.saturating_sub(1));
                self.encrypted -= arrived;
                self.taken -= arrived;
                return Ok(sent + arrived);
            }
            sent += std::mem::take(&mut self.encrypted);
            self.taken = 0;
            if sent >= length {
                return Ok(sent);
            }
            let mut pieces = [IoSlice::new(first), IoSlice::new(second)];
            let mut left = &mut pieces[..];
            IoSlice::advance_slices(&mut left, sent);
            self.encrypted = self.rustls.writer().write_vectored(left)?;
            if self.encrypted == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
    }

    /// Writes encrypted bytes that are here; whether none is left.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<bool> {
        while self.rustls.wants_write() {
            match self.rustls.write_tls(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.taken += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether encrypted bytes are here that the socket has not taken.
    pub fn has_unsent(&self) -> bool {
        self.rustls.wants_write()
    }

    /// Whether the client has to send more before anything can be done: the handshake, or a record, is half.
    pub fn is_half(&self) -> bool {
        self.begun_with.is_some() || self.records.half() > 0
    }

    /// Memory of what is half.
    pub fn half_bytes(&self) -> usize {
        match &self.begun_with {
            Some(_) => HANDSHAKE_BYTES + self.in_handshake,
            None => self.records.half(),
        }
    }

    /// Tells the client that nothing more comes, if the socket takes that.
    pub fn close(&mut self, socket: &mut impl Write) {
        self.rustls.send_close_notify();
        // The connection is over either way.
        let _best_effort = self.flush(socket);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("half", &self.half_bytes()).finish_non_exhaustive()
    }
}

/// A socket whose bytes are counted on their way.
struct Watched<'s, S> {
    socket: &'s mut S,
    records: Records,
    bytes: usize,
    emptied: bool,
}

impl<S: Read> Read for Watched<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.read(into)?;
        self.records.pass(&into[..count]);
        self.bytes += count;
        self.emptied = count < into.len();
        Ok(count)
    }
}
