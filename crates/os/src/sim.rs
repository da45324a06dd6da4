//! A simulated operating system: one seed decides everything that happens.
//!
//! What is always true:
//! 1. Unsynced writes may be lost, reordered and torn at a crash: for every 512-byte sector any
//!    one of its unsynced versions survives. Unsynced names may be lost the same way.
//! 2. Every call that changes the disk counts as one syscall ([`SimOs::syscalls`]). With
//!    [`SimOs::crash_at`] the power goes during that call: it and all later calls answer an error
//!    that [`is_crash`] knows, until [`SimOs::reboot`].
//! 3. Time moves only by `sleep` and [`SimOs::advance`].
//! 4. There are no threads: the spawner returns `Unsupported`, and the program steps its
//!    background jobs itself. Waiting on a condition variable with a timeout still takes real time.
//! 5. A machine of an odd seed says that it does several reads at once ([`crate::File::reads_at_once`]); they are done in their
//!    order all the same.
//!
//! ```text
//! let sim = SimOs::new(7);
//! sim.crash_at(12);            // the 12th change dies half-way
//! let result = workload(sim.os());
//! let os = sim.reboot();       // what survived, under a fresh handle
//! ```

mod bytes;
mod disk;
mod faults;
mod handles;
mod rng;

pub use faults::{Fault, Faults, Injected};
pub use rng::SimRng;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sync::Mutex;

use crate::Os;
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::spawn::{Job, JoinHandle, Spawner};
use disk::Disk;

/// What survives of unsynced changes when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing: the disk cache was lost whole.
    Nothing,
    /// Everything, as if the last thing before the crash had been a sync.
    Everything,
    /// The process died, the machine did not: everything is there, and what was not synced is
    /// still at risk in the next crash.
    Process,
    /// Any subset, sector by sector, from the seed.
    Random,
}

/// One simulated machine. Clones share it.
#[derive(Clone)]
pub struct SimOs {
    disk: Arc<Mutex<Disk>>,
    clock: Arc<SimClock>,
    entropy: Arc<SimEntropy>,
}

/// The wall clock's first reading: 2024-01-01 00:00 UTC.
const FIRST_WALL_MS: i64 = 1_704_067_200_000;

impl SimOs {
    /// A machine with an empty disk.
    pub fn new(seed: u64) -> Self {
        Self {
            disk: Arc::new(Mutex::new(Disk::new(seed))),
            clock: Arc::new(SimClock { now_ns: AtomicU64::new(0) }),
            entropy: Arc::new(SimEntropy(Mutex::new(SimRng::new(seed ^ 0x656E_7472_6F70_7921)))),
        }
    }

    /// Handles for the program, valid until the next [`SimOs::reboot`].
    pub fn os(&self) -> Os {
        Os {
            vfs: Arc::new(handles::SimVfs::new(self.disk.clone())),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            spawner: Arc::new(SimSpawner),
        }
    }

    /// Calls so far that changed (or synced) the disk.
    pub fn syscalls(&self) -> u64 {
        self.disk.lock().syscalls
    }

    /// Lets the power go during call number `n` (the first is 1, counted from the machine's start).
    pub fn crash_at(&self, n: u64) {
        self.disk.lock().crash_at = Some(n);
    }

    /// Lets the power go during the `n`th call from now (1 is the very next).
    pub fn crash_after(&self, n: u64) {
        let mut disk = self.disk.lock();
        disk.crash_at = Some(disk.syscalls + n);
    }

    /// Forgets every planned crash.
    pub fn cancel_crash(&self) {
        self.disk.lock().crash_at = None;
    }

    /// Lets the power go now.
    pub fn crash(&self) {
        self.disk.lock().crashed = true;
    }

    /// Whether the power is gone.
    pub fn is_crashed(&self) -> bool {
        self.disk.lock().crashed
    }

    /// Starts again over a random surviving subset; see [`SimOs::reboot_with`].
    pub fn reboot(&self) -> Os {
        self.reboot_with(Survival::Random)
    }

    /// Crashes where the power is still on, decides what survived, forgets every planned crash
    /// (not the faults), frees all locks and makes handles given out before answer crash errors.
    pub fn reboot_with(&self, survival: Survival) -> Os {
        self.disk.lock().reboot(survival);
        self.os()
    }

    /// Changes the rates of random faults and the disk's size.
    pub fn set_faults(&self, faults: Faults) {
        self.disk.lock().faults = faults;
    }

    /// The rates in force.
    pub fn faults(&self) -> Faults {
        self.disk.lock().faults
    }

    /// Plans one fault for syscall number `n` (counted as in [`SimOs::crash_at`]).
    pub fn fault_at(&self, n: u64, fault: Fault) {
        self.disk.lock().planned.insert(n, fault);
    }

    /// Faults that happened so far.
    pub fn injected(&self) -> Injected {
        self.disk.lock().injected
    }

    /// Flips one bit of a file, on the platter and in every cache.
    ///
    /// # Errors
    /// `NotFound` without such a file, `UnexpectedEof` past its end.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        self.disk.lock().flip_bit(path, offset, bit)
    }

    /// Copies `len` bytes within one file, on the platter and in every cache: what a misdirected
    /// write leaves.
    ///
    /// # Errors
    /// `NotFound` without such a file, `UnexpectedEof` past its end.
    pub fn copy_within(&self, path: &Path, from: u64, to: u64, len: usize) -> io::Result<()> {
        self.disk.lock().copy_within(path, from, to, len)
    }

    /// Every file with its live content, sorted: for tests that compare or dump a disk.
    pub fn files(&self) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
        self.disk.lock().contents()
    }

    /// Moves time forward.
    pub fn advance(&self, time: Duration) {
        self.clock.sleep(time);
    }
}

impl std::fmt::Debug for SimOs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimOs").finish_non_exhaustive()
    }
}

/// Whether an error says that the simulated power is gone.
pub fn is_crash(error: &io::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Crashed>()).is_some()
}

/// The simulated power is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("simulated crash")]
pub struct Crashed;

struct SimClock {
    now_ns: AtomicU64,
}

impl Clock for SimClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::SeqCst))
    }

    fn wall_ms(&self) -> i64 {
        FIRST_WALL_MS + (self.now_ns.load(Ordering::SeqCst) / 1_000_000) as i64
    }

    fn sleep(&self, time: Duration) {
        self.now_ns.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

struct SimEntropy(Mutex<SimRng>);

impl Entropy for SimEntropy {
    fn fill(&self, buf: &mut [u8]) {
        let mut rng = self.0.lock();
        for chunk in buf.chunks_mut(8) {
            let bytes = rng.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

struct SimSpawner;

impl Spawner for SimSpawner {
    fn spawn_with_stack(&self, _: &str, _: Option<usize>, _: Job) -> io::Result<JoinHandle> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "no threads under the simulator"))
    }
}

#[cfg(test)]
mod tests;
