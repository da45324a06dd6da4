//! The backup that is being written, how far it is, and how fast it may be.
//!
//! Always true: one is written at a time.

use engine::BackupProgress;
use errors::{Code, Error, Result};
use os::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Backups.
#[derive(Default)]
pub struct Backups {
    running: Mutex<Option<BackupProgress>>,
    /// Bytes a second; 0 for as fast as it goes (`backupThrottle`).
    bytes_per_second: AtomicU64,
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

    /// Holds backups to so many bytes a second from now on; 0 to none.
    pub fn throttle(&self, bytes_per_second: u64) -> u64 {
        self.bytes_per_second.swap(bytes_per_second, Ordering::Relaxed)
    }

    /// How long to wait after so many bytes were copied in this time.
    pub fn pause_after(&self, bytes: u64, time: Duration) -> Duration {
        pause(bytes, time, self.bytes_per_second.load(Ordering::Relaxed))
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

fn pause(bytes: u64, time: Duration, bytes_per_second: u64) -> Duration {
    match (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(bytes_per_second)) {
        None => Duration::ZERO,
        Some(nanos) => {
            let due = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            due.saturating_sub(time)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_waits_for_as_long_as_it_is_ahead_of_its_rate() {
        let (second, none) = (Duration::from_secs(1), Duration::ZERO);
        for (bytes, time, rate, expected) in [
            (10, none, 0, none),
            (10, none, 10, second),
            (10, second / 4, 10, second * 3 / 4),
            (10, second * 2, 10, none),
            (u64::MAX, none, 1, Duration::from_nanos(u64::MAX)),
        ] {
            assert_eq!(pause(bytes, time, rate), expected, "{bytes} {time:?} {rate}");
        }
    }

    #[test]
    fn there_is_one_at_a_time() {
        let backups = Backups::default();
        let running = backups.begin().unwrap();
        assert!(backups.begin().is_err() && backups.progress().is_some());
        drop(running);
        assert!(backups.progress().is_none() && backups.begin().is_ok());
    }
}
