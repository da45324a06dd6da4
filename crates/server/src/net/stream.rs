//! A connected socket, TCP or Unix, as one type.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Linux drops an idle mapping in a firewall after minutes; MongoDB probes after two as well.
const KEEPALIVE: Duration = Duration::from_mins(2);

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Makes the socket blocking with the two timeouts, which is all a worker needs: no system
    /// call but `read` and `write` per request.
    pub(crate) fn prepare(&self, read: Duration, write: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => {
                tcp.set_nonblocking(false)?;
                tcp.set_nodelay(true)?;
                let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
                socket2::SockRef::from(tcp).set_tcp_keepalive(&keepalive)?;
                tcp.set_read_timeout(Some(read))?;
                tcp.set_write_timeout(Some(write))
            }
            Self::Unix(unix) => {
                unix.set_nonblocking(false)?;
                unix.set_read_timeout(Some(read))?;
                unix.set_write_timeout(Some(write))
            }
        }
    }

    /// Reads what is there; waits up to the read timeout for the first byte (`WouldBlock` then).
    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => (&*tcp).read(into),
            Self::Unix(unix) => (&*unix).read(into),
        }
    }

    /// Writes everything; fails when the client took nothing for the write timeout.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => (&*tcp).write_all(bytes),
            Self::Unix(unix) => (&*unix).write_all(bytes),
        }
    }

    /// Ends both directions, also under a thread that is reading or writing.
    pub(crate) fn shut_down(&self) {
        // Already disconnected is what is wanted.
        let _already_gone = match self {
            Self::Tcp(tcp) => tcp.shutdown(Shutdown::Both),
            Self::Unix(unix) => unix.shutdown(Shutdown::Both),
        };
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }
}
