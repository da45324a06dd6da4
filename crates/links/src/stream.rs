//! A connection that this server opened to another one: its socket, plain or by TLS.
//!
//! Always true: nothing here waits; what is called written lies here encrypted until [`Stream::has_unsent`] says no.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use tls::Outgoing;

/// The connection.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: TcpStream,
    tls: Option<Box<Outgoing>>,
    /// Bytes that a plain socket has taken.
    taken: u64,
}

impl Stream {
    /// Over a socket whose reads and writes do not wait.
    pub(crate) fn new(socket: TcpStream, tls: Option<Outgoing>) -> Self {
        Self { socket, tls: tls.map(Box::new), taken: 0 }
    }

    /// Goes on with the handshake, if there is one; `WouldBlock` where the socket has to be waited for.
    pub(crate) fn shake_hands(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.shake_hands(&mut &self.socket),
            None => Ok(()),
        }
    }

    /// The socket once more, where what is written goes out as it is.
    pub(crate) fn plain(&self) -> Option<TcpStream> {
        // Who cannot have it does without.
        if self.tls.is_none() { self.socket.try_clone().ok() } else { None }
    }

    /// Whether bytes are here that the socket has not taken.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_unsent())
    }

    /// Bytes that the socket has taken so far: whether it goes on.
    pub(crate) fn taken(&self) -> u64 {
        self.tls.as_ref().map_or(self.taken, |tls| tls.taken())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => tls.read(&mut &self.socket, into),
            None => (&self.socket).read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            return tls.write(&mut &self.socket, bytes);
        }
        let count = (&self.socket).write(bytes)?;
        self.taken += count as u64;
        Ok(count)
    }

    /// `WouldBlock` where the socket does not take all that is here.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.flush(&mut &self.socket),
            None => Ok(()),
        }
    }
}

/// Whether an error says no more than that the socket has to be waited for.
pub(crate) fn is_to_be_waited_for(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
