//! Locks and atomics that a model checker can stand in for.
//!
//! The pieces of the engine where threads meet take these instead of `parking_lot`'s and the
//! standard library's. Built as usual they are those very types, but that who waits for a [`Condvar`]
//! says so first ([`crate::about_to_wait`]), unless it waits briefly. Built with
//! `RUSTFLAGS="--cfg shuttle"` each operation is a point at which shuttle may let another thread
//! go on, so that a test tries thousands of interleavings, and a seed names the one that failed:
//! `cargo xtask test --only interleavings`.
//!
//! Shuttle runs one thread at a time: what an ordering weaker than `SeqCst` would allow the
//! processor is not tried.

#[cfg(shuttle)]
mod modelled;
#[cfg(shuttle)]
pub use modelled::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
    atomic, spin_loop, yield_now,
};

#[cfg(not(shuttle))]
mod condvar;
#[cfg(not(shuttle))]
pub use condvar::Condvar;
#[cfg(not(shuttle))]
pub use parking_lot::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
#[cfg(not(shuttle))]
pub use std::hint::spin_loop;
/// The atomics and fences of the standard library.
#[cfg(not(shuttle))]
pub use std::sync::atomic;
#[cfg(not(shuttle))]
pub use std::thread::yield_now;
