//! What a crash leaves, and what tests do to the platter behind the program's back.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::{Change, Disk, SECTOR, apply};
use crate::sim::{SimRng, Survival};

impl Disk {
    pub(in crate::sim) fn reboot(&mut self, survival: Survival) {
        if survival != Survival::Process {
            self.lose_unsynced(survival);
        }
        self.names.forget_locks();
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
        let rng = &mut self.rng;
        self.names.crash(|| survives(rng, survival));
        let kept: BTreeSet<u64> = self.names.inodes().copied().collect();
        self.inodes.retain(|id, _| kept.contains(id));
    }

    /// Moves a subset of an inode's unsynced changes to `safe`, sector by sector, and forgets the
    /// rest. Lengths change in order, as a journal keeps them.
    pub(super) fn settle(&mut self, id: u64, survival: Survival) {
        for change in std::mem::take(&mut self.inode(id).unsynced) {
            match change {
                Change::Write { offset, data } => {
                    let mut done = 0;
                    while done < data.len() {
                        let at = offset + done as u64;
                        let step = ((SECTOR - at % SECTOR) as usize).min(data.len() - done);
                        if survives(&mut self.rng, survival) {
                            self.inode(id).safe.write(&data[done..done + step], at);
                        }
                        done += step;
                    }
                }
                other => {
                    if survives(&mut self.rng, survival) {
                        apply(&mut self.inode(id).safe, &other);
                    }
                }
            }
        }
    }

    pub(in crate::sim) fn flip_bit(&mut self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        self.rewrite(path, offset, offset, 1, |bytes| bytes[0] ^= 1 << (bit % 8))
    }

    pub(in crate::sim) fn copy_within(
        &mut self,
        path: &Path,
        from: u64,
        to: u64,
        len: usize,
    ) -> io::Result<()> {
        self.rewrite(path, from, to, len, |_| {})
    }

    /// Reads at one place and writes what `change` made of it at another, on the platter too.
    fn rewrite(
        &mut self,
        path: &Path,
        from: u64,
        to: u64,
        len: usize,
        change: impl FnOnce(&mut [u8]),
    ) -> io::Result<()> {
        let id = self.lookup(path).ok_or(io::ErrorKind::NotFound)?;
        let inode = self.inode(id);
        let mut bytes = vec![0; len];
        if inode.live.read(&mut bytes, from) != len || to + len as u64 > inode.live.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        change(&mut bytes);
        inode.live.write(&bytes, to);
        inode.safe.write(&bytes, to);
        self.injected.damage += 1;
        Ok(())
    }

    pub(in crate::sim) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let content = |id: &u64| {
            let live = &self.inodes[id].live;
            let mut bytes = vec![0; live.len() as usize];
            live.read(&mut bytes, 0);
            bytes
        };
        self.names.files().map(|(path, id)| (path.clone(), content(id))).collect()
    }
}

fn survives(rng: &mut SimRng, survival: Survival) -> bool {
    match survival {
        Survival::Nothing => false,
        Survival::Everything | Survival::Process => true,
        Survival::Random => rng.next_u64() & 1 == 0,
    }
}
