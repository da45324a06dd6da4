//! Who may begin with something large: messages and replies of megabytes wait here for room.
//!
//! What is always true:
//! 1. Each part has one line, first come, first served.
//! 2. Something is let in where it fits into the account, or where nothing large of its part is in:
//!    one of any size always goes on, and the account is exceeded by one of each part at most.
//! 3. Who waits asks its interrupt several times a second, and gives up after [`MAX_WAITS`].

use crate::memory::{Account, Charge, Part};
use errors::{Code, Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Smaller messages, documents and replies are charged as they come and wait for nobody. There are as
/// many of them at once as there are busy connections.
pub const LARGE_BYTES: usize = 256 << 10;

/// How often who waits asks whether to go on waiting, should nobody tell of room.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Waits without news after which who waits gets an error: half a minute…
const MAX_WAITS: u32 = 1500;
/// …and news of room, which somebody ahead in line may have taken: not for ever either.
const MAX_NEWS: u32 = 100 * MAX_WAITS;

/// The lines of one account.
#[derive(Default)]
pub(crate) struct Admission {
    lines: Mutex<[Line; Part::ALL.len()]>,
    room: Condvar,
    /// Told of the total whenever it changes much.
    hook: OnceLock<Hook>,
    /// Threads in line, and connections that wait elsewhere for room.
    waiting: AtomicU64,
}

/// Hears of the account's total.
type Hook = Box<dyn Fn(u64) + Send + Sync>;

/// Who is in and who waits, of one part.
#[derive(Default)]
struct Line {
    inside: u32,
    tickets: VecDeque<u64>,
    newest: u64,
}

impl Admission {
    /// Memory was given back.
    pub(crate) fn freed(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.room.notify_all();
        }
    }

    /// Tells of the total.
    pub(crate) fn tell(&self, total: u64) {
        if let Some(hook) = self.hook.get() {
            hook(total);
        }
    }

    /// Something that was let in is gone.
    pub(crate) fn leave(&self, part: Part) {
        let mut lines = self.lines.lock();
        let line = &mut lines[part as usize];
        line.inside = line.inside.saturating_sub(1);
    }
}

/// Somebody waits for room; until dropped.
pub struct WaiterGuard(Arc<Account>);

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        self.0.admission.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place in a line, left when dropped.
struct Ticket<'a> {
    account: &'a Account,
    part: Part,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut lines = self.account.admission.lines.lock();
        lines[self.part as usize].tickets.retain(|number| *number != self.number);
        drop(lines);
        self.account.admission.freed();
    }
}

impl Account {
    /// Says that somebody waits for room, for as long as the guard lives: whoever holds memory
    /// without using it is to give it back ([`Account::is_awaited`]).
    pub fn wait_for_room(self: &Arc<Self>) -> WaiterGuard {
        self.admission.waiting.fetch_add(1, Ordering::Relaxed);
        WaiterGuard(Arc::clone(self))
    }

    /// Whether somebody waits for room.
    pub fn is_awaited(&self) -> bool {
        self.admission.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes memory for something large, if it is let in now.
    pub fn try_admit(self: &Arc<Self>, part: Part, bytes: u64) -> Option<Charge> {
        self.try_admit_at(part, bytes, None)
    }

    fn try_admit_at(
        self: &Arc<Self>,
        part: Part,
        bytes: u64,
        ticket: Option<u64>,
    ) -> Option<Charge> {
        let mut lines = self.admission.lines.lock();
        let line = &mut lines[part as usize];
        let first = line.tickets.front().copied() == ticket;
        if !first || !(line.inside == 0 || self.has_room(bytes)) {
            return None;
        }
        line.inside += 1;
        // Under the lock: of two that would fit alone, the second finds the first's bytes.
        let charge = self.charge_admitted(part, bytes);
        drop(lines);
        self.tell_total();
        Some(charge)
    }

    /// From now on `hook` hears of the total whenever something large is let in, and when it has changed
    /// by a megabyte, so that others can make room. Only the first call counts. It must not take long, nor
    /// touch the account.
    pub fn on_change(&self, hook: impl Fn(u64) + Send + Sync + 'static) {
        // A second one would be a bug of the program's wiring.
        let _first_stays = self.admission.hook.set(Box::new(hook));
    }

    /// Takes memory for something large, waiting in line for it. Fails where `go_on` does, and with
    /// `ExceededMemoryLimit` (146) where there was no room for long. Who calls it should hold no
    /// other large memory that somebody may wait for.
    pub fn admit(
        self: &Arc<Self>,
        part: Part,
        bytes: u64,
        mut go_on: impl FnMut() -> Result<()>,
    ) -> Result<Charge> {
        if let Some(charge) = self.try_admit(part, bytes) {
            return Ok(charge);
        }
        let _waiting = self.wait_for_room();
        let ticket = self.join_line(part);
        let (mut waits, mut news) = (0, 0);
        while waits < MAX_WAITS && news < MAX_NEWS {
            if let Some(charge) = self.try_admit_at(part, bytes, Some(ticket.number)) {
                return Ok(charge);
            }
            go_on()?;
            let mut lines = self.admission.lines.lock();
            let waited = self.admission.room.wait_for(&mut lines, RECHECK_INTERVAL);
            *if waited.timed_out() { &mut waits } else { &mut news } += 1;
        }
        Err(Error::new(
            Code::EXCEEDED_MEMORY_LIMIT,
            format!(
                "the server's memory for clients was used up for long: {} needs {bytes} bytes more, \
                 {} of {} are in use",
                part.name(),
                self.total(),
                self.capacity()
            ),
        ))
    }

    fn join_line(&self, part: Part) -> Ticket<'_> {
        let mut lines = self.admission.lines.lock();
        let line = &mut lines[part as usize];
        line.newest += 1;
        let number = line.newest;
        line.tickets.push_back(number);
        Ticket { account: self, part, number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn one_of_any_size_goes_on_and_others_wait_for_their_turn() {
        let account = Account::new(1000);
        let first = account.try_admit(Part::Replies, 5000).expect("nothing else is in");
        assert!(account.try_admit(Part::Replies, 10).is_none(), "no room beside it");
        let other = account.try_admit(Part::Requests, 5000).expect("parts have lines of their own");
        drop((first, other));
        assert_eq!(account.total(), 0);
        let some = account.try_admit(Part::Replies, 400).expect("room");
        let more = account.try_admit(Part::Replies, 600).expect("room beside it");
        assert!(account.try_admit(Part::Replies, 1).is_none());
        drop((some, more));
    }

    #[test]
    fn many_threads_get_their_turn_and_never_exceed_the_account() {
        let account = Account::new(1000);
        let (most, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for number in 0..16_u64 {
                let (account, most, done) = (&account, &most, &done);
                scope.spawn(move || {
                    for turn in 0..20 {
                        let bytes = 100 + (number * 37 + turn * 91) % 900;
                        let charge =
                            account.admit(Part::Replies, bytes, || Ok(())).expect("a turn");
                        most.fetch_max(account.total() as usize, Ordering::Relaxed);
                        drop(charge);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 320);
        assert!(most.into_inner() <= 1000);
        assert!(!account.is_awaited() && account.total() == 0);
    }

    #[test]
    fn who_is_interrupted_leaves_the_line() {
        let account = Account::new(1000);
        let held = account.try_admit(Part::Replies, 1000).expect("room");
        let stop = || Err(Error::new(Code::INTERRUPTED, "operation was interrupted"));
        let error = account.admit(Part::Replies, 1000, stop).expect_err("it is interrupted");
        assert_eq!(error.code(), Code::INTERRUPTED);
        drop(held);
        assert!(account.try_admit(Part::Replies, 1000).is_some(), "nobody is in line");
    }
}
