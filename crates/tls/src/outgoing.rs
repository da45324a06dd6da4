//! One connection that this server opens: plain bytes on the one side, those of a socket on the other.
//!
//! What is always true:
//! 1. Nothing here waits: what the socket does not take stays here, and is told of ([`Outgoing::has_unsent`]).
//! 2. No plain byte is taken or given out before the handshake is done and the server's certificate was found good.

use crate::certificates::Loaded;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// The encrypted bytes that may lie here until the socket takes them.
const MOST_UNSENT: usize = 64 * 1024;

/// One connection's TLS, of the side that opened it.
pub struct Outgoing {
    rustls: ClientConnection,
    /// Bytes that the socket has taken.
    taken: u64,
}

impl Outgoing {
    /// Begins one to a server of that name, or of that address.
    ///
    /// # Errors
    /// Where the name is none, or nothing is there to judge the server's certificate by: one line.
    pub fn new(loaded: &Loaded, host: &str) -> Result<Self, String> {
        let members = loaded.members.as_ref().ok_or(
            "TLS between members needs the authority that their certificates come from: name its file with tlsCAFile",
        )?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host} is no name that a certificate could have"))?;
        let rustls = ClientConnection::new(Arc::clone(members), name);
        let mut rustls = rustls.map_err(|error| format!("TLS: {error}"))?;
        rustls.set_buffer_limit(Some(MOST_UNSENT));
        Ok(Self { rustls, taken: 0 })
    }

    /// Goes on with the handshake; `WouldBlock` where the socket has to be waited for.
    pub fn shake_hands(&mut self, socket: &mut (impl Read + Write)) -> io::Result<()> {
        loop {
            self.flush(socket)?;
            if !self.rustls.is_handshaking() {
                return Ok(());
            }
            if self.rustls.read_tls(socket)? == 0 {
                return Err(io::Error::other(
                    "it closes in the middle of the TLS handshake: does it speak TLS (tlsMode)?",
                ));
            }
            self.process(socket)?;
        }
    }

    /// Whether the handshake is not done.
    pub fn is_shaking_hands(&self) -> bool {
        self.rustls.is_handshaking()
    }

    fn process(&mut self, socket: &mut impl Write) -> io::Result<()> {
        match self.rustls.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // What tells the server why; it is over either way.
                let _best_effort = self.flush(socket);
                Err(io::Error::other(format!("TLS: {error}")))
            }
        }
    }

    /// Reads plain bytes: 0 where the server has closed its side, `WouldBlock` where there is none.
    pub fn read(&mut self, socket: &mut (impl Read + Write), into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.rustls.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Without a word before: as of a server without TLS.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            self.rustls.read_tls(socket)?;
            self.process(socket)?;
        }
    }

    /// Takes plain bytes, as many as there is room for; `WouldBlock` where there is none.
    pub fn write(&mut self, socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
        let count = self.rustls.writer().write(bytes)?;
        match self.flush(socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        if count == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }

    /// Writes the encrypted bytes that are here; `WouldBlock` where the socket does not take all.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.rustls.wants_write() {
            match self.rustls.write_tls(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.taken += count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether encrypted bytes are here that the socket has not taken.
    pub fn has_unsent(&self) -> bool {
        self.rustls.wants_write()
    }

    /// Bytes that the socket has taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").field("taken", &self.taken).finish_non_exhaustive()
    }
}
