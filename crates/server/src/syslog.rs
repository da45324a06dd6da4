//! The machine's log, by its socket: one datagram an event.
//!
//! Always true: who keeps the log has taken an event when [`Syslog::send`] returns well; one that does not take it
//! within [`MOST_WAIT`] is a failure, and is waited for no more until it takes one; one that was started again
//! meanwhile is connected to again.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Its socket, where no other is named.
pub(crate) const SOCKET: &str = "/dev/log";
/// Facility user (1), severity informational (6), as `mongod` has them: 1 × 8 + 6.
const PRIORITY: u8 = 14;
/// How long who keeps the log may take no event.
const MOST_WAIT: Duration = Duration::from_secs(5);

/// The machine's log.
pub(crate) struct Syslog {
    path: PathBuf,
    socket: Option<UnixDatagram>,
    /// It took no event in time: until it takes one it is not waited for.
    is_stuck: bool,
}

impl Syslog {
    /// Connects.
    ///
    /// # Errors
    /// There is no such socket, or nobody behind it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), socket: Some(connect(path)?), is_stuck: false })
    }

    /// Gives it a text.
    ///
    /// # Errors
    /// It was not taken.
    pub(crate) fn send(&mut self, text: &[u8]) -> io::Result<()> {
        let head = format!("<{PRIORITY}>fernd[{}]: ", std::process::id());
        let message = [head.as_bytes(), text].concat();
        let sent = match &self.socket {
            Some(socket) => socket.send(&message),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        let sent = match sent {
            // Another one keeps the log since.
            Err(error) if is_gone(&error) => {
                self.socket = None;
                let socket = connect(&self.path)?;
                socket.set_nonblocking(self.is_stuck)?;
                self.socket.insert(socket).send(&message)
            }
            sent => sent,
        };
        let was_late = matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        let is_stuck = was_late || self.is_stuck && sent.is_err();
        if let Some(socket) = self.socket.as_ref().filter(|_| is_stuck != self.is_stuck) {
            socket.set_nonblocking(is_stuck)?;
            self.is_stuck = is_stuck;
        }
        sent.map(drop)
    }
}

/// Whether a text was refused because it is longer than the socket takes.
pub(crate) fn is_too_long(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::MSGSIZE)
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotConnected, NotFound};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | NotConnected | NotFound)
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_write_timeout(Some(MOST_WAIT))?;
    Ok(socket)
}
