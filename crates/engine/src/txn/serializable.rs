//! Serializable transactions: what they read is locked until they end, so that it stays as it was
//! read. Reads see the newest committed state under those locks.
//!
//! A read of a key locks the key; a cursor locks its whole range, gaps included, before it takes
//! the snapshot it walks. The lock was granted after the last commit there was published, so the
//! snapshot has it, and no later one comes. Parts of one statement may read at different moments;
//! each stays true until the commit, which is the moment they all stand for.
//!
//! Writers that are covered ([`EngineTxn::write_covered`]) take no locks of their own, which a range would
//! miss. So they do while a serializable transaction lives; and its beginning waits for those that
//! did not. Whoever writes says so before it looks whether to lock, and whoever begins looks the
//! other way round, so that one of the two sees the other.

use super::EngineTxn;
use crate::environment::Environment;
use crate::handle::EngineHandle;
use crate::holder::{Holder, SharedLocks};
use crate::{Error, OnConflict, Result, TxnOptions};
use std::sync::Arc;
use std::time::Duration;

/// How long the beginning waits between two looks at the writers: at first, and at most.
const POLL: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

impl EngineTxn {
    /// Starts a transaction whose reads lock, over the newest state. Waits for the writers that
    /// took no locks a range would meet, as long as for a lock.
    pub(crate) fn begin_serializable(
        handle: &Arc<EngineHandle>,
        lock_timeout: Option<Duration>,
    ) -> Result<Self> {
        handle.serializable.enter();
        let timeout = lock_timeout.unwrap_or_else(|| handle.adjustable.lock_timeout());
        if let Err(error) = wait_for_unlocked_writers(handle, timeout) {
            handle.serializable.leave();
            return Err(error);
        }
        let options = TxnOptions { on_conflict: OnConflict::Latest, lock_timeout };
        let mut txn = Self::begin_newest(handle, options);
        if let Some(owner) = txn.holder.take() {
            txn.holder = Holder::Shared(SharedLocks::new(owner, timeout));
        }
        Ok(txn)
    }
}

/// It holds no lock yet, so nobody it waits for waits for it.
fn wait_for_unlocked_writers(environment: &Environment, lock_timeout: Duration) -> Result<()> {
    let clock = &environment.os.clock;
    let started = clock.monotonic();
    let mut pause = POLL.0;
    while environment.live.has_unlocked_writer() {
        let waited = clock.monotonic().saturating_sub(started);
        if waited >= lock_timeout {
            return Err(Error::LockTimeout { waited_ms: waited.as_millis() as u64 });
        }
        environment.may_wait.check()?;
        clock.sleep(pause);
        pause = (pause * 2).min(POLL.1);
    }
    Ok(())
}
