//! Whether the engine still takes writes.
//!
//! Running → stopped ([`Health::stop`], for good: a log or data file failed, nobody knows what
//! the disk holds) or closed ([`Health::close`]). Running ↔ full ([`Health::set_full`]): the
//! filesystem is past its red zone or a background write found no space; it comes back by itself.

use crate::{Error, Result};
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Health {
    stopped: OnceLock<String>,
    closed: AtomicBool,
    full: AtomicBool,
    /// Why it is full.
    reason: Mutex<String>,
    /// Commits that were refused because of that.
    refused: AtomicU64,
}

impl Health {
    /// The first failure stays.
    pub(crate) fn stop(&self, cause: &str) -> Error {
        Error::Stopped(self.stopped.get_or_init(|| cause.to_owned()).clone())
    }

    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(crate) fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// `Some(why)` refuses writes, `None` takes them again.
    pub(crate) fn set_full(&self, reason: Option<String>) {
        let full = reason.is_some();
        if let Some(reason) = reason {
            *self.reason.lock() = reason;
        }
        self.full.store(full, Ordering::SeqCst);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// The refusal of a commit, counted.
    pub(crate) fn refuse(&self, reason: String) -> Error {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Error::NoSpace(reason.into())
    }

    /// How many commits were refused because the disk is full.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::Stopped("the engine was closed".to_owned()));
        }
        Ok(())
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        self.check_open()?;
        match self.stopped.get() {
            Some(cause) => Err(Error::Stopped(cause.clone())),
            None => Ok(()),
        }
    }

    /// A failed write or sync below stops the engine; a full disk and damage do not.
    pub(crate) fn judge(&self, error: Error) -> Error {
        match &error {
            Error::Io(cause) => self.stop(&cause.to_string()),
            Error::Stopped(cause) => self.stop(cause),
            _ => error,
        }
    }

    /// As [`Health::judge`], of what may have failed.
    pub(crate) fn check<T, E: Into<Error>>(&self, result: Result<T, E>) -> Result<T> {
        result.map_err(|error| self.judge(error.into()))
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_running()?;
        if self.is_full() {
            let reason = self.reason.lock().clone();
            return Err(self.refuse(reason));
        }
        Ok(())
    }
}

/// A background thread that ends by a bug takes the engine with it: whoever waits for its work would
/// wait for good.
pub(crate) struct StopOnPanic<'a>(pub(crate) &'a Health);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _stopped = self.0.stop("a background thread ended by a bug; the log says where");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_panics_stops_the_engine() {
        let health = Health::default();
        drop(StopOnPanic(&health));
        assert_eq!(health.stopped(), None);
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _watch = StopOnPanic(&health);
                panic!("as by a bug");
            });
            thread.join().is_err()
        });
        assert!(panicked && health.check_writable().is_err());
    }
}
