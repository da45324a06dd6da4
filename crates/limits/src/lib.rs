//! What an operation may use: the interrupt that stops it, and the memory it is charged for.
//!
//! A request runs on one thread. The service enters a [`Scope`] around it; whatever runs inside,
//! however deep, asks [`poll`] in its loops and takes memory by [`charge`], without a parameter
//! that every function would have to pass on. Outside of a scope nothing is interrupted and
//! nothing is charged, as in unit tests and background threads.
//!
//! What is always true:
//! 1. A loop over a client's data polls at least once for each element it visits, or says how
//!    much work it does at once by [`poll_work`]; so an operation that is killed, or whose time is
//!    over, ends within milliseconds whatever it computes.
//! 2. Memory that grows with what clients send is charged to a part of one [`Account`] before it
//!    is allocated, and until it is freed.
//! 3. Maps in memory keyed by what clients send hash with the process's secret: [`KeyMap`], [`KeySet`].

mod admission;
mod arrivals;
mod before_login;
mod growth;
mod hash;
mod memory;
mod sort;
mod spare;
mod stack;

pub use admission::{LARGE_BYTES, WaiterGuard};
pub use arrivals::Arrivals;
pub use before_login::{BeforeLogin, network_of};
pub use growth::{Growth, UNCHARGED_BYTES};
pub use hash::{KeyHash, KeyHashing, KeyMap, KeySet, hashes_are_seeded, seed_hashes};
pub use memory::{Account, Charge, Part, Usage};
pub use sort::{sort_by, sort_by_key_bytes, sorted_order};
pub use spare::Spare;
pub use stack::check_stack;

use errors::Result;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

/// Stops an operation.
pub trait Interrupt: Send + Sync {
    /// `Ok` to go on; the error the client gets where the operation was killed, its time is over
    /// or the server stops. A few loads and at most one look at the clock.
    fn check(&self) -> Result<()>;

    /// As [`Interrupt::check`], of an operation that waits for others and does nothing itself: a
    /// server that stops lets those that work finish, and ends those that wait at once.
    fn check_wait(&self) -> Result<()> {
        self.check()
    }

    /// Takes how far the operation is at what it does: so many of a total. For those who watch.
    fn note_progress(&self, _message: &str, _done: u64, _total: u64) {}
}

/// The largest document that a client may store, in bytes: MongoDB's `maxBsonObjectSize`.
pub const MAX_DOCUMENT_BYTES: usize = 16 << 20;

/// Units of work between two looks at the interrupt. A unit is a visit of one element, some tens of
/// nanoseconds; so the interrupt is asked each few microseconds.
const POLL_PERIOD: u32 = 256;

/// Bytes that a primitive without a loop of ours (a search in a text, a copy) goes over in about the
/// time of one unit of work.
pub const BYTES_PER_UNIT: usize = 64;

/// What operations of one client are limited by. Made once for each: a count of references that all clients' operations
/// change would go from processor to processor.
pub struct Limits {
    interrupt: Arc<dyn Interrupt>,
    account: Arc<Account>,
}

impl Limits {
    /// These.
    pub fn new(interrupt: Arc<dyn Interrupt>, account: Arc<Account>) -> Arc<Self> {
        Arc::new(Self { interrupt, account })
    }
}

struct Operation {
    limits: Arc<Limits>,
    /// For the large documents that it handles, and the reply they go into.
    large: Option<Charge>,
}

thread_local! {
    static OPERATION: RefCell<Option<Operation>> = const { RefCell::new(None) };
    /// Why code that cannot fail has ended early.
    static STOPPED: RefCell<Option<errors::Error>> = const { RefCell::new(None) };
    /// Whether something has been put into `STOPPED` since it was emptied: most operations look at this alone.
    static HAS_STOPPED: Cell<bool> = const { Cell::new(false) };
    /// Units of work left before the interrupt is asked again.
    static COUNTDOWN: Cell<u32> = const { Cell::new(POLL_PERIOD) };
}

/// This thread runs an operation for as long as this lives. Scopes nest: the inner one holds until
/// it is dropped.
#[must_use]
pub struct Scope {
    outer: Option<Operation>,
    /// It belongs to the thread that entered it.
    not_send: PhantomData<*const ()>,
}

/// Enters an operation on this thread.
pub fn enter(interrupt: Arc<dyn Interrupt>, account: Arc<Account>) -> Scope {
    enter_as(Limits::new(interrupt, account))
}

/// The same under limits that are there.
pub fn enter_as(limits: Arc<Limits>) -> Scope {
    let entered = Some(Operation { limits, large: None });
    forget_stop();
    let outer = OPERATION.with(|operation| operation.replace(entered));
    Scope { outer, not_send: PhantomData }
}

impl Scope {
    /// Leaves it; gives what [`admit`] took, for whoever sends the operation's reply.
    pub fn end(mut self) -> Option<Charge> {
        let entered = self.leave();
        std::mem::forget(self);
        entered?.large
    }

    fn leave(&mut self) -> Option<Operation> {
        // What ended this operation is no other's.
        forget_stop();
        OPERATION.with(|operation| operation.replace(self.outer.take()))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.leave();
    }
}

fn forget_stop() {
    if HAS_STOPPED.replace(false) {
        STOPPED.set(None);
    }
}

/// Counts one unit of work, and asks the interrupt once in [`POLL_PERIOD`] of them.
#[inline]
pub fn poll() -> Result<()> {
    poll_work(1)
}

/// Counts `units` of work done at once.
#[inline]
pub fn poll_work(units: usize) -> Result<()> {
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    if count_down(units) > 0 { Ok(()) } else { check() }
}

/// Counts `units` of work where nothing can fail, as inside a comparison. The next [`poll`] on this
/// thread asks the interrupt if they were many.
#[inline]
pub fn note_work(units: usize) {
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    count_down(units);
}

/// Takes from the units of work that are left; how many there are now. The place of the thread's counter is looked up once:
/// going over a document does this for each field.
#[inline]
fn count_down(units: u32) -> u32 {
    COUNTDOWN.with(|countdown| {
        let left = countdown.get().saturating_sub(units);
        countdown.set(left);
        left
    })
}

/// Counts `units` of work in code that cannot fail; true where it should end at once with whatever
/// result. Whoever called that code asks [`take_stop_error`] before the result is used.
#[inline]
pub fn poll_or_stop(units: usize) -> bool {
    match poll_work(units) {
        Ok(()) => false,
        Err(error) => {
            STOPPED.set(Some(error));
            HAS_STOPPED.set(true);
            // Until somebody takes the error, each poll asks.
            COUNTDOWN.set(0);
            true
        }
    }
}

/// Fails where code that cannot fail was ended by [`poll_or_stop`] since it was last asked. So does the
/// next [`poll`].
pub fn take_stop_error() -> Result<()> {
    if !HAS_STOPPED.replace(false) {
        return Ok(());
    }
    STOPPED.take().map_or(Ok(()), Err)
}

/// Asks the interrupt now.
#[cold]
pub fn check() -> Result<()> {
    take_stop_error()?;
    COUNTDOWN.set(POLL_PERIOD);
    interrupt().map_or(Ok(()), |interrupt| interrupt.check())
}

/// Asks whether the operation on this thread may wait, or go on waiting, for what others hold: a
/// lock, room for its writes.
#[cold]
pub fn check_wait() -> Result<()> {
    interrupt().map_or(Ok(()), |interrupt| interrupt.check_wait())
}

/// Says how far the operation on this thread is at what it does, for those who watch it. Now and then is
/// enough.
pub fn note_progress(message: &str, done: u64, total: u64) {
    if let Some(interrupt) = interrupt() {
        interrupt.note_progress(message, done, total);
    }
}

fn interrupt() -> Option<Arc<dyn Interrupt>> {
    OPERATION.with_borrow(|operation| {
        operation.as_ref().map(|running| Arc::clone(&running.limits.interrupt))
    })
}

/// Charges memory to the operation that runs on this thread. Fails with `ExceededMemoryLimit` (146)
/// where the account has no room; outside of a scope nothing is charged.
pub fn charge(part: Part, bytes: usize) -> Result<Charge> {
    OPERATION.with_borrow(|operation| match operation {
        Some(running) => running.limits.account.charge(part, bytes as u64),
        None => Ok(Charge::uncharged(part)),
    })
}

/// What an operation is admitted for: a few documents of hundreds of kilobytes, a full reply, or a
/// document of any size, its copy and the reply it goes into.
const ADMITTED_BYTES: [u64; 3] = [4 << 20, 18 << 20, 36 << 20];

/// The size for which something of so many bytes is admitted; `None` where it is not large.
fn admitted_size(bytes: usize) -> Option<u64> {
    let [.., most] = ADMITTED_BYTES;
    let sizes = ADMITTED_BYTES.into_iter();
    (bytes > LARGE_BYTES).then(|| sizes.filter(|size| *size >= bytes as u64).min().unwrap_or(most))
}

/// Lets the operation on this thread hold so many bytes of large documents and of its reply. Where it
/// does not hold as much yet, it waits in line for room ([`Account::admit`]), with nothing pinned
/// that others need; it holds the room until its reply is sent.
pub fn admit(bytes: usize) -> Result<()> {
    if !must_wait_for(bytes) {
        return Ok(());
    }
    let (Some(size), Some((limits, smaller))) = (
        admitted_size(bytes),
        OPERATION.with_borrow_mut(|operation| {
            let running = operation.as_mut()?;
            let smaller = running.large.take();
            Some((Arc::clone(&running.limits), smaller))
        }),
    ) else {
        return Ok(());
    };
    // Who waits with some of it in hand could wait for one who does the same.
    drop(smaller);
    let charge = limits.account.admit(Part::Replies, size, || limits.interrupt.check())?;
    OPERATION.with_borrow_mut(|operation| {
        if let Some(running) = operation {
            running.large = Some(charge);
        }
    });
    Ok(())
}

/// Whether [`admit`] may have to wait.
pub fn must_wait_for(bytes: usize) -> bool {
    let Some(size) = admitted_size(bytes) else { return false };
    OPERATION.with_borrow(|operation| {
        operation
            .as_ref()
            .is_some_and(|running| running.large.as_ref().is_none_or(|large| large.bytes() < size))
    })
}

/// Charges memory to the operation that runs on this thread, whether it fits or not: for what is
/// small beside what it helps to give back, and for what is there already.
pub fn charge_regardless(part: Part, bytes: usize) -> Charge {
    OPERATION.with_borrow(|operation| match operation {
        Some(running) => running.limits.account.charge_regardless(part, bytes as u64),
        None => Charge::uncharged(part),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use errors::{Code, Error};
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Killed(AtomicU32);

    impl Interrupt for Killed {
        fn check(&self) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(Error::new(Code::INTERRUPTED, "operation was interrupted"))
        }
    }

    #[test]
    fn a_loop_that_polls_ends_soon_after_it_was_killed_and_only_inside_the_scope() {
        let killed = Arc::new(Killed::default());
        assert!((0..10_000).all(|_| poll().is_ok()), "outside of a scope");
        let scope = enter(Arc::clone(&killed) as _, Account::new(1 << 20));
        let ended = (0..10_000).position(|_| poll().is_err()).expect("it is killed");
        assert!(ended < POLL_PERIOD as usize, "{ended}");
        assert!(poll_work(usize::MAX).is_err(), "a lot of work at once asks at once");
        assert!(poll_or_stop(POLL_PERIOD as usize));
        assert!(poll().is_err(), "code that could not fail was stopped");
        assert!(poll_or_stop(POLL_PERIOD as usize));
        assert!(take_stop_error().is_err() && take_stop_error().is_ok());
        note_work(usize::MAX);
        assert!(poll().is_err(), "work that was noted is asked about next");
        drop(scope);
        assert!((0..10_000).all(|_| poll().is_ok()), "after the scope");
        assert_eq!(killed.0.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn an_operation_is_admitted_once_for_what_it_needs_at_most() {
        struct Goes;
        impl Interrupt for Goes {
            fn check(&self) -> Result<()> {
                Ok(())
            }
        }
        let account = Account::new(64 << 20);
        assert!(admit(40 << 20).is_ok(), "outside of a scope");
        assert_eq!(account.total(), 0);
        let outer = enter(Arc::new(Goes), Arc::clone(&account));
        let scope = enter(Arc::new(Goes), Arc::clone(&account));
        for (bytes, held) in
            [(1000, 0), (1 << 20, 4), (2 << 20, 4), (16 << 20, 18), (32 << 20, 36), (1 << 20, 36)]
        {
            admit(bytes).expect("nobody else is there");
            assert_eq!(account.total(), held << 20, "{bytes}");
        }
        let held = scope.end();
        assert_eq!(account.total(), 36 << 20, "until the reply is sent");
        admit(2 << 20).expect("the scope around it holds again");
        assert_eq!(account.total(), 40 << 20);
        drop(held);
        drop(outer);
        assert_eq!(account.total(), 0);
    }

    #[test]
    fn what_is_charged_is_given_back_and_what_has_no_room_is_refused() {
        let account = Account::new(1000);
        let _scope = enter(Arc::new(Killed::default()), Arc::clone(&account));
        let mut values = charge(Part::Values, 600).expect("there is room");
        let error = charge(Part::Stages, 500).expect_err("there is no room");
        assert_eq!(error.code(), Code::EXCEEDED_MEMORY_LIMIT);
        values.try_set(900).expect("there is room");
        assert!(values.try_set(1001).is_err());
        assert_eq!(account.usage().of(Part::Values), 900, "what was refused changes nothing");
        values.set(2000);
        assert_eq!(account.total(), 2000, "what is there already counts, over the bound or not");
        assert!(!account.has_room(1));
        drop(values);
        assert_eq!(account.total(), 0);
        assert!(account.has_room(1000));
    }
}
