//! What ends a thread's wait for a socket: an event descriptor, polled beside the socket.
//!
//! Always true: a signal that is given while nobody waits ends the next wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// The signal.
pub(crate) struct Signal(OwnedFd);

/// Why a wait ended; neither where the time is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wake {
    /// The signal was given.
    pub(crate) told: bool,
    /// The socket is ready for what was wanted, or over.
    pub(crate) ready: bool,
    /// The socket has something to read, or is over.
    pub(crate) readable: bool,
}

impl Signal {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Ends the wait.
    pub(crate) fn tell(&self) {
        // Full is told, too.
        let _full = rustix::io::write(&self.0, &1_u64.to_le_bytes());
    }

    /// Waits for the signal, for the socket, or for the time to pass.
    pub(crate) fn wait(
        &self,
        socket: Option<(BorrowedFd<'_>, PollFlags)>,
        time: Option<Duration>,
    ) -> io::Result<Wake> {
        let time = time.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let own = self.0.as_fd();
        let mut asked = vec![PollFd::from_borrowed_fd(own, PollFlags::IN)];
        asked.extend(socket.map(|(socket, wanted)| PollFd::from_borrowed_fd(socket, wanted)));
        match poll(&mut asked, time.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Wake::default()),
            Err(error) => return Err(error.into()),
        }
        let mut wake = Wake::default();
        if asked.first().is_some_and(|own| !own.revents().is_empty()) {
            wake.told = true;
            // Nothing to read is what is wanted.
            let _drained = rustix::io::read(&self.0, &mut [0; 8]);
        }
        if let (Some(socket), Some(found)) = (socket, asked.get(1)) {
            let over = PollFlags::HUP | PollFlags::ERR | PollFlags::RDHUP | PollFlags::NVAL;
            let found = found.revents();
            wake.ready = found.intersects(socket.1 | over);
            wake.readable = found.intersects(PollFlags::IN | over);
        }
        Ok(wake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_one_wait_however_often_it_was_given() {
        let signal = Signal::new().unwrap();
        let wait = || signal.wait(None, Some(Duration::from_millis(1))).unwrap().told;
        assert!(!wait());
        signal.tell();
        signal.tell();
        assert!(wait() && !wait());
    }
}
