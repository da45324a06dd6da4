//! The disk's free space: what writers may still take of it, and what stays for what they brought
//! already.
//!
//! ```text
//!  free space of the filesystem
//!  - fsRedzone                        stays free
//!  - a checkpoint's last resort       what it may take beyond its reserve
//!  - the log's next file              where it is not made yet
//!  - memory that is not drained yet   as far as the data file has no free space for it
//!  = room for writes                  a commit takes its bytes of it; without it, it is refused
//! ```
//!
//! What is always true, where there is a red zone, of a server that takes writes:
//! 1. No file of the engine grows into it, but for a checkpoint's last resort and records that give
//!    space back.
//! 2. A new file of the log leaves free what memory needs to be drained.
//! 3. A commit that was taken has files in the log already; where the red zone keeps memory from being
//!    drained, it is in the log.
//!
//! A member that follows takes no writes, and keeps nothing free: what its leader has taken it writes as long as the disk
//! has room. In memory it would have no bound.
//!
//! What a checkpoint would give back is asked for before a write is refused, and before that the history
//! goes that nothing else needs.

use crate::adjustable::Adjustable;
use crate::error::ignore_no_space;
use crate::health::Health;
use crate::history::{self, History};
use crate::log::Log;
use crate::memory::WriteBudget;
use crate::schedule::{Scheduler, is_due, micros};
use crate::settings::{Background, Options};
use crate::tuning::Tuning;
use crate::{Error, Result};
use blockfile::BlockFile;
use os::{Os, Padded, Space};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const TUNING: &Tuning = &Tuning::STANDARD;
const MIB: u64 = 1 << 20;
/// Writes are refused where less room than this is left.
const LEAST_ROOM: u64 = 256 << 10;
/// A checkpoint that finds no room in the data file and its reserve takes about so much of the disk, at
/// most.
const CHECKPOINT_BYTES: u64 = 3 * MIB;
/// No counting: more than memory can hold is free.
const PLENTY: u64 = u64::MAX;

/// Bytes that a fast disk writes in a second.
const FAST_SECOND: u64 = 1024 * MIB;

/// Bytes that commits may still take, or [`PLENTY`].
struct BytesLeft(AtomicU64);

impl BytesLeft {
    /// Takes room for a commit of so many bytes, where there is as much.
    fn take(&self, bytes: u64) -> bool {
        if self.0.load(Ordering::Relaxed) == PLENTY {
            return true;
        }
        let less = |left: u64| if left == PLENTY { Some(left) } else { left.checked_sub(bytes) };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }
}

/// Room for writes, as the last look at the disk left it.
pub(crate) struct FreeSpace {
    left: BytesLeft,
    /// The last look found less than [`LEAST_ROOM`].
    red: AtomicBool,
    /// When writers were last out of room, or nearly, in microseconds of the monotonic clock.
    short: AtomicU64,
    measured: AtomicU64,
    /// There was no room for the next log segment.
    log_full: AtomicBool,
    /// Others say what is written here.
    follows: AtomicBool,
    dir: PathBuf,
    /// The log's directory, where it is not in `dir`.
    log_dir: Option<PathBuf>,
    /// With `fsRedzone`.
    adjustable: Arc<Adjustable>,
    has_threads: bool,
    os: Os,
    blocks: BlockFile,
    log: Arc<Padded<Log>>,
    history: Option<Arc<History>>,
    memory: Arc<Padded<WriteBudget>>,
    schedule: Arc<Scheduler>,
    health: Arc<Health>,
}

/// What is yet to be written for commits that were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Owed {
    /// Bytes in memtables: draining them writes at most as much.
    memory: u64,
    /// Bytes of the data file that are free and have space of the filesystem.
    reusable: u64,
    /// Bytes of a file that the log will need soon.
    log: u64,
}

impl Owed {
    /// Bytes of the filesystem that draining memory takes. Half of what could be used again may be in
    /// pieces too small to be.
    fn drains(&self) -> u64 {
        self.memory.saturating_sub(self.reusable / 2)
    }
}

/// Bytes that nothing but a checkpoint takes, so that what it takes leaves the red zone free.
fn stays_free(total: u64, percent: u8) -> u64 {
    match percent {
        0 => 0,
        percent => total / 100 * u64::from(percent) + CHECKPOINT_BYTES,
    }
}

/// Bytes that commits may bring before the red zone is reached.
fn room_for_writes(space: Space, percent: u8, owed: Owed) -> u64 {
    let taken = stays_free(space.total, percent).saturating_add(owed.log);
    space.available.saturating_sub(taken.saturating_add(owed.drains()))
}

impl FreeSpace {
    /// Nothing is measured yet: there is plenty.
    #[expect(clippy::too_many_arguments, reason = "the parts that it works with")]
    pub(crate) fn new(
        (options, adjustable): (&Options, &Arc<Adjustable>),
        os: &Os,
        blocks: &BlockFile,
        log: &Arc<Padded<Log>>,
        history: Option<Arc<History>>,
        memory: &Arc<Padded<WriteBudget>>,
        schedule: &Arc<Scheduler>,
        health: &Arc<Health>,
    ) -> Self {
        Self {
            left: BytesLeft(AtomicU64::new(PLENTY)),
            red: AtomicBool::new(false),
            short: AtomicU64::new(0),
            measured: AtomicU64::new(0),
            log_full: AtomicBool::new(false),
            follows: AtomicBool::new(false),
            dir: options.dir.clone(),
            log_dir: options.log_dir.clone(),
            adjustable: Arc::clone(adjustable),
            has_threads: options.background == Background::Threads,
            os: os.clone(),
            blocks: blocks.clone(),
            log: Arc::clone(log),
            history,
            memory: Arc::clone(memory),
            schedule: Arc::clone(schedule),
            health: Arc::clone(health),
        }
    }

    fn now_us(&self) -> u64 {
        micros(self.os.clock.monotonic())
    }

    /// Takes room for a commit of so many bytes. Waits a little where a checkpoint will give some back.
    pub(crate) fn take(&self, bytes: u64) -> Result<()> {
        if self.adjustable.fs_redzone_percent() == 0 || self.left.take(bytes) {
            return Ok(());
        }
        let started = self.os.clock.monotonic();
        loop {
            self.measure();
            if self.left.take(bytes) {
                return Ok(());
            }
            let waited = self.os.clock.monotonic().saturating_sub(started);
            let alone = !self.has_threads;
            if alone || waited > TUNING.space_wait || self.reclaimable() < bytes.max(LEAST_ROOM) {
                return Err(self.health.refuse(self.red_zone_reason()));
            }
            self.schedule.queue.wake();
            self.os.clock.sleep(TUNING.space_look);
            self.health.check_running()?;
        }
    }

    /// Whether others say what is written here: see above.
    pub(crate) fn set_follows(&self, follows: bool) {
        self.follows.store(follows, Ordering::Release);
        self.measure();
    }

    /// What stays free of a disk.
    fn stays_free(&self, total: u64) -> u64 {
        let follows = self.follows.load(Ordering::Acquire);
        if follows { 0 } else { stays_free(total, self.adjustable.fs_redzone_percent()) }
    }

    /// Looks at the disk, from time to time.
    pub(crate) fn watch(&self) {
        if is_due(&self.measured, self.now_us(), TUNING.measured) {
            self.measure();
        }
    }

    /// Looks at the disk: sets what stays free, how much writers may take, and whether they are refused.
    pub(crate) fn measure(&self) {
        let percent = self.adjustable.fs_redzone_percent();
        if percent == 0 {
            return self.keep_nothing_free();
        }
        let Ok(mut space) = self.os.vfs.space(&self.dir) else { return };
        let owed = self.owed();
        let wanted = self.wanted();
        let missing = wanted.saturating_sub(room_for_writes(space, percent, owed));
        if missing > 0 && self.log_dir.is_none() && self.give_history(missing) {
            let Ok(after) = self.os.vfs.space(&self.dir) else { return };
            space = after;
        }
        debug_assert!(owed.drains() <= owed.memory, "draining writes what is in memory");
        let stays_free = self.stays_free(space.total);
        self.blocks.keep_free(stays_free);
        if let Some(wal) = self.log.opened() {
            wal.keep_free(self.log_keeps_free(stays_free, owed));
        }
        let room = room_for_writes(space, percent, owed);
        // All that commits can bring before they wait for memory, and what a fast disk can take until
        // somebody looks again, on a machine that has other things to do.
        let most = self.memory.budget() / 4 * 5 + FAST_SECOND;
        let left = if room > most { PLENTY } else { room };
        self.left.0.store(left, Ordering::Release);
        if left != PLENTY && room < wanted {
            self.short.store(self.now_us().max(1), Ordering::Relaxed);
        }
        let was_red = self.red.load(Ordering::Relaxed);
        // Some more than where it began, lest it begins and ends with each commit.
        let ends_at = LEAST_ROOM + (space.total / 256).min(4 * MIB);
        let red = room < if was_red { ends_at } else { LEAST_ROOM }
            && (was_red || self.reclaimable() < LEAST_ROOM);
        if red {
            self.schedule.report("remove spare log files", self.remove_spare_log_files());
        }
        if red != self.red.swap(red, Ordering::Relaxed) {
            let Space { available, total } = space;
            tracing::warn!(
                red,
                available,
                total,
                room,
                "free space, fsRedzone is {percent} percent"
            );
            self.take_or_refuse_writes();
        }
    }

    /// There is no red zone, or there is none any more.
    fn keep_nothing_free(&self) {
        self.blocks.keep_free(0);
        if let Some(wal) = self.log.opened() {
            wal.keep_free(0);
        }
        self.left.0.store(PLENTY, Ordering::Release);
        if self.red.swap(false, Ordering::Relaxed) {
            self.take_or_refuse_writes();
        }
    }

    /// Writers are short of room where there is less.
    fn wanted(&self) -> u64 {
        self.blocks.dropped_bytes().saturating_mul(2).max(LEAST_ROOM)
    }

    /// The disk is short: of the history that nothing else needs goes as much as is missing, an eighth
    /// of it at least. Says whether there was any. Once for each look at the disk: what went may have
    /// been enough.
    fn give_history(&self, missing: u64) -> bool {
        let (Some(history), Some(wal)) = (&self.history, self.log.opened()) else { return false };
        let before = wal.disk_bytes();
        let stay = before.saturating_sub(missing.max(before / 8));
        self.schedule.report("let history go", history::trim(&self.log, Some(history), Some(stay)));
        let gone = before.saturating_sub(wal.disk_bytes());
        if gone == 0 {
            return false;
        }
        tracing::warn!(gone, "the disk is short: the oldest of the history went");
        self.schedule.report("remove spare log files", self.remove_spare_log_files());
        true
    }

    /// The log may be on another disk, which has a red zone of its own.
    fn log_keeps_free(&self, beside_data: u64, owed: Owed) -> u64 {
        match &self.log_dir {
            None => beside_data.saturating_add(owed.drains()),
            Some(dir) => {
                let space = self.os.vfs.space(dir);
                space.map_or(0, |space| self.stays_free(space.total))
            }
        }
    }

    fn owed(&self) -> Owed {
        let log = self.log.opened().filter(|_| self.log_dir.is_none());
        Owed {
            memory: self.memory.total(),
            reusable: self.blocks.space().unused_bytes,
            log: log.map_or(0, wal::Wal::next_file_bytes),
        }
    }

    /// Bytes that a checkpoint may give back, once memory is drained.
    fn reclaimable(&self) -> u64 {
        self.blocks.dropped_bytes() + self.memory.total()
    }

    fn remove_spare_log_files(&self) -> Result<()> {
        match self.log.opened() {
            Some(wal) => self.health.check(wal.remove_spares()).map(drop),
            None => Ok(()),
        }
    }

    /// Makes the next log segment's file, piece by piece where there is time. Where there is no room for it
    /// writes are refused: what is left of the segment in use is for what gives space back.
    pub(crate) fn prepare_log(&self) -> Result<()> {
        // A drop or a checkpoint may have begun a segment meanwhile, which is empty and wants nothing:
        // as long as writes are refused it stays so.
        let wal = self.log.wal();
        if wal.wants_file() || self.log_full.load(Ordering::Relaxed) {
            let is_full = self.log_full.load(Ordering::Relaxed);
            let prepared = if is_full { wal.prepare() } else { wal.prepare_due() };
            let mut prepared = self.health.check(prepared);
            if matches!(prepared, Err(Error::NoSpace(_))) && self.give_history(0) {
                prepared = self.health.check(wal.prepare());
            }
            let full = matches!(prepared, Err(Error::NoSpace(_)));
            if full != self.log_full.swap(full, Ordering::Relaxed) {
                self.take_or_refuse_writes();
            }
            ignore_no_space(prepared.map(drop))?;
        }
        Ok(())
    }

    fn take_or_refuse_writes(&self) {
        let reason = if self.is_red() {
            Some(self.red_zone_reason())
        } else if self.log_full.load(Ordering::Relaxed) {
            Some("the disk has no room for the next segment of the log".to_owned())
        } else {
            None
        };
        self.health.set_full(reason);
    }

    fn is_red(&self) -> bool {
        self.red.load(Ordering::Relaxed)
    }

    fn red_zone_reason(&self) -> String {
        let percent = self.adjustable.fs_redzone_percent();
        format!("less than fsRedzone, {percent} percent of the disk, would stay free")
    }

    /// Writers are out of room, or nearly: a checkpoint gives back what the last one still names.
    pub(crate) fn is_short_of_space(&self) -> bool {
        let short = self.short.load(Ordering::Relaxed);
        let recent = short > 0
            && self.now_us().saturating_sub(short) < TUNING.measured.as_micros() as u64 * 5;
        recent || self.health.is_full() || self.schedule.found_no_space()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(total: u64, available: u64, percent: u8, owed: (u64, u64, u64)) -> u64 {
        let (memory, reusable, log) = owed;
        let space = Space { total: total * MIB, available: available * MIB };
        let owed = Owed { memory: memory * MIB, reusable: reusable * MIB, log: log * MIB };
        room_for_writes(space, percent, owed) / MIB
    }

    #[test]
    fn room_is_what_the_red_zone_and_what_is_owed_leave() {
        for (total, available, percent, owed, expected) in [
            // nothing owed: what is above the red zone and a checkpoint's last resort
            (1000, 1000, 5, (0, 0, 0), 947),
            (1000, 54, 5, (0, 0, 0), 1),
            (1000, 53, 5, (0, 0, 0), 0),
            (1000, 0, 5, (0, 0, 0), 0),
            // memory will be in the data file
            (1000, 100, 5, (30, 0, 0), 17),
            (1000, 100, 5, (60, 0, 0), 0),
            // half of what is free there takes it
            (1000, 100, 5, (30, 40, 0), 37),
            (1000, 100, 5, (30, 60, 0), 47),
            (1000, 100, 5, (30, 4000, 0), 47),
            // the log's next file
            (1000, 100, 5, (0, 0, 16), 31),
            (1000, 100, 5, (30, 0, 16), 1),
            (1000, 100, 5, (30, 20, 40), 0),
            // no red zone
            (1000, 100, 0, (30, 0, 16), 54),
            (0, 0, 5, (1, 1, 1), 0),
        ] {
            let found = room(total, available, percent, owed);
            assert_eq!(found, expected, "{available} of {total}, {percent} %, {owed:?}");
        }
        let all = Owed { memory: u64::MAX, reusable: 0, log: u64::MAX };
        assert_eq!(room_for_writes(Space { total: 100, available: 100 }, 5, all), 0);
    }

    #[test]
    fn room_is_taken_once() {
        let room = BytesLeft(AtomicU64::new(PLENTY));
        assert!(room.take(u64::MAX), "there is plenty");
        room.0.store(100, Ordering::Relaxed);
        assert!(room.take(60) && !room.take(41) && room.take(40) && !room.take(1));
        assert!(room.take(0));
    }
}
