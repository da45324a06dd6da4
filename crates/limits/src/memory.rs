//! The account of the memory that grows with what clients send.
//!
//! Always true: the total is the sum of the parts, and each charge is given back when it is dropped,
//! on whatever thread that happens. The engine's memory has an account of its own, in `cachetable`;
//! `serverStatus.memoryAccount` shows the parts of both.
//!
//! There are three ways to take memory. [`Account::charge`] is refused where there is no room.
//! [`Account::charge_regardless`] is for what is small, or there already. [`Account::admit`] is for
//! messages and replies of megabytes: it waits in line for room, and one of each part goes on
//! whatever its size, so that nobody waits for ever.

use crate::admission::Admission;
use errors::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What memory is held for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Requests as they came, unpacked ones included, while they are received and while they run.
    Requests,
    /// The beginnings of messages whose rest has not come.
    PartialRequests,
    /// Connections that speak TLS, as long as they are open.
    Tls,
    /// Replies that are made and sent.
    Replies,
    /// Values that expressions make.
    Values,
    /// What the stages of a plan or pipeline hold: groups, sorts, joins, windows.
    Stages,
    /// Record ids and keys that scans remember so as not to answer a document twice.
    IdSets,
    /// Heaps of clients' JavaScript.
    Scripts,
    /// Batches that cursors hold between two requests.
    Cursors,
    /// Logical sessions and what they remember.
    Sessions,
    /// Frames to and from other members of the set.
    Links,
    /// Statistics by name: `top`, plan caches, fail points, slow operations.
    Statistics,
}

impl Part {
    /// Every part, in the order of [`Usage`].
    pub const ALL: [Part; 12] = [
        Part::Requests,
        Part::PartialRequests,
        Part::Tls,
        Part::Replies,
        Part::Values,
        Part::Stages,
        Part::IdSets,
        Part::Scripts,
        Part::Cursors,
        Part::Sessions,
        Part::Links,
        Part::Statistics,
    ];

    /// As status pages name it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Requests => "requests",
            Part::PartialRequests => "partialRequests",
            Part::Tls => "tls",
            Part::Replies => "replies",
            Part::Values => "values",
            Part::Stages => "stages",
            Part::IdSets => "idSets",
            Part::Scripts => "scripts",
            Part::Cursors => "cursors",
            Part::Sessions => "sessions",
            Part::Links => "links",
            Part::Statistics => "statistics",
        }
    }
}

/// Bytes held by each part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage([u64; Part::ALL.len()]);

impl Usage {
    /// What one part holds.
    pub fn of(&self, part: Part) -> u64 {
        self.0[part as usize]
    }

    /// Each part's name and bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Part::ALL.into_iter().map(|part| (part.name(), self.of(part)))
    }
}

/// A counter on a cache line of its own: parts change from different threads.
#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// Changes of the total that are told.
const TOLD_STEP: u64 = 1 << 20;

/// The memory of one server's clients.
#[derive(Default)]
pub struct Account {
    capacity: Line,
    total: Line,
    /// The total that was told last.
    told: Line,
    parts: [Line; Part::ALL.len()],
    /// The most that a part may hold by itself; 0 where the sum alone bounds it.
    most: [AtomicU64; Part::ALL.len()],
    refused: Line,
    pub(crate) admission: Admission,
}

impl Account {
    /// An empty account of so many bytes.
    pub fn new(capacity: u64) -> Arc<Self> {
        let account = Self::default();
        account.set_capacity(capacity);
        Arc::new(account)
    }

    /// The most that the parts may hold together.
    pub fn capacity(&self) -> u64 {
        self.capacity.0.load(Ordering::Relaxed)
    }

    /// Changes the most that the parts may hold together. What is held already stays.
    pub fn set_capacity(&self, capacity: u64) {
        self.capacity.0.store(capacity, Ordering::Relaxed);
    }

    /// The most that one part may hold by itself, if that is bounded.
    pub fn most_of(&self, part: Part) -> Option<u64> {
        Some(self.most[part as usize].load(Ordering::Relaxed)).filter(|most| *most > 0)
    }

    /// Bounds one part by itself, beside the sum. What is held already stays, and so does what is charged regardless.
    pub fn bound(&self, part: Part, most: u64) {
        self.most[part as usize].store(most, Ordering::Relaxed);
    }

    /// What the parts hold together.
    pub fn total(&self) -> u64 {
        self.total.0.load(Ordering::Relaxed)
    }

    /// What each part holds.
    pub fn usage(&self) -> Usage {
        Usage(Part::ALL.map(|part| self.parts[part as usize].0.load(Ordering::Relaxed)))
    }

    /// How often memory was refused.
    pub fn refused(&self) -> u64 {
        self.refused.0.load(Ordering::Relaxed)
    }

    /// Whether so many bytes more fit now. Somebody else may take them right after.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.total().saturating_add(bytes) <= self.capacity()
    }

    /// Takes memory where it fits, and fails with `ExceededMemoryLimit` (146) where it does not.
    pub fn charge(self: &Arc<Self>, part: Part, bytes: u64) -> Result<Charge> {
        self.take(part, bytes)?;
        Ok(Charge { account: Some(Arc::clone(self)), part, bytes, admitted: None })
    }

    /// Takes memory whether it fits or not: for what is there already, and for what must not fail.
    /// Whoever can wait looks at [`Account::has_room`] first.
    pub fn charge_regardless(self: &Arc<Self>, part: Part, bytes: u64) -> Charge {
        self.add(part, bytes);
        Charge { account: Some(Arc::clone(self)), part, bytes, admitted: None }
    }

    /// The same for what [`Account::admit`] lets in.
    /// Nobody is told of it: that is for after the lock under which it is let in.
    pub(crate) fn charge_admitted(self: &Arc<Self>, part: Part, bytes: u64) -> Charge {
        self.add_untold(part, bytes);
        Charge { account: Some(Arc::clone(self)), part, bytes, admitted: Some(part) }
    }

    /// Says that a part which keeps its own count holds so many bytes by now, whatever it held before. Nothing
    /// else is charged to that part.
    pub fn count(&self, part: Part, bytes: u64) {
        let before = self.parts[part as usize].0.swap(bytes, Ordering::Relaxed);
        // Wrapping: the sum is exact whatever the order of the swaps.
        self.total.0.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        self.admission.freed();
        self.tell_change();
    }

    fn take(&self, part: Part, bytes: u64) -> Result<()> {
        if let Some(most) = self.most_of(part) {
            let fits = |held: u64| held.checked_add(bytes).filter(|after| *after <= most);
            let held = &self.parts[part as usize].0;
            if held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
                self.refused.0.fetch_add(1, Ordering::Relaxed);
                return Err(part_exceeded(part, bytes, self.usage().of(part), most));
            }
            let taken = self.take_of_all(part, bytes);
            if taken.is_err() {
                held.fetch_sub(bytes, Ordering::Relaxed);
            }
            return taken;
        }
        self.take_of_all(part, bytes)?;
        self.parts[part as usize].0.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes it of what the parts share, and counts it for none of them.
    fn take_of_all(&self, part: Part, bytes: u64) -> Result<()> {
        let capacity = self.capacity();
        let fits = |total: u64| total.checked_add(bytes).filter(|after| *after <= capacity);
        if self.total.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            self.refused.0.fetch_add(1, Ordering::Relaxed);
            return Err(exceeded(part, bytes, self.total(), capacity));
        }
        self.tell_change();
        Ok(())
    }

    fn add(&self, part: Part, bytes: u64) {
        self.add_untold(part, bytes);
        self.tell_change();
    }

    fn add_untold(&self, part: Part, bytes: u64) {
        self.total.0.fetch_add(bytes, Ordering::Relaxed);
        self.parts[part as usize].0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&self, part: Part, bytes: u64) {
        let before = self.parts[part as usize].0.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{part:?} gives back {bytes} of {before}");
        self.total.0.fetch_sub(bytes, Ordering::Relaxed);
        self.admission.freed();
        self.tell_change();
    }

    /// Tells of the total where it is far from what was told last.
    fn tell_change(&self) {
        let (total, told) = (self.total(), self.told.0.load(Ordering::Relaxed));
        if total.abs_diff(told) >= TOLD_STEP {
            self.tell_total();
        }
    }

    /// Tells of the total.
    pub(crate) fn tell_total(&self) {
        let total = self.total();
        self.told.0.store(total, Ordering::Relaxed);
        self.admission.tell(total);
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = (self.total(), self.capacity());
        f.debug_struct("Account").field("held", &held).finish_non_exhaustive()
    }
}

#[cold]
fn exceeded(part: Part, bytes: u64, total: u64, capacity: u64) -> Error {
    Error::new(
        Code::EXCEEDED_MEMORY_LIMIT,
        format!(
            "the server's memory for clients is used up: {} needs {bytes} bytes more, {total} of \
             {capacity} are in use",
            part.name()
        ),
    )
}

#[cold]
fn part_exceeded(part: Part, bytes: u64, held: u64, most: u64) -> Error {
    Error::new(
        Code::EXCEEDED_MEMORY_LIMIT,
        format!(
            "the memory for {} is used up: {bytes} bytes more are needed, {held} of {most} are in use",
            part.name()
        ),
    )
}

/// Memory taken from an account; given back when dropped.
pub struct Charge {
    account: Option<Arc<Account>>,
    part: Part,
    bytes: u64,
    /// The part in whose line it was admitted.
    admitted: Option<Part>,
}

impl Charge {
    /// Belongs to no account: for what runs outside of a scope.
    pub fn uncharged(part: Part) -> Self {
        Self { account: None, part, bytes: 0, admitted: None }
    }

    /// What it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` from now on, where they fit. On an error it holds what it held.
    pub fn try_set(&mut self, bytes: u64) -> Result<()> {
        if let Some(account) = &self.account {
            match bytes.checked_sub(self.bytes) {
                Some(more) => account.take(self.part, more)?,
                None => account.sub(self.part, self.bytes - bytes),
            }
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Holds `bytes` from now on, whether they fit or not.
    pub fn set(&mut self, bytes: u64) {
        if let Some(account) = &self.account {
            match bytes.checked_sub(self.bytes) {
                Some(more) => account.add(self.part, more),
                None => account.sub(self.part, self.bytes - bytes),
            }
            self.bytes = bytes;
        }
    }
}

impl Charge {
    /// Counts under another part from now on.
    pub fn move_to(&mut self, part: Part) {
        if let Some(account) = &self.account
            && part != self.part
        {
            account.parts[self.part as usize].0.fetch_sub(self.bytes, Ordering::Relaxed);
            account.parts[part as usize].0.fetch_add(self.bytes, Ordering::Relaxed);
            self.part = part;
        }
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Charge({}: {})", self.part.name(), self.bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
        if let (Some(account), Some(part)) = (&self.account, self.admitted.take()) {
            account.admission.leave(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_part_that_counts_itself_is_in_the_sum() {
        let account = Account::new(1000);
        let held = account.charge(Part::Values, 300).unwrap();
        for bytes in [500, 700, 200] {
            account.count(Part::Sessions, bytes);
            assert_eq!(account.usage().of(Part::Sessions), bytes);
            assert_eq!(account.total(), 300 + bytes);
        }
        drop(held);
        assert_eq!(account.total(), 200);
        assert!(account.charge(Part::Values, 801).is_err());
    }

    #[test]
    fn a_part_that_is_bounded_takes_no_more_than_that_and_leaves_the_rest_to_others() {
        let account = Account::new(1000);
        assert_eq!(account.most_of(Part::Scripts), None);
        account.bound(Part::Scripts, 300);
        let mut one = account.charge(Part::Scripts, 200).unwrap();
        let two = account.charge(Part::Scripts, 100).unwrap();
        let refused = one.try_set(201).unwrap_err();
        assert!(refused.message().contains("the memory for scripts"), "{}", refused.message());
        assert_eq!((account.usage().of(Part::Scripts), account.total()), (300, 300));
        let others = account.charge(Part::Values, 600).unwrap();
        drop(two);
        // The sum bounds it still, and what that refuses is counted for nobody.
        let more = account.charge(Part::Values, 150).unwrap();
        assert!(account.charge(Part::Scripts, 100).is_err());
        assert_eq!((account.usage().of(Part::Scripts), account.total()), (200, 950));
        drop((one, others, more));
        assert_eq!((account.usage().of(Part::Scripts), account.total()), (0, 0));
    }

    #[test]
    fn whoever_makes_room_hears_of_each_megabyte_whatever_it_is_charged_for() {
        let account = Account::new(100 << 20);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        account.on_change(move |total| hears.lock().unwrap().push(total));
        let mut stage = account.charge(Part::Stages, 1000).unwrap();
        for kilobytes in (0..4096).step_by(64) {
            stage.try_set(kilobytes << 10).unwrap();
        }
        let values = account.charge_regardless(Part::Values, 3 << 20);
        drop((stage, values));
        let heard = heard.lock().unwrap();
        assert!(heard.is_sorted_by_key(|total| *total) || heard.last() == Some(&0), "{heard:?}");
        assert!((5..20).contains(&heard.len()), "once for each step: {heard:?}");
        assert!(heard.iter().any(|total| *total >= 6 << 20), "{heard:?}");
        assert!(*heard.last().unwrap() < TOLD_STEP, "what is given back too: {heard:?}");
    }
}
