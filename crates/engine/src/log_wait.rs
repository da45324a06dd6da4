//! An answer that waits for this member's disk, and needs no thread for that.
//!
//! From → to: who has written asks how far the log has to be on disk ([`Engine::log_wait`]), and asks for that
//! ([`Engine::sync_or_join`]): who writes alone syncs on its thread; where others do, the log's thread syncs for all of them
//! (`crates/wal/src/sync.rs`) and calls those who wait ([`Engine::watch_sync`]), who ask again.
//!
//! Always true: a wait is over only when the log was synced up to its end by a sync that did not fail.

use crate::{Engine, Result};
use os::Call;
use std::time::Duration;
use wal::SyncWatch;

/// What has to be on disk before something is acknowledged: all that the log had when this was made.
#[derive(Debug)]
pub struct LogWait {
    end: u64,
    began: Duration,
}

impl Engine {
    /// A wait for every commit so far.
    pub fn log_wait(&self) -> LogWait {
        let environment = self.environment();
        LogWait { end: environment.wal().next_lsn(), began: environment.os.clock.monotonic() }
    }

    /// Whether all of it is on disk; brings it there where nobody else is about to.
    ///
    /// # Errors
    /// As [`Engine::sync`].
    pub fn sync_or_join(&self, wait: &LogWait) -> Result<bool> {
        let environment = self.environment();
        let (log, health) = (&environment.log, &environment.health);
        if log.wal().synced_lsn() < wait.end {
            health.check_running()?;
            if !health.check(log.wal().sync_or_join(wait.end))? {
                return Ok(false);
            }
        }
        log.settle_times();
        log.waited_since(wait.began);
        Ok(true)
    }

    /// Has `call` made once all of it is on disk, or never will be; `None` where it is. It must not wait: it is called
    /// on the thread that has synced. Who relies on it asks again after this. An engine that stops for another reason
    /// makes no call.
    pub fn watch_sync(&self, wait: &LogWait, call: &Call) -> Option<SyncWatch> {
        self.environment().wal().watch_sync(wait.end, call)
    }
}
