//! The one room with windows: files, clock, randomness, threads; a real and a simulated twin.
//!
//! Everything above this crate receives an [`Os`] and asks it for what only an operating system
//! can give. What is always true:
//! 1. No other crate opens a file, reads a clock or starts a thread by itself.
//! 2. [`Os::real`] and [`sim::SimOs`] answer the same traits; code cannot tell which it got.
//! 3. A run under [`sim::SimOs`] depends on its seed and nothing else.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("FernDB keeps 64-bit offsets in usize; it is built for 64-bit machines only");

mod aligned;
mod clock;
mod entropy;
mod huge_code;
mod machine;
mod process;
pub mod real;
mod shared_bytes;
pub mod sim;
mod spawn;
mod stripe;
pub mod sync;
mod terminal;
mod vfs;
mod waits;
mod watchers;

pub use aligned::{AlignedBuf, DIRECT_ALIGN};
pub use clock::Clock;
pub use entropy::Entropy;
pub use huge_code::move_code_to_huge_pages;
pub use machine::{
    Memory, USAGE_BLOCK_BYTES, Usage, cpu_count, memory, raise_open_file_limit, resident_bytes,
    stolen, usage,
};
pub use process::{
    Daemon, Signal, daemonize, keep_memory_private, keep_new_files_private, on_signals, output_of,
    re_exec, was_re_executed,
};
pub use shared_bytes::SharedBytes;
pub use spawn::{Job, JoinHandle, Panicked, Spawner, ThreadNumber, work_in_background};
pub use stripe::{Padded, STRIPES, stripe};
pub use terminal::read_password;
pub use vfs::{File, FilePermissions, LockGuard, OpenOptions, ReadRequest, Space, Vfs};
pub use waits::{Wait, Waits, about_to_wait, before_waits};
pub use watchers::{Call, Watch, Watchers};

use std::sync::Arc;

/// The handle through which everything above asks for files, time, randomness and threads.
#[derive(Clone)]
pub struct Os {
    /// Files and directories.
    pub vfs: Arc<dyn Vfs>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Random bytes.
    pub entropy: Arc<dyn Entropy>,
    /// Threads.
    pub spawner: Arc<dyn Spawner>,
}

impl Os {
    /// The machine itself.
    pub fn real() -> Self {
        Self {
            vfs: Arc::new(real::RealVfs),
            clock: Arc::new(real::RealClock::start()),
            entropy: Arc::new(real::RealEntropy),
            spawner: Arc::new(real::RealSpawner),
        }
    }
}

impl std::fmt::Debug for Os {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Os").finish_non_exhaustive()
    }
}
