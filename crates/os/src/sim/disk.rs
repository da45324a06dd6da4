//! The simulated platter: what the program sees, what is safe, and what happens at a crash.
//!
//! What is always true:
//! 1. `Inode::live` is what reads see; `Inode::safe` with any subset of `Inode::unsynced` applied
//!    sector by sector is what a crash may leave.
//! 2. `injected` counts every fault the program could notice, now or when it reads back.

mod crash;
mod names;

use std::collections::BTreeMap;
use std::io;

use super::bytes::Bytes;
use super::{Crashed, Fault, Faults, Injected, SimRng, Survival};
use names::Names;

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

pub(super) struct Disk {
    rng: SimRng,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    names: Names,
    /// Handles of an older boot are dead.
    pub(super) boot: u64,
    pub(super) syscalls: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) crashed: bool,
    pub(super) faults: Faults,
    pub(super) planned: BTreeMap<u64, Fault>,
    pub(super) injected: Injected,
    /// Several reads are said to take hardly longer than one.
    pub(super) reads_at_once: bool,
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

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: SimRng::new(seed),
            inodes: BTreeMap::new(),
            next_inode: 1,
            names: Names::default(),
            boot: 0,
            syscalls: 0,
            crash_at: None,
            crashed: false,
            faults: Faults::default(),
            planned: BTreeMap::new(),
            injected: Injected::default(),
            reads_at_once: seed % 2 == 1,
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

    /// An I/O error of the device.
    fn broken(&mut self) -> io::Error {
        self.injected.io_errors += 1;
        eio()
    }

    fn out_of_space(&mut self) -> io::Error {
        self.injected.out_of_space += 1;
        full()
    }

    /// Something goes wrong unseen, by chance at this rate.
    fn damages(&mut self, ppm: u32) -> bool {
        let damages = self.rng.chance_ppm(ppm);
        self.injected.damage += u64::from(damages);
        damages
    }

    fn lies(&mut self) -> bool {
        let lies = self.rng.chance_ppm(self.faults.dropped_sync_ppm);
        self.injected.lies += u64::from(lies);
        lies
    }

    /// A change of names or lengths: all of it happens, or an error says that nothing did.
    fn simple_change(&mut self, boot: u64) -> io::Result<bool> {
        match self.count(boot)? {
            Fate::Normal => Ok(false),
            Fate::Crash => Ok(true),
            Fate::Fault(Fault::NoSpace) => Err(self.out_of_space()),
            Fate::Fault(_) => Err(self.broken()),
        }
    }

    fn done(crashing: bool) -> io::Result<()> {
        if crashing { Err(crash_error()) } else { Ok(()) }
    }

    // ---- content ----

    fn inode(&mut self, inode: u64) -> &mut Inode {
        self.inodes.get_mut(&inode).expect("a handle of this boot names an inode that exists")
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.names.inodes().map(|id| self.inodes[id].live.allocated()).sum()
    }

    fn check_space(&mut self, inode: u64, offset: u64, len: u64) -> io::Result<()> {
        let more = self.inode(inode).live.would_allocate(offset, len);
        if more != 0 && self.used_bytes().saturating_add(more) > self.faults.capacity_bytes {
            return Err(self.out_of_space());
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
            return Err(self.broken());
        }
        let from =
            if self.damages(self.faults.misdirected_read_ppm) { offset + 4096 } else { offset };
        let read = self.inode(inode).live.read(buf, from);
        if self.damages(self.faults.read_flip_ppm) {
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
            Some(Fault::NoSpace) => return Err(self.out_of_space()),
            Some(Fault::Io) => return Err(self.broken()),
            Some(Fault::ShortWrite) => {
                data.truncate(self.rng.below(data.len() as u64) as usize);
                self.change(inode, Change::Write { offset, data });
                return Err(self.broken());
            }
            Some(unseen) => {
                self.injected.damage += 1;
                match unseen {
                    Fault::Dropped => return Ok(()),
                    Fault::WriteFlip => self.flip_any(&mut data),
                    _ => at += 4096,
                }
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
            (self.faults.dropped_write_ppm, Fault::Dropped),
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
        let fate = self.count(boot)?;
        if self.lies() {
            return Ok(());
        }
        match fate {
            Fate::Normal if !self.rng.chance_ppm(self.faults.sync_error_ppm) => {
                let inode = self.inode(inode);
                for change in inode.unsynced.drain(..) {
                    apply(&mut inode.safe, &change);
                }
                Ok(())
            }
            Fate::Crash => Err(crash_error()),
            Fate::Fault(Fault::Dropped) => {
                self.injected.lies += 1;
                Ok(())
            }
            // a failed sync drops dirty pages: a later sync will not bring them back
            Fate::Normal | Fate::Fault(_) => {
                self.settle(inode, Survival::Random);
                Err(self.broken())
            }
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
