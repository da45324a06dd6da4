//! epoll, through rustix's safe calls: which sockets have something to read.
//!
//! Every registration is one shot: it fires once and stays silent until it is armed again, so
//! that a socket handed to a worker is not reported a second time.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The token of [`Poll::wake`]; connection numbers count up and never reach it.
const WAKE: u64 = u64::MAX;

const WATCH: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ONESHOT);

/// An epoll instance and the means to wake its waiter.
pub(crate) struct Poll {
    epoll: OwnedFd,
    waker: OwnedFd,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &waker, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Self { epoll, waker })
    }

    /// Registers and arms a socket. Closing the socket ends the registration.
    pub(crate) fn add(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), WATCH)?)
    }

    /// Arms a registered socket again. Data that is already there fires at once.
    pub(crate) fn arm(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), WATCH)?)
    }

    /// Waits until a registered socket is readable, [`Poll::wake`] is called or the time is over;
    /// appends the tokens of the sockets to `tokens`.
    pub(crate) fn wait(
        &self,
        events: &mut Vec<Event>,
        tokens: &mut Vec<u64>,
        timeout: Option<Duration>,
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
            match event.data.u64() {
                WAKE => self.drain_waker(),
                token => tokens.push(token),
            }
        }
        Ok(())
    }

    /// Ends the current or the next [`Poll::wait`].
    pub(crate) fn wake(&self) {
        // The counter is full only when it is already ringing.
        let _already_ringing = rustix::io::write(&self.waker, &1_u64.to_le_bytes());
    }

    fn drain_waker(&self) {
        let _empty_is_fine = rustix::io::read(&self.waker, &mut [0_u8; 8]);
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
