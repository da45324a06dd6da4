//! The backup that is being written, how far it is, and how fast it may be.
//!
//! Always true: one is written at a time.

use crate::rate::Rate;
use engine::BackupProgress;
use errors::{Code, Error, Result};
use os::sync::Mutex;

/// Backups.
#[derive(Default)]
pub struct Backups {
    running: Mutex<Option<BackupProgress>>,
    /// How fast backups may be (`backupThrottle`).
    pub rate: Rate,
    /// Why the last one failed; none where it did not.
    failure: Mutex<Option<String>>,
}

/// The backup that is being written; dropping it ends that.
pub struct RunningBackup<'b>(&'b Backups);

impl Backups {
    /// Begins one.
    ///
    /// # Errors
    /// Where another is being written.
    pub fn begin(&self) -> Result<RunningBackup<'_>> {
        let mut running = self.running.lock();
        if running.is_some() {
            return Err(Error::new(
                Code::CONFLICTING_OPERATION_IN_PROGRESS,
                "a backup is being written already: backupStatus tells how far it is",
            ));
        }
        *running = Some(BackupProgress::default());
        Ok(RunningBackup(self))
    }

    /// How far the one is that is being written.
    pub fn progress(&self) -> Option<BackupProgress> {
        self.running.lock().clone()
    }

    /// Why the last one failed that was begun, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// One has failed.
    pub fn failed(&self, why: String) {
        *self.failure.lock() = Some(why);
    }

    /// One was written to its end.
    pub fn succeeded(&self) {
        *self.failure.lock() = None;
    }
}

impl RunningBackup<'_> {
    /// It is so far.
    pub fn tell(&self, progress: &BackupProgress) {
        *self.0.running.lock() = Some(progress.clone());
    }
}

impl Drop for RunningBackup<'_> {
    fn drop(&mut self) {
        *self.0.running.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_at_a_time() {
        let backups = Backups::default();
        let running = backups.begin().unwrap();
        assert!(backups.begin().is_err() && backups.progress().is_some());
        drop(running);
        assert!(backups.progress().is_none() && backups.begin().is_ok());
    }
}
