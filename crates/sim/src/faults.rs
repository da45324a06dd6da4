//! Faults, and which errors they excuse.

use crate::features::Feature;
use crate::world::{Down, World};
use anyhow::{Result, bail, ensure};
use engine::{Cause, Durability, Error};
use os::sim::Faults;
use std::path::Path;
use std::time::Duration;

/// Of a disk that is not full.
const PLENTY: u64 = 1 << 40;
/// Steps and seconds within which writes must come back once there is room.
const MAX_TRIES: usize = 60;

impl World {
    /// Begins or ends a time in which calls fail.
    pub(crate) fn change_faults(&mut self) -> Result<()> {
        let errors = self.features.has(Feature::IoErrors) && self.random.one_in(2);
        let damage = self.features.has(Feature::Damage) && self.random.one_in(6);
        if !errors && !damage {
            self.stop_faults();
            return Ok(());
        }
        let mut rate = |on: bool, most: u64| {
            if on && self.random.one_in(2) { self.random.below(most) as u32 } else { 0 }
        };
        let chosen = Faults {
            read_error_ppm: rate(errors, 20_000),
            write_error_ppm: rate(errors, 10_000),
            short_write_ppm: rate(errors, 10_000),
            sync_error_ppm: rate(errors, 20_000),
            read_flip_ppm: rate(damage, 20_000),
            write_flip_ppm: rate(damage, 5_000),
            misdirected_write_ppm: rate(damage, 5_000),
            misdirected_read_ppm: rate(damage, 20_000),
            dropped_write_ppm: rate(damage, 5_000),
            ..self.sim.faults()
        };
        self.note(format!("{chosen:?}"));
        self.sim.set_faults(chosen);
        Ok(())
    }

    /// No more errors and damage; a full disk stays full, a lying one goes on.
    pub(crate) fn stop_faults(&mut self) {
        let Faults { capacity_bytes, dropped_sync_ppm, .. } = self.sim.faults();
        self.sim.set_faults(Faults { capacity_bytes, dropped_sync_ppm, ..Faults::default() });
    }

    fn set_capacity(&mut self, capacity_bytes: u64) {
        self.sim.set_faults(Faults { capacity_bytes, ..self.sim.faults() });
    }

    /// Leaves a little room on the disk, or makes room and sees writes come back.
    pub(crate) fn fill_disk(&mut self) -> Result<()> {
        if !self.features.has(Feature::FullDisk) {
            return Ok(());
        }
        if self.sim.faults().capacity_bytes != PLENTY {
            return self.writes_come_back();
        }
        let Ok(space) = self.sim.os().vfs.space(Path::new("/data")) else { return Ok(()) };
        let room = self.random.below(96 << 10);
        self.note(format!("the disk has {room} bytes left"));
        self.tally.full_disks += 1;
        self.set_capacity(space.total - space.available + room);
        Ok(())
    }

    pub(crate) fn make_room(&mut self) {
        if self.sim.faults().capacity_bytes != PLENTY {
            self.note("there is room again");
            self.set_capacity(PLENTY);
        }
    }

    /// What a full disk refused is taken again once there is room, without a restart.
    fn writes_come_back(&mut self) -> Result<()> {
        self.make_room();
        self.stop_faults();
        // Nobody holds a lock.
        self.clients.clear();
        for _ in 0..MAX_TRIES {
            if self.down.is_some() || self.sim.is_crashed() {
                return Ok(());
            }
            self.sim.advance(Duration::from_secs(1));
            let engine = self.engine()?;
            if let Err(error) = engine.step() {
                self.excuse("step with room again", &error)?;
                continue;
            }
            let commits = self.tally.commits;
            self.begin()?;
            let who = self.clients.len() - 1;
            self.write(who)?;
            if self.clients.len() <= who {
                continue;
            }
            self.commit_as(who, Durability::Synced)?;
            if self.tally.commits > commits {
                return Ok(());
            }
        }
        bail!("there is room, and writes do not come back")
    }

    /// Damages bytes that are on the disk.
    pub(crate) fn damage(&mut self) -> Result<()> {
        // Late, so that there is something to damage.
        if !self.features.has(Feature::Damage) || self.step < 200 || !self.random.one_in(3) {
            return Ok(());
        }
        let files: Vec<_> = self.sim.files().into_iter().collect();
        let Some((path, bytes)) = self.random.pick(&files) else { return Ok(()) };
        let len = bytes.len() as u64;
        if len == 0 {
            return Ok(());
        }
        let path = path.clone();
        if self.random.one_in(4) && len > 8192 {
            let blocks = len / 4096;
            let (from, to) = (self.random.below(blocks), self.random.below(blocks));
            self.note(format!("{}: block {from} lands on block {to}", path.display()));
            let _there = self.sim.copy_within(&path, from * 4096, to * 4096, 4096);
        } else {
            let at = self.random.below(len);
            self.note(format!("{}: a bit of byte {at} flips", path.display()));
            let _there = self.sim.flip_bit(&path, at, self.random.below(8) as u8);
        }
        Ok(())
    }

    /// An error needs a cause that was injected. Says what follows from it.
    pub(crate) fn excuse(&mut self, what: &str, error: &Error) -> Result<()> {
        self.note(format!("{what}: {error}"));
        if self.sim.is_crashed() {
            return Ok(());
        }
        let (now, mark) = (self.sim.injected(), self.mark);
        let damaged = now.damage > 0;
        // Within the red zone the engine finds no room where the disk has some.
        let keeps_free = self.setup.options.fs_redzone_percent > 0;
        match error {
            Error::Corruption(cause) => {
                ensure!(damaged, "{what} reports damage where there is none: {cause}");
                ensure!(has_place(cause), "damage without a place: {cause}");
                self.tally.damages_detected += 1;
                self.down.get_or_insert(Down::Stopped);
                self.ended |= ["read everything", "verify", "read the history"].contains(&what);
            }
            Error::Io(_) | Error::Stopped(_) => {
                let caused = now.io_errors > mark.io_errors || damaged;
                ensure!(caused, "{what} fails without a cause: {error}");
                if self.engine()?.stats().stopped.is_some() {
                    self.down.get_or_insert(Down::Stopped);
                }
            }
            Error::NoSpace(text) => {
                let full = now.out_of_space > mark.out_of_space || keeps_free;
                ensure!(full || damaged, "{what} finds no space where there is room: {text}");
            }
            // A spilled transaction that could not read its own writes back, or found no room to undo some.
            Error::Interrupted => {
                let caused = now != mark || damaged || keeps_free;
                ensure!(caused, "{what} was killed by nobody");
            }
            other => bail!("{what} fails: {other:?}"),
        }
        if self.ended {
            self.tally.ended_by_damage += 1;
        }
        Ok(())
    }

    /// The same for an engine that does not open.
    pub(crate) fn excuse_open(&mut self, error: &Error) -> Result<()> {
        let now = self.sim.injected();
        match error {
            Error::NoSpace(_) if now.out_of_space > self.mark.out_of_space => Ok(()),
            Error::Corruption(_) | Error::InvalidOption(_) | Error::Io(_) | Error::Keys(_)
                if now.damage > 0 =>
            {
                let has_place = match error {
                    Error::Corruption(cause) | Error::Io(cause) => has_place(cause),
                    // A version that is not known: the file is in the text.
                    other => other.to_string().contains('/'),
                };
                ensure!(has_place, "damage without a place: {error}");
                self.tally.damages_detected += 1;
                self.tally.ended_by_damage += 1;
                self.ended = true;
                Ok(())
            }
            other => bail!("the engine does not open: {other:?}"),
        }
    }
}

/// A file, a page or a position of the log: something to look for.
fn has_place(cause: &Cause) -> bool {
    let placed = cause.file().is_some() || cause.page().is_some();
    // The root of the checkpoint has no position of its own.
    placed || cause.log_position().is_some() || cause.to_string().contains("root")
}
