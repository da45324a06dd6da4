//! Syncs of the log, beside the replica's thread: it never waits for the disk.
//!
//! Always true: a number is synced once a sync of the whole log has ended that began after the number came.

use std::sync::Arc;

use os::sync::{Condvar, Mutex};
use os::{JoinHandle, Spawner};

use crate::error::{Error, Result};

/// Syncs a whole log; what the disk said where it cannot.
pub(crate) type SyncLog = Arc<dyn Fn() -> std::result::Result<(), String> + Send + Sync>;

/// Who syncs the log.
#[derive(Clone)]
pub enum SyncMode {
    /// A thread; it calls this when a sync has ended.
    Thread(Arc<dyn Spawner>, Arc<dyn Fn() + Send + Sync>),
    /// Who asks for it: where there are no threads.
    Inline,
    /// Who calls [`crate::EngineJournal::finish_syncs`]; this is called when one begins, for what else a machine does by
    /// then. For simulations.
    WhenTold(Arc<dyn Fn() + Send + Sync>),
    /// Nobody, and it is said to be done: a bug, for simulations to find.
    #[doc(hidden)]
    Never,
}

#[derive(Default)]
struct State {
    /// The newest number that was asked for.
    asked: u64,
    synced: u64,
    failed: Option<String>,
    stops: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The syncs of one journal.
pub(crate) struct Syncs {
    log: SyncLog,
    shared: Arc<Shared>,
    mode: SyncMode,
    thread: Option<JoinHandle>,
}

impl Syncs {
    pub(crate) fn start(log: SyncLog, mode: SyncMode) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = match &mode {
            SyncMode::Thread(spawner, on_synced) => {
                let (log, shared, told) =
                    (Arc::clone(&log), Arc::clone(&shared), Arc::clone(on_synced));
                let job = Box::new(move || run(&log, &shared, &*told));
                let thread = spawner.spawn("fern-raft-sync", job);
                let refused = |error| Error::Journal(format!("no thread for syncs: {error}"));
                Some(thread.map_err(refused)?)
            }
            _ => None,
        };
        Ok(Self { log, shared, mode, thread })
    }

    /// All that is in the log now is to be synced, as this number.
    pub(crate) fn begin(&self, number: u64) -> Result<()> {
        self.shared.state.lock().asked = number;
        match &self.mode {
            SyncMode::Thread(..) => {
                self.shared.changed.notify_one();
            }
            SyncMode::Inline => self.finish()?,
            SyncMode::WhenTold(meanwhile) => meanwhile(),
            SyncMode::Never => self.shared.state.lock().synced = number,
        }
        Ok(())
    }

    /// Syncs what was asked for, on this thread.
    pub(crate) fn finish(&self) -> Result<()> {
        let (asked, synced) = {
            let state = self.shared.state.lock();
            (state.asked, state.synced)
        };
        if asked > synced {
            (self.log)().map_err(Error::Journal)?;
            self.shared.state.lock().synced = asked;
        }
        Ok(())
    }

    /// The newest number that is synced.
    pub(crate) fn synced(&self) -> Result<u64> {
        let state = self.shared.state.lock();
        match &state.failed {
            Some(error) => Err(Error::Journal(error.clone())),
            None => Ok(state.synced),
        }
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.shared.state.lock().stops = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && let Err(panicked) = thread.join()
        {
            // The replica has seen that nothing is synced any more.
            self.shared.state.lock().failed = Some(panicked.to_string());
        }
    }
}

/// What the thread does.
fn run(log: &SyncLog, shared: &Shared, on_synced: &dyn Fn()) {
    loop {
        let asked = {
            let mut state = shared.state.lock();
            while !state.stops && state.asked <= state.synced {
                shared.changed.wait(&mut state);
            }
            if state.stops {
                return;
            }
            state.asked
        };
        let synced = log();
        let failed = {
            let mut state = shared.state.lock();
            match synced {
                Ok(()) => state.synced = asked,
                Err(error) => state.failed = Some(error),
            }
            state.failed.is_some()
        };
        on_synced();
        if failed {
            return;
        }
    }
}
