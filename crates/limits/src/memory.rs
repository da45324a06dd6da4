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
    /// Statistics by name: `top`, plan caches, fail points, slow operations.
    Statistics,
}

impl Part {
    /// Every part, in the order of [`Usage`].
    pub const ALL: [Part; 10] = [
        Part::Requests,
        Part::PartialRequests,
        Part::Replies,
        Part::Values,
        Part::Stages,
        Part::IdSets,
        Part::Scripts,
        Part::Cursors,
        Part::Sessions,
        Part::Statistics,
    ];

    /// As status pages name it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Requests => "requests",
            Part::PartialRequests => "partialRequests",
            Part::Replies => "replies",
            Part::Values => "values",
            Part::Stages => "stages",
            Part::IdSets => "idSets",
            Part::Scripts => "scripts",
            Part::Cursors => "cursors",
            Part::Sessions => "sessions",
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

/// The memory of one server's clients.
#[derive(Default)]
pub struct Account {
    capacity: Line,
    total: Line,
    parts: [Line; Part::ALL.len()],
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
    pub(crate) fn charge_admitted(self: &Arc<Self>, part: Part, bytes: u64) -> Charge {
        let mut charge = self.charge_regardless(part, bytes);
        charge.admitted = Some(part);
        charge
    }

    fn take(&self, part: Part, bytes: u64) -> Result<()> {
        let capacity = self.capacity();
        let fits = |total: u64| total.checked_add(bytes).filter(|after| *after <= capacity);
        if self.total.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            self.refused.0.fetch_add(1, Ordering::Relaxed);
            return Err(exceeded(part, bytes, self.total(), capacity));
        }
        self.parts[part as usize].0.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn add(&self, part: Part, bytes: u64) {
        self.total.0.fetch_add(bytes, Ordering::Relaxed);
        self.parts[part as usize].0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&self, part: Part, bytes: u64) {
        let before = self.parts[part as usize].0.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{part:?} gives back {bytes} of {before}");
        self.total.0.fetch_sub(bytes, Ordering::Relaxed);
        self.admission.freed();
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
    pub fn free(part: Part) -> Self {
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

    /// Takes so many bytes more, where they fit.
    pub fn try_grow(&mut self, bytes: u64) -> Result<()> {
        self.try_set(self.bytes.saturating_add(bytes))
    }

    /// Holds `bytes` from now on, whether they fit or not.
    pub fn set(&mut self, bytes: u64) {
        if let Some(account) = &self.account {
            match bytes.checked_sub(self.bytes) {
                Some(more) => account.add(self.part, more),
                None => account.sub(self.part, self.bytes - bytes),
            }
            self.bytes = bytes;
            if self.admitted.is_some() {
                account.tell_total();
            }
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
