//! The engine's background threads.
//!
//! ```text
//!  fern-flush-N     units of background work on trees
//!  fern-checkpoint  every checkpointPeriod, and where something presses
//!  fern-log         writes the log out early, to disk every logFlushPeriod and for those who wait for it
//!  fern-maintain    what has a period of its own
//! ```

use crate::health::{Health, StopOnPanic};
use crate::{Error, Result};
use os::{JoinHandle, Spawner};
use parking_lot::Mutex;
use std::sync::Arc;

/// Threads that run until they are told to stop.
pub(crate) struct Threads {
    spawner: Arc<dyn Spawner>,
    health: Arc<Health>,
    running: Mutex<Vec<JoinHandle>>,
}

impl Threads {
    /// None yet.
    pub(crate) fn new(spawner: &Arc<dyn Spawner>, health: &Arc<Health>) -> Self {
        let (spawner, health) = (Arc::clone(spawner), Arc::clone(health));
        Self { spawner, health, running: Mutex::default() }
    }

    /// Starts one more. Where it ends by a bug the engine stops.
    pub(crate) fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let health = Arc::clone(&self.health);
        let job = Box::new(move || {
            let _watch = StopOnPanic(&health);
            run();
        });
        let thread = self.spawner.spawn(name, job).map_err(|e| Error::Io(e.to_string().into()))?;
        self.running.lock().push(thread);
        Ok(())
    }

    /// Waits for the threads to end. Not from one of them.
    pub(crate) fn join(&self) {
        for thread in self.running.lock().drain(..) {
            if let Err(panicked) = thread.join() {
                tracing::error!(%panicked, "a background thread ended by a panic");
            }
        }
    }
}
