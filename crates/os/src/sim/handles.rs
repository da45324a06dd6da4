//! The traits [`Vfs`] and [`File`] over the simulated [`Disk`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sync::Mutex;

use super::disk::Disk;
use crate::vfs::{File, FilePermissions, LockGuard, OpenOptions, Space, Vfs};

/// The filesystem of one boot of the simulated machine.
pub(super) struct SimVfs {
    disk: Arc<Mutex<Disk>>,
    boot: u64,
}

impl SimVfs {
    pub(super) fn new(disk: Arc<Mutex<Disk>>) -> Self {
        let boot = disk.lock().boot;
        Self { disk, boot }
    }
}

struct SimFile {
    disk: Arc<Mutex<Disk>>,
    boot: u64,
    inode: u64,
    read_only: bool,
}

struct SimLock {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
    ticket: u64,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.lock().drop_lock(&self.path, self.ticket);
    }
}

impl Vfs for SimVfs {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let mut disk = self.disk.lock();
        disk.check_alive(self.boot)?;
        let inode = match disk.lookup(path) {
            Some(_) if options.create_new => return Err(io::ErrorKind::AlreadyExists.into()),
            Some(inode) => inode,
            None if options.create || options.create_new => disk.create(self.boot, path)?,
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        if options.truncate && disk.len(inode) != 0 {
            disk.set_len(self.boot, inode, 0)?;
        }
        let read_only = options.read_only;
        Ok(Arc::new(SimFile { disk: self.disk.clone(), boot: self.boot, inode, read_only }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.lock().make_directories(self.boot, path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.lock().remove(self.boot, path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.lock().rename(self.boot, from, to)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let disk = self.disk.lock();
        disk.check_alive(self.boot)?;
        disk.list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let disk = self.disk.lock();
        disk.check_alive(self.boot)?;
        Ok(disk.path_exists(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.lock().sync_names(self.boot, path)
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        let ticket = self.disk.lock().take_lock(self.boot, path)?;
        let (disk, path) = (self.disk.clone(), path.to_path_buf());
        Ok(LockGuard::new(SimLock { disk, path, ticket }))
    }

    fn space(&self, _: &Path) -> io::Result<Space> {
        let disk = self.disk.lock();
        disk.check_alive(self.boot)?;
        let total = disk.faults.capacity_bytes;
        Ok(Space { total, available: total.saturating_sub(disk.used_bytes()) })
    }
}

impl SimFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.read_only { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut disk = self.disk.lock();
        disk.check_alive(self.boot)?;
        disk.read(self.inode, buf, offset)
    }

    fn reads_at_once(&self) -> bool {
        self.disk.lock().reads_at_once
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.lock().write(self.boot, self.inode, buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.lock().sync(self.boot, self.inode)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk.lock().sync(self.boot, self.inode)
    }

    fn permissions(&self) -> io::Result<FilePermissions> {
        // A simulated machine has one user.
        let owner = rustix::process::geteuid().as_raw();
        Ok(FilePermissions { owner, mode: 0o600 })
    }

    fn len(&self) -> io::Result<u64> {
        let mut disk = self.disk.lock();
        disk.check_alive(self.boot)?;
        Ok(disk.len(self.inode))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.lock().set_len(self.boot, self.inode, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.lock().allocate(self.boot, self.inode, offset, len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.lock().punch(self.boot, self.inode, offset, len)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        let mut disk = self.disk.lock();
        disk.check_alive(self.boot)?;
        Ok(disk.allocated(self.inode))
    }
}
