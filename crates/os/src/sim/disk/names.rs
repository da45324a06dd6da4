//! The names of the simulated disk: directories, files, locks.
//!
//! Always true: `Names::live` is what lookups see; `Names::safe` with any subset of
//! `Names::unsynced` applied is what a crash may leave.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::{Disk, Fate, Inode, crash_error};
use crate::sim::Fault;

/// A change to the names of one directory.
#[derive(Clone)]
enum NameChange {
    Set { path: PathBuf, inode: u64 },
    Remove { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, inode: u64 },
}

#[derive(Default)]
pub(super) struct Names {
    live: BTreeMap<PathBuf, u64>,
    safe: BTreeMap<PathBuf, u64>,
    unsynced: Vec<NameChange>,
    directories: BTreeSet<PathBuf>,
    locks: BTreeMap<PathBuf, u64>,
    /// Tickets given out so far.
    tickets: u64,
}

impl Names {
    /// The files that have a name, by inode.
    pub(super) fn inodes(&self) -> impl Iterator<Item = &u64> {
        self.live.values()
    }

    /// Every name with its inode, sorted.
    pub(super) fn files(&self) -> impl Iterator<Item = (&PathBuf, &u64)> {
        self.live.iter()
    }

    /// Moves to `safe` the unsynced changes that `survives` picks, forgets the others and all
    /// locks: the power is gone.
    pub(super) fn crash(&mut self, mut survives: impl FnMut() -> bool) {
        for change in std::mem::take(&mut self.unsynced) {
            if survives() {
                apply_name(&mut self.safe, &change);
            }
        }
        self.live = self.safe.clone();
    }

    pub(super) fn forget_locks(&mut self) {
        self.locks.clear();
    }
}

impl Disk {
    pub(in crate::sim) fn make_directories(&mut self, boot: u64, path: &Path) -> io::Result<()> {
        if self.names.directories.contains(path) {
            return self.check_alive(boot);
        }
        let crashing = self.simple_change(boot)?;
        for ancestor in path.ancestors() {
            self.names.directories.insert(ancestor.to_path_buf());
        }
        Self::done(crashing)
    }

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(parent) if !self.names.directories.contains(parent) && parent != Path::new("") => {
                Err(io::ErrorKind::NotFound.into())
            }
            _ => Ok(()),
        }
    }

    pub(in crate::sim) fn lookup(&self, path: &Path) -> Option<u64> {
        self.names.live.get(path).copied()
    }

    pub(in crate::sim) fn path_exists(&self, path: &Path) -> bool {
        self.names.live.contains_key(path) || self.names.directories.contains(path)
    }

    pub(in crate::sim) fn create(&mut self, boot: u64, path: &Path) -> io::Result<u64> {
        self.check_parent(path)?;
        let crashing = self.simple_change(boot)?;
        let inode = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(inode, Inode::default());
        self.change_names(NameChange::Set { path: path.to_path_buf(), inode });
        Self::done(crashing)?;
        Ok(inode)
    }

    pub(in crate::sim) fn remove(&mut self, boot: u64, path: &Path) -> io::Result<()> {
        if !self.names.live.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let crashing = self.simple_change(boot)?;
        self.change_names(NameChange::Remove { path: path.to_path_buf() });
        Self::done(crashing)
    }

    pub(in crate::sim) fn rename(&mut self, boot: u64, from: &Path, to: &Path) -> io::Result<()> {
        self.check_parent(to)?;
        let inode = self.lookup(from).ok_or(io::ErrorKind::NotFound)?;
        let crashing = self.simple_change(boot)?;
        let (from, to) = (from.to_path_buf(), to.to_path_buf());
        self.change_names(NameChange::Rename { from, to, inode });
        Self::done(crashing)
    }

    fn change_names(&mut self, change: NameChange) {
        apply_name(&mut self.names.live, &change);
        self.names.unsynced.push(change);
    }

    pub(in crate::sim) fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        if !self.names.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let files = self.names.live.keys().filter(|p| p.parent() == Some(directory));
        let inner = self.names.directories.iter().filter(|p| p.parent() == Some(directory));
        let mut all: Vec<_> = files.chain(inner).cloned().collect();
        all.sort();
        Ok(all)
    }

    pub(in crate::sim) fn sync_names(&mut self, boot: u64, directory: &Path) -> io::Result<()> {
        match self.count(boot)? {
            Fate::Normal => {}
            Fate::Crash => return Err(crash_error()),
            Fate::Fault(Fault::Dropped) => {
                self.injected.lies += 1;
                return Ok(());
            }
            Fate::Fault(_) => return Err(self.broken()),
        }
        if self.lies() {
            return Ok(());
        }
        if self.rng.chance_ppm(self.faults.sync_error_ppm) {
            return Err(self.broken());
        }
        let mut rest = Vec::new();
        for change in std::mem::take(&mut self.names.unsynced) {
            if change.directory() == Some(directory) {
                apply_name(&mut self.names.safe, &change);
            } else {
                rest.push(change);
            }
        }
        self.names.unsynced = rest;
        Ok(())
    }

    pub(in crate::sim) fn take_lock(&mut self, boot: u64, path: &Path) -> io::Result<u64> {
        self.check_alive(boot)?;
        if self.names.locks.contains_key(path) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.lookup(path).is_none() {
            self.create(boot, path)?;
        }
        self.names.tickets += 1;
        let ticket = self.names.tickets;
        self.names.locks.insert(path.to_path_buf(), ticket);
        Ok(ticket)
    }

    pub(in crate::sim) fn drop_lock(&mut self, path: &Path, ticket: u64) {
        if self.names.locks.get(path) == Some(&ticket) {
            self.names.locks.remove(path);
        }
    }
}

impl NameChange {
    fn directory(&self) -> Option<&Path> {
        match self {
            Self::Set { path, .. } | Self::Remove { path } => path.parent(),
            Self::Rename { to, .. } => to.parent(),
        }
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, u64>, change: &NameChange) {
    match change {
        NameChange::Set { path, inode } => {
            names.insert(path.clone(), *inode);
        }
        NameChange::Remove { path } => {
            names.remove(path);
        }
        NameChange::Rename { from, to, inode } => {
            if names.get(from) == Some(inode) {
                names.remove(from);
            }
            names.insert(to.clone(), *inode);
        }
    }
}
