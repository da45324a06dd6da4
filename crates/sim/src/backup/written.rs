//! Backups that the engine writes, each built on the one before, put together and opened.

use crate::features::Feature;
use crate::world::World;
use anyhow::{Context, Result};
use engine::format::{LOG_DIR, VERSION_FILE, VERSION_TEXT};
use engine::{BackupChain, Error, StoredBackup};
use os::sim::SimOs;
use os::{OpenOptions, Os};
use std::path::{Path, PathBuf};

/// Backups of one chain.
const LONGEST: u64 = 5;

fn place(number: u64) -> PathBuf {
    format!("/backups/{number}").into()
}

impl World {
    /// Has the engine write a backup, mostly on the one before, and opens what it and those before it hold.
    pub(super) fn written_backup(&mut self) -> Result<()> {
        self.note("backup, written by the engine");
        let backup = match self.engine()?.backup() {
            Ok(backup) => backup,
            Err(error) => return self.excuse("backup", &error),
        };
        let from = backup.timestamp().0;
        self.model.durable = self.model.durable.max(from);
        let os = self.chain.disk.os();
        let earlier = self.chain.newest.filter(|number| !number.is_multiple_of(LONGEST));
        let since = earlier.map(|number| StoredBackup::read(&os, &place(number))).transpose();
        let since = since.context("a backup that was written is there")?;
        let number = self.chain.next();
        let kept = self.sim.faults();
        let mut broken = None;
        self.stop_faults();
        let written = backup.write_to(&os, &place(number), since.as_ref(), &mut |_| {
            self.sim.set_faults(kept);
            let worked = self.work_beside();
            let ends = self.down.is_some() || self.sim.is_crashed() || self.ended;
            self.stop_faults();
            broken = worked.err();
            match &broken {
                None if !ends => Ok(()),
                _ => Err(Error::InvalidOption("the run ends the backup".to_owned())),
            }
        });
        self.sim.set_faults(kept);
        if let Some(error) = broken {
            return Err(error);
        }
        if self.down.is_some() || self.sim.is_crashed() || self.ended {
            return Ok(());
        }
        drop(backup);
        if let Err(error) = written {
            // The list of the backups may be what was damaged: then the next one is a whole one.
            if matches!(error, Error::InvalidOption(_)) && self.sim.injected().damage > 0 {
                self.chain.newest = None;
                return Ok(());
            }
            // What was begun is written over.
            return self.excuse("backup", &error);
        }
        self.chain.newest = Some(number);
        self.tally.backups += 1;
        self.tally.incremental_backups += u64::from(since.is_some());
        let copy = SimOs::new(self.step);
        let to = self.model.newest;
        self.put_together(&os, &place(number), &copy.os())?;
        self.check_copy(&copy.os(), from, to)
    }

    /// As `fern restore` does.
    fn put_together(&self, os: &Os, newest: &Path, target: &Os) -> Result<()> {
        let chain = BackupChain::find(os, newest, &[])?;
        let options = &self.setup.options;
        let log_dir = options.log_dir.clone().unwrap_or_else(|| options.dir.join(LOG_DIR));
        target.vfs.create_dir_all(&options.dir)?;
        target.vfs.create_dir_all(&log_dir)?;
        let data = target.vfs.open(&options.dir.join("fern.data"), OpenOptions::create())?;
        for piece in chain.data_pieces() {
            let bytes = read(os, &piece.file, piece.from, piece.bytes)?;
            data.write_all_at(&bytes, piece.to)?;
        }
        data.set_len(chain.backups()[0].file_bytes())?;
        for path in os.vfs.list_dir(&newest.join(LOG_DIR))? {
            if path.extension().is_some_and(|extension| extension == "fernlog") {
                copy(os, &path, target, &log_dir.join(path.file_name().unwrap_or_default()))?;
            }
        }
        if self.features.has(Feature::Encryption) {
            copy(os, &newest.join("fern.keys"), target, &options.dir.join("fern.keys"))?;
        }
        let version = target.vfs.open(&options.dir.join(VERSION_FILE), OpenOptions::create())?;
        Ok(version.write_all_at(VERSION_TEXT.as_bytes(), 0)?)
    }
}

fn read(os: &Os, path: &Path, from: u64, bytes: u64) -> Result<Vec<u8>> {
    let file = os.vfs.open(path, OpenOptions::read_only());
    let file = file.with_context(|| format!("{} of a backup", path.display()))?;
    let mut read = vec![0; bytes as usize];
    file.read_exact_at(&mut read, from)?;
    Ok(read)
}

fn copy(source: &Os, from: &Path, target: &Os, to: &Path) -> Result<()> {
    let length = source.vfs.open(from, OpenOptions::read_only())?.len()?;
    let bytes = read(source, from, 0, length)?;
    Ok(target.vfs.open(to, OpenOptions::create())?.write_all_at(&bytes, 0)?)
}
