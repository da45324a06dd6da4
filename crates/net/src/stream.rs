//! A connected socket, TCP or Unix, as one type.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
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
    /// Makes the socket one that nobody waits for, so that a request takes two system calls: a read and
    /// a write.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => {
                tcp.set_nonblocking(true)?;
                tcp.set_nodelay(true)?;
                let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
                socket2::SockRef::from(tcp).set_tcp_keepalive(&keepalive)
            }
            Self::Unix(unix) => unix.set_nonblocking(true),
        }
    }

    /// Where it comes from, if not from this machine's files.
    pub(crate) fn remote_address(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(tcp) => tcp.peer_addr().ok().map(|address| address.ip()),
            Self::Unix(_) => None,
        }
    }

    /// Reads what is there; `WouldBlock` where nothing is.
    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => (&*tcp).read(into),
            Self::Unix(unix) => (&*unix).read(into),
        }
    }

    /// Writes as much of both pieces, the second behind the first, as the socket has room for; `sent`
    /// bytes of them were written before. Returns how many are written now.
    pub(crate) fn write_both(&self, first: &[u8], second: &[u8], sent: usize) -> io::Result<usize> {
        let mut written = sent;
        let mut pieces = [IoSlice::new(first), IoSlice::new(second)];
        let mut left = &mut pieces[..];
        IoSlice::advance_slices(&mut left, sent);
        while !left.is_empty() {
            let taken = match self {
                Self::Tcp(tcp) => (&*tcp).write_vectored(left),
                Self::Unix(unix) => (&*unix).write_vectored(left),
            };
            match taken {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    written += count;
                    IoSlice::advance_slices(&mut left, count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// The same socket for whoever goes on with it; only TCP's are handed over.
    pub(crate) fn for_another(&self) -> io::Result<TcpStream> {
        match self {
            Self::Tcp(tcp) => tcp.try_clone(),
            Self::Unix(_) => Err(io::Error::other("links come by TCP")),
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

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Stream::read(self, into)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => (&*tcp).write_vectored(pieces),
            Stream::Unix(unix) => (&*unix).write_vectored(pieces),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pieces_arrive_as_one_also_where_the_reader_is_slow() {
        for (first, second) in [(21, 3_000_000), (3_000_000, 21), (0, 70_000), (5, 0), (0, 0)] {
            let (near, far) = UnixStream::pair().unwrap();
            let sent: Vec<u8> = (0..first + second).map(|at: usize| (at % 251) as u8).collect();
            let got = std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let (mut got, mut piece) = (Vec::new(), vec![0; 7_001]);
                    while let count @ 1.. = (&far).read(&mut piece).unwrap() {
                        got.extend_from_slice(&piece[..count]);
                    }
                    got
                });
                let stream = Stream::Unix(near);
                stream.prepare().unwrap();
                let mut written = 0;
                while written < sent.len() {
                    written = stream.write_both(&sent[..first], &sent[first..], written).unwrap();
                    std::thread::yield_now();
                }
                stream.shut_down();
                reader.join().unwrap()
            });
            assert!(got == sent, "{first} and {second} bytes");
        }
    }
}
