//! The simulated platter: what the program sees, what is safe, and what happens at a crash.
//!
//! What is always true:
//! 1. `Inode::live` is what reads see; `Inode::safe` with any subset of `Inode::unsynced` applied
//!    sector by sector is what a crash may leave.
//! 2. `names` is what lookups see; `safe_names` with any subset of `unsynced_names` applied is what
//!    a crash may leave.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::bytes::Bytes;
use super::{Crashed, Fault, Faults, SimRng, Survival};

const SECTOR: u64 = 512;

/// A change to a file that no sync has covered yet.
#[derive(Clone)]
enum Change {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
    Allocate { offset: u64, len: u64 },
    Zero { offset: u64, len: u64 },
}

#[derive(Default)]
struct Inode {
    live: Bytes,
    safe: Bytes,
    unsynced: Vec<Change>,
}

/// A change to the names of one directory.
#[derive(Clone)]
enum NameChange {
    Set { path: PathBuf, inode: u64 },
    Remove { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, inode: u64 },
}

pub(super) struct Disk {
    rng: SimRng,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    names: BTreeMap<PathBuf, u64>,
    safe_names: BTreeMap<PathBuf, u64>,
    unsynced_names: Vec<NameChange>,
    directories: BTreeSet<PathBuf>,
    locks: BTreeMap<PathBuf, u64>,
    next_lock: u64,
    /// Handles of an older boot are dead.
    pub(super) boot: u64,
    pub(super) syscalls: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) crashed: bool,
    pub(super) faults: Faults,
    pub(super) planned: BTreeMap<u64, Fault>,
}

/// What the counter decides about a call that changes the disk.
enum Fate {
    Normal,
    /// The power goes now: the change may or may not reach the platter.
    Crash,
    Fault(Fault),
}

pub(super) fn crash_error() -> io::Error {
    io::Error::other(Crashed)
}

fn eio() -> io::Error {
    // EIO
    io::Error::from_raw_os_error(5)
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: SimRng::new(seed),
            inodes: BTreeMap::new(),
            next_inode: 1,
            names: BTreeMap::new(),
            safe_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            directories: BTreeSet::new(),
            locks: BTreeMap::new(),
            next_lock: 1,
            boot: 0,
            syscalls: 0,
            crash_at: None,
            crashed: false,
            faults: Faults::default(),
            planned: BTreeMap::new(),
        }
    }

    /// Refuses calls without power and calls of handles of an older boot.
    pub(super) fn check_alive(&self, boot: u64) -> io::Result<()> {
        if self.crashed || boot != self.boot { Err(crash_error()) } else { Ok(()) }
    }

    fn count(&mut self, boot: u64) -> io::Result<Fate> {
        self.check_alive(boot)?;
        self.syscalls += 1;
        if self.crash_at.is_some_and(|n| self.syscalls >= n) {
            self.crashed = true;
            return Ok(Fate::Crash);
        }
        Ok(self.planned.remove(&self.syscalls).map_or(Fate::Normal, Fate::Fault))
    }

    /// A change of names or lengths: all of it happens, or an error says that nothing did.
    fn simple_change(&mut self, boot: u64) -> io::Result<bool> {
        match self.count(boot)? {
            Fate::Normal => Ok(false),
            Fate::Crash => Ok(true),
            Fate::Fault(Fault::NoSpace) => Err(io::ErrorKind::StorageFull.into()),
            Fate::Fault(_) => Err(eio()),
        }
    }

    fn done(crashing: bool) -> io::Result<()> {
        if crashing { Err(crash_error()) } else { Ok(()) }
    }

    // ---- names ----

    pub(super) fn make_directories(&mut self, boot: u64, path: &Path) -> io::Result<()> {
        if self.directories.contains(path) {
            return self.check_alive(boot);
        }
        let crashing = self.simple_change(boot)?;
        for ancestor in path.ancestors() {
            self.directories.insert(ancestor.to_path_buf());
        }
        Self::done(crashing)
    }

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(parent) if !self.directories.contains(parent) && parent != Path::new("") => {
                Err(io::ErrorKind::NotFound.into())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn lookup(&self, path: &Path) -> Option<u64> {
        self.names.get(path).copied()
    }

    pub(super) fn path_exists(&self, path: &Path) -> bool {
        self.names.contains_key(path) || self.directories.contains(path)
    }

    pub(super) fn create(&mut self, boot: u64, path: &Path) -> io::Result<u64> {
        self.check_parent(path)?;
        let crashing = self.simple_change(boot)?;
        let inode = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(inode, Inode::default());
        self.change_names(NameChange::Set { path: path.to_path_buf(), inode });
        Self::done(crashing)?;
        Ok(inode)
    }

    pub(super) fn remove(&mut self, boot: u64, path: &Path) -> io::Result<()> {
        if !self.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let crashing = self.simple_change(boot)?;
        self.change_names(NameChange::Remove { path: path.to_path_buf() });
        Self::done(crashing)
    }

    pub(super) fn rename(&mut self, boot: u64, from: &Path, to: &Path) -> io::Result<()> {
        self.check_parent(to)?;
        let inode = self.lookup(from).ok_or(io::ErrorKind::NotFound)?;
        let crashing = self.simple_change(boot)?;
        let (from, to) = (from.to_path_buf(), to.to_path_buf());
        self.change_names(NameChange::Rename { from, to, inode });
        Self::done(crashing)
    }

    fn change_names(&mut self, change: NameChange) {
        apply_name(&mut self.names, &change);
        self.unsynced_names.push(change);
    }

    pub(super) fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        if !self.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let files = self.names.keys().filter(|p| p.parent() == Some(directory));
        let inner = self.directories.iter().filter(|p| p.parent() == Some(directory));
        let mut all: Vec<_> = files.chain(inner).cloned().collect();
        all.sort();
        Ok(all)
    }

    pub(super) fn sync_names(&mut self, boot: u64, directory: &Path) -> io::Result<()> {
        match self.count(boot)? {
            Fate::Normal => {}
            Fate::Crash => return Err(crash_error()),
            Fate::Fault(Fault::Dropped) => return Ok(()),
            Fate::Fault(_) => return Err(eio()),
        }
        if self.rng.chance_ppm(self.faults.sync_error_ppm) {
            return Err(eio());
        }
        let mut rest = Vec::new();
        for change in std::mem::take(&mut self.unsynced_names) {
            if change.directory() == Some(directory) {
                apply_name(&mut self.safe_names, &change);
            } else {
                rest.push(change);
            }
        }
        self.unsynced_names = rest;
        Ok(())
    }

    // ---- locks ----

    pub(super) fn take_lock(&mut self, boot: u64, path: &Path) -> io::Result<u64> {
        self.check_alive(boot)?;
        if self.locks.contains_key(path) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.lookup(path).is_none() {
            self.create(boot, path)?;
        }
        let ticket = self.next_lock;
        self.next_lock += 1;
        self.locks.insert(path.to_path_buf(), ticket);
        Ok(ticket)
    }

    pub(super) fn drop_lock(&mut self, path: &Path, ticket: u64) {
        if self.locks.get(path) == Some(&ticket) {
            self.locks.remove(path);
        }
    }

    // ---- content ----

    fn inode(&mut self, inode: u64) -> &mut Inode {
        self.inodes.get_mut(&inode).expect("a handle of this boot names an inode that exists")
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.names.values().map(|id| self.inodes[id].live.allocated()).sum()
    }

    fn check_space(&mut self, inode: u64, offset: u64, len: u64) -> io::Result<()> {
        let more = self.inode(inode).live.would_allocate(offset, len);
        if more != 0 && self.used_bytes().saturating_add(more) > self.faults.capacity_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    pub(super) fn len(&mut self, inode: u64) -> u64 {
        self.inode(inode).live.len()
    }

    pub(super) fn allocated(&mut self, inode: u64) -> u64 {
        self.inode(inode).live.allocated()
    }

    pub(super) fn read(&mut self, inode: u64, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.rng.chance_ppm(self.faults.read_error_ppm) {
            return Err(eio());
        }
        let read = self.inode(inode).live.read(buf, offset);
        if self.rng.chance_ppm(self.faults.read_flip_ppm) {
            self.flip_any(&mut buf[..read]);
        }
        Ok(read)
    }

    pub(super) fn write(
        &mut self,
        boot: u64,
        inode: u64,
        data: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let fate = self.count(boot)?;
        check_range(offset, data.len() as u64)?;
        let fault = match fate {
            Fate::Crash => {
                self.change(inode, Change::Write { offset, data: data.to_vec() });
                return Err(crash_error());
            }
            Fate::Fault(fault) => Some(fault),
            Fate::Normal => self.random_write_fault(),
        };
        self.check_space(inode, offset, data.len() as u64)?;
        let mut data = data.to_vec();
        let mut at = offset;
        match fault {
            None => {}
            Some(Fault::NoSpace) => return Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Io) => return Err(eio()),
            Some(Fault::Dropped) => return Ok(()),
            Some(Fault::Misdirected) => at += 4096,
            Some(Fault::WriteFlip) => self.flip_any(&mut data),
            Some(Fault::ShortWrite) => {
                data.truncate(self.rng.below(data.len() as u64) as usize);
                self.change(inode, Change::Write { offset, data });
                return Err(eio());
            }
        }
        self.change(inode, Change::Write { offset: at, data });
        Ok(())
    }

    fn flip_any(&mut self, data: &mut [u8]) {
        let bit = self.rng.below(data.len() as u64 * 8);
        if let Some(byte) = data.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
    }

    fn random_write_fault(&mut self) -> Option<Fault> {
        let rates = [
            (self.faults.write_error_ppm, Fault::Io),
            (self.faults.short_write_ppm, Fault::ShortWrite),
            (self.faults.write_flip_ppm, Fault::WriteFlip),
            (self.faults.misdirected_write_ppm, Fault::Misdirected),
        ];
        rates.into_iter().find_map(|(ppm, fault)| self.rng.chance_ppm(ppm).then_some(fault))
    }

    pub(super) fn set_len(&mut self, boot: u64, inode: u64, len: u64) -> io::Result<()> {
        check_range(0, len)?;
        let crashing = self.simple_change(boot)?;
        self.change(inode, Change::SetLen(len));
        Self::done(crashing)
    }

    pub(super) fn allocate(&mut self, boot: u64, inode: u64, at: u64, len: u64) -> io::Result<()> {
        check_range(at, len)?;
        let crashing = self.simple_change(boot)?;
        self.check_space(inode, at, len)?;
        self.change(inode, Change::Allocate { offset: at, len });
        Self::done(crashing)
    }

    pub(super) fn punch(&mut self, boot: u64, inode: u64, at: u64, len: u64) -> io::Result<()> {
        check_range(at, len)?;
        let crashing = self.simple_change(boot)?;
        let len = len.min(self.len(inode).saturating_sub(at));
        self.change(inode, Change::Zero { offset: at, len });
        Self::done(crashing)
    }

    fn change(&mut self, inode: u64, change: Change) {
        let inode = self.inode(inode);
        apply(&mut inode.live, &change);
        inode.unsynced.push(change);
    }

    pub(super) fn sync(&mut self, boot: u64, inode: u64) -> io::Result<()> {
        match self.count(boot)? {
            Fate::Normal if !self.rng.chance_ppm(self.faults.sync_error_ppm) => {
                let inode = self.inode(inode);
                for change in inode.unsynced.drain(..) {
                    apply(&mut inode.safe, &change);
                }
                Ok(())
            }
            Fate::Crash => Err(crash_error()),
            Fate::Fault(Fault::Dropped) => Ok(()),
            // a failed sync drops dirty pages: a later sync will not bring them back
            Fate::Normal | Fate::Fault(_) => {
                self.settle(inode, Survival::Random);
                Err(eio())
            }
        }
    }

    // ---- crash ----

    pub(super) fn reboot(&mut self, survival: Survival) {
        if survival != Survival::Process {
            self.lose_unsynced(survival);
        }
        self.locks.clear();
        self.crash_at = None;
        self.crashed = false;
        self.boot += 1;
    }

    fn lose_unsynced(&mut self, survival: Survival) {
        for inode in self.inodes.keys().copied().collect::<Vec<_>>() {
            self.settle(inode, survival);
            let inode = self.inode(inode);
            inode.live = inode.safe.clone();
        }
        for change in std::mem::take(&mut self.unsynced_names) {
            if self.survives(survival) {
                apply_name(&mut self.safe_names, &change);
            }
        }
        self.names = self.safe_names.clone();
        let kept: BTreeSet<u64> = self.names.values().copied().collect();
        self.inodes.retain(|id, _| kept.contains(id));
    }

    fn survives(&mut self, survival: Survival) -> bool {
        match survival {
            Survival::Nothing => false,
            Survival::Everything | Survival::Process => true,
            Survival::Random => self.rng.next_u64() & 1 == 0,
        }
    }

    /// Moves a subset of an inode's unsynced changes to `safe`, sector by sector, and forgets the
    /// rest. Lengths change in order, as a journal keeps them.
    fn settle(&mut self, id: u64, survival: Survival) {
        for change in std::mem::take(&mut self.inode(id).unsynced) {
            match change {
                Change::Write { offset, data } => {
                    let mut done = 0;
                    while done < data.len() {
                        let at = offset + done as u64;
                        let step = ((SECTOR - at % SECTOR) as usize).min(data.len() - done);
                        if self.survives(survival) {
                            self.inode(id).safe.write(&data[done..done + step], at);
                        }
                        done += step;
                    }
                }
                other => {
                    if self.survives(survival) {
                        apply(&mut self.inode(id).safe, &other);
                    }
                }
            }
        }
    }

    // ---- for tests ----

    pub(super) fn flip_bit(&mut self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let id = self.lookup(path).ok_or(io::ErrorKind::NotFound)?;
        let inode = self.inode(id);
        let mut byte = [0];
        if inode.live.read(&mut byte, offset) != 1 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        byte[0] ^= 1 << (bit % 8);
        inode.live.write(&byte, offset);
        inode.safe.write(&byte, offset);
        Ok(())
    }

    pub(super) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let content = |id: &u64| {
            let live = &self.inodes[id].live;
            let mut bytes = vec![0; live.len() as usize];
            live.read(&mut bytes, 0);
            bytes
        };
        self.names.iter().map(|(path, id)| (path.clone(), content(id))).collect()
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

fn apply(bytes: &mut Bytes, change: &Change) {
    match change {
        Change::Write { offset, data } => bytes.write(data, *offset),
        Change::SetLen(len) => bytes.set_len(*len),
        Change::Allocate { offset, len } => bytes.allocate(*offset, *len),
        Change::Zero { offset, len } => bytes.zero(*offset, *len),
    }
}

/// The kernel's own limit is `i64::MAX`; the simulator's is smaller so that sums never overflow.
fn check_range(offset: u64, len: u64) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end < 1 << 48 => Ok(()),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}
