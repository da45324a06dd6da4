//! Hot backups: copied while the engine works, then opened elsewhere. Every other one is written by the engine
//! (`backup/written.rs`).

mod written;

use crate::features::Feature;
use crate::world::World;
use anyhow::{Context, Result};
use engine::Durability;
use os::sim::SimOs;
use os::{OpenOptions, Os};
use std::path::{Path, PathBuf};

/// The data file is copied in pieces of this size, with work between.
const PIECE: usize = 16 << 10;

impl World {
    pub(crate) fn backup(&mut self) -> Result<()> {
        if !self.features.has(Feature::Backups) {
            return Ok(());
        }
        if self.step.is_multiple_of(2) {
            return self.written_backup();
        }
        self.note("backup");
        let backup = match self.engine()?.backup() {
            Ok(backup) => backup,
            Err(error) => return self.excuse("backup", &error),
        };
        let from = backup.timestamp().0;
        self.model.durable = self.model.durable.max(from);
        let (data, log) = (backup.data_file(), backup.log_dir());
        let kept = self.sim.faults();
        let copy = SimOs::new(self.step);
        let (source, target) = (self.sim.os(), copy.os());
        let mut at = 0;
        loop {
            self.stop_faults();
            let piece = copy_piece(&source, &target, &data, at);
            self.sim.set_faults(kept);
            if self.sim.is_crashed() {
                // The power that was to go soon went while the copy was made.
                return Ok(());
            }
            let piece = piece?;
            at += PIECE as u64;
            if !piece {
                break;
            }
            self.work_beside()?;
            if self.down.is_some() || self.sim.is_crashed() || self.ended {
                return Ok(());
            }
        }
        self.stop_faults();
        let in_dir = |name: &str| self.setup.options.dir.join(name);
        let keys = self.features.has(Feature::Encryption).then(|| in_dir("fern.keys"));
        let beside = keys.into_iter().chain([in_dir("FERNDB")]).collect();
        let rest = copy_rest(&source, &target, &log, beside);
        self.sim.set_faults(kept);
        if self.sim.is_crashed() {
            return Ok(());
        }
        rest?;
        drop(backup);
        self.tally.backups += 1;
        let to = self.model.newest;
        self.check_copy(&target, from, to)
    }

    /// Commits and background work while a copy is being made.
    fn work_beside(&mut self) -> Result<()> {
        if self.random.one_in(2) {
            self.begin()?;
            let who = self.clients.len() - 1;
            self.write(who)?;
            if self.clients.len() > who {
                self.commit_as(who, Durability::Buffered)?;
            }
        }
        for _ in 0..self.random.below(3) {
            if let Err(error) = self.engine()?.step() {
                return self.excuse("background step", &error);
            }
        }
        Ok(())
    }
}

/// Copies the log, and the files beside it: the one that says what the directory is, and its keys.
fn copy_rest(source: &Os, target: &Os, log: &Path, beside: Vec<PathBuf>) -> Result<()> {
    for path in source.vfs.list_dir(log)?.into_iter().chain(beside) {
        let mut at = 0;
        while copy_piece(source, target, &path, at)? {
            at += PIECE as u64;
        }
    }
    Ok(())
}

/// Copies one piece; false where the file ended.
fn copy_piece(source: &Os, target: &Os, path: &Path, at: u64) -> Result<bool> {
    let from = source.vfs.open(path, OpenOptions::read_only());
    let from = from.with_context(|| format!("a backup names {}", path.display()))?;
    target.vfs.create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    let to = target.vfs.open(path, OpenOptions::create())?;
    let mut bytes = vec![0; PIECE];
    let len = from.read_at(&mut bytes, at)?;
    to.write_all_at(&bytes[..len], at)?;
    Ok(len == PIECE)
}
