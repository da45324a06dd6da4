//! What the parts of a migration share: both ends, the state, the report, and the threads that work.
//!
//! Always true: the state is written after what it says is at the target, and at most once a second while documents go.

use super::names::{Filter, Name};
use super::report::Report;
use super::source::Source;
use super::state::{CollectionState, State, StateFile};
use super::target::{LeftOut, Target};
use super::throttle::Throttle;
use crate::progress::Progress;
use anyhow::{Context, Result};
use os::Os;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a killed migration does again at most is what it did since the state was written.
const STATE_INTERVAL: Duration = Duration::from_secs(1);

/// A migration.
pub(crate) struct Job {
    pub(crate) os: Os,
    pub(crate) source: Box<dyn Source>,
    pub(crate) target: Target,
    pub(crate) filter: Filter,
    pub(crate) parallel: usize,
    pub(crate) into_existing: bool,
    pub(crate) throttle: Throttle,
    pub(crate) progress: Progress,
    file: StateFile,
    state: Mutex<(State, Duration)>,
    report: Mutex<Report>,
}

/// What a migration is made of, but what it finds out.
pub(crate) struct Ends {
    pub(crate) source: Box<dyn Source>,
    pub(crate) target: Target,
    pub(crate) file: StateFile,
    pub(crate) state: State,
}

impl Job {
    pub(crate) fn new(os: &Os, ends: Ends, filter: Filter, throttle: Throttle) -> Self {
        Self {
            os: os.clone(),
            source: ends.source,
            target: ends.target,
            filter,
            parallel: 1,
            into_existing: false,
            throttle,
            progress: Progress::new(os),
            file: ends.file,
            state: Mutex::new((ends.state, Duration::ZERO)),
            report: Mutex::default(),
        }
    }

    pub(crate) fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locked(&self) -> MutexGuard<'_, (State, Duration)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads of the state.
    pub(crate) fn state<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.locked().0)
    }

    /// Changes the state, and writes it if that was long ago.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) -> Result<()> {
        let mut state = self.locked();
        change(&mut state.0);
        let now = self.os.clock.monotonic();
        if now.saturating_sub(state.1) >= STATE_INTERVAL {
            state.1 = now;
            self.file.write(&state.0)?;
        }
        Ok(())
    }

    /// Writes the state now.
    pub(crate) fn write_state(&self) -> Result<()> {
        let mut state = self.locked();
        state.1 = self.os.clock.monotonic();
        self.file.write(&state.0)
    }

    pub(crate) fn state_path(&self) -> String {
        self.file.path().display().to_string()
    }

    /// Changes what the state says of a collection.
    pub(crate) fn change_collection(
        &self,
        name: &Name,
        change: impl FnOnce(&mut CollectionState),
    ) -> Result<()> {
        self.change(|state| {
            if let Some(collection) = state.collections.get_mut(&name.to_string()) {
                change(collection);
            }
        })
    }

    /// Tells what the target has left out.
    pub(crate) fn note_left_out(&self, what: &str, left_out: Vec<LeftOut>) {
        for LeftOut { option, error } in left_out {
            self.report().note(format!("{what}, option {option}"), error);
        }
    }
}

/// Does some work for each of these on several threads; the first error ends all of them, after what they are at.
pub(crate) fn in_parallel<T: Send + 'static>(
    job: &Arc<Job>,
    items: Vec<T>,
    work: impl Fn(&Arc<Job>, T) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let threads = job.parallel.min(items.len());
    let (queue, failed) = (Arc::new(Mutex::new(VecDeque::from(items))), Arc::new(Mutex::new(None)));
    let work = Arc::new(work);
    let mut handles = Vec::new();
    for thread in 0..threads {
        let (own, queue, failed, work) = (job.clone(), queue.clone(), failed.clone(), work.clone());
        let run = move || {
            loop {
                let is_over = failed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                let item = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(item) = item.filter(|_| !is_over) else { return };
                if let Err(error) = work(&own, item) {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    return;
                }
            }
        };
        handles.push(job.os.spawner.spawn(&format!("migrate-{thread}"), Box::new(run))?);
    }
    for handle in handles {
        handle.join()?;
    }
    match failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// An error with the collection that it is about.
pub(crate) fn about<T>(name: &Name, result: Result<T>) -> Result<T> {
    result.with_context(|| name.to_string())
}
