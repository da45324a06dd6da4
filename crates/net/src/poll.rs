//! epoll, through rustix's safe calls: which sockets have something to read, or room to write.
//!
//! Registrations are edge-triggered: each piece of news is told once, to one waiter. So that none is
//! lost, whoever is told reads until the socket is empty: until a read brings less than it had room for,
//! or nothing.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The token of [`Poll::wake`]; others count up and never reach it.
const WAKE: u64 = u64::MAX;

const READ: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);
const READ_AND_WRITE: EventFlags = READ.union(EventFlags::OUT);

/// News of one registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readiness {
    /// [`Poll::wake`] was called.
    Wake,
    /// A socket has something to read, the end included, or room to write.
    Socket {
        /// What it was registered with.
        token: u64,
        /// The other side closed at least its half.
        hung_up: bool,
    },
}

/// An epoll instance and the means to wake one waiter.
pub(crate) struct Poll {
    epoll: OwnedFd,
    waker: OwnedFd,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Never read: each write is news by itself.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &waker, EventData::new_u64(WAKE), flags)?;
        Ok(Self { epoll, waker })
    }

    /// Registers a socket. Closing the socket ends the registration.
    pub(crate) fn add(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), READ)?)
    }

    /// Ends a registration of a socket that stays open.
    pub(crate) fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// Reports room to write, too, or no longer. What is true already is reported at once.
    pub(crate) fn set_write_interest(
        &self,
        source: impl AsFd,
        token: u64,
        enabled: bool,
    ) -> io::Result<()> {
        let flags = if enabled { READ_AND_WRITE } else { READ };
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), flags)?)
    }

    /// Waits until a socket is ready or `timeout` passes, and calls `on_ready` for each event; at
    /// most as many as `events` has room for.
    pub(crate) fn wait(
        &self,
        events: &mut Vec<Event>,
        timeout: Option<Duration>,
        mut on_ready: impl FnMut(Readiness),
    ) -> io::Result<()> {
        let timeout = timeout.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let over = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
            let hung_up = { event.flags }.intersects(over);
            on_ready(match event.data.u64() {
                WAKE => Readiness::Wake,
                token => Readiness::Socket { token, hung_up },
            });
        }
        Ok(())
    }

    /// Ends the current or the next [`Poll::wait`] of one waiter.
    pub(crate) fn wake(&self) {
        // It would be full after some hundred years.
        let _never_full = rustix::io::write(&self.waker, &1_u64.to_le_bytes());
    }
}

/// Which of these sockets have lost their other side; does not wait.
pub(crate) fn hung_up<'s, F: AsFd + 's>(
    sockets: impl Iterator<Item = &'s F>,
) -> io::Result<Vec<bool>> {
    let mut asked: Vec<_> = sockets.map(|socket| PollFd::new(socket, PollFlags::RDHUP)).collect();
    poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    let lost = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    Ok(asked.iter().map(|one| one.revents().intersects(lost)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn told(poll: &Poll, room: usize) -> Vec<Readiness> {
        let mut events = Vec::with_capacity(room);
        let mut all = Vec::new();
        poll.wait(&mut events, Some(Duration::ZERO), |one| all.push(one)).unwrap();
        all
    }

    #[test]
    fn each_piece_of_news_is_told_once() {
        let poll = Poll::new().unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        poll.add(&near, 7).unwrap();
        assert_eq!(told(&poll, 4), []);
        far.write_all(b"one").unwrap();
        let news = Readiness::Socket { token: 7, hung_up: false };
        assert_eq!(told(&poll, 4), [news]);
        assert_eq!(told(&poll, 4), [], "it was told");
        far.write_all(b"two").unwrap();
        poll.wake();
        poll.wake();
        assert_eq!(told(&poll, 1), [news]);
        assert_eq!(told(&poll, 1), [Readiness::Wake], "what had no room is kept");
        assert_eq!(told(&poll, 1), []);
        poll.set_write_interest(&near, 7, true).unwrap();
        assert_eq!(told(&poll, 4), [news], "there is room, and what was not read");
        poll.set_write_interest(&near, 7, false).unwrap();
        assert_eq!(told(&poll, 4), [news]);
        assert_eq!((&near).read(&mut [0; 9]).unwrap(), 6);
        drop(far);
        assert_eq!(told(&poll, 4), [Readiness::Socket { token: 7, hung_up: true }]);
    }
}
