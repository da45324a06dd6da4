//! A connected socket, TCP or Unix, as one type.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Linux drops an idle mapping in a firewall after minutes; MongoDB probes after two as well.
const KEEPALIVE: Duration = Duration::from_mins(2);

/// How long one call of `write` may take nothing: whoever waits for a client is asked as often.
const WRITE_TICK: Duration = Duration::from_secs(1);

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
        let write = write.min(WRITE_TICK);
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

    /// Whether [`Stream::read`] would find something, or the end.
    pub(crate) fn is_readable(&self) -> io::Result<bool> {
        let mut asked = [PollFd::new(self, PollFlags::IN)];
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(!asked[0].revents().is_empty())
    }

    /// Writes both pieces, the second behind the first. Where the client took less than that in a while
    /// it asks `give_up`, with the bytes that the client took by then, and whether that were any since
    /// it was asked last; fails with `WouldBlock` where the answer is yes.
    pub(crate) fn write_both(
        &self,
        first: &[u8],
        second: &[u8],
        mut give_up: impl FnMut(usize, bool) -> bool,
    ) -> io::Result<()> {
        let mut sent = 0;
        let mut pieces = [IoSlice::new(first), IoSlice::new(second)];
        let mut left = &mut pieces[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let written = match self {
                Self::Tcp(tcp) => (&*tcp).write_vectored(left),
                Self::Unix(unix) => (&*unix).write_vectored(left),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    sent += count;
                    IoSlice::advance_slices(&mut left, count);
                    if !left.is_empty() && give_up(sent, true) {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) && !give_up(sent, false) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
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
                stream.write_both(&sent[..first], &sent[first..], |_, _| false).unwrap();
                stream.shut_down();
                reader.join().unwrap()
            });
            assert!(got == sent, "{first} and {second} bytes");
        }
    }
}
