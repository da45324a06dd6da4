//! Files and directories as the system sees them.
//!
//! What is always true, in both twins:
//! 1. Bytes written are durable only after `sync_data` or `sync_all` on the same file.
//! 2. A created, renamed or removed name is durable only after [`Vfs::sync_dir`] on its directory.
//! 3. [`Vfs::create_dir_all`] alone is durable when it returns.
//! 4. After a failed sync nobody may assume that an earlier write is on disk, or ever will be.

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How [`Vfs::open`] opens a file. The default reads and writes a file that must exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent switches of open(2)")]
pub struct OpenOptions {
    /// Make the file where it is missing.
    pub create: bool,
    /// Make the file and fail with `AlreadyExists` where it is there.
    pub create_new: bool,
    /// No write will follow.
    pub read_only: bool,
    /// Cut the file to length 0.
    pub truncate: bool,
    /// Fail where the last part of the path is a symbolic link: the file must be the one that is
    /// named, not one that somebody else pointed to.
    pub no_follow: bool,
    /// Bypass the page cache where the filesystem can ([`File::is_direct`] tells).
    /// Offsets, lengths and buffers must then be multiples of [`crate::DIRECT_ALIGN`]; of reads see
    /// [`File::read_alignment`].
    pub direct: bool,
}

impl OpenOptions {
    /// Read and write, made where missing.
    pub fn create() -> Self {
        Self { create: true, ..Self::default() }
    }

    /// Read and write, must not exist yet.
    pub fn create_new() -> Self {
        Self { create_new: true, ..Self::default() }
    }

    /// Only read.
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }

    /// The same with `O_DIRECT` asked for or not.
    #[must_use]
    pub fn with_direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }
}

/// Whose a file is, and who may do what with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePermissions {
    /// The user that it belongs to.
    pub owner: u32,
    /// The bits of `chmod`.
    pub mode: u32,
}

impl FilePermissions {
    /// Whether it belongs to this process's user or to root.
    pub fn is_ours_or_roots(self) -> bool {
        self.owner == 0 || self.owner == rustix::process::geteuid().as_raw()
    }
}

/// Size of the filesystem a path is on, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Everything.
    pub total: u64,
    /// What an ordinary user can still write.
    pub available: u64,
}

/// An exclusive advisory lock; dropping it opens the lock.
pub struct LockGuard {
    _held: Box<dyn Any + Send + Sync>,
}

impl LockGuard {
    /// Wraps whatever holds the lock while it lives.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self { _held: Box::new(held) }
    }
}

impl std::fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LockGuard")
    }
}

/// A filesystem. Every call may touch the disk and wait.
pub trait Vfs: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// What the filesystem says: `NotFound`, `AlreadyExists`, `PermissionDenied`, …
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>>;

    /// Makes a directory and its missing parents, durably.
    ///
    /// # Errors
    /// What the filesystem says.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Removes a file's name; open handles stay usable.
    ///
    /// # Errors
    /// `NotFound` and what else the filesystem says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Renames a file, replacing the target atomically.
    ///
    /// # Errors
    /// What the filesystem says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// The full paths in a directory, sorted.
    ///
    /// # Errors
    /// `NotFound` and what else the filesystem says.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Whether the name is there.
    ///
    /// # Errors
    /// Anything but "not found".
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// What the filesystem says.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Takes the exclusive lock on a file, which is made where missing.
    ///
    /// # Errors
    /// `WouldBlock` where somebody else holds it.
    fn lock(&self, path: &Path) -> io::Result<LockGuard>;

    /// The size of the filesystem a path is on.
    ///
    /// # Errors
    /// What the filesystem says.
    fn space(&self, path: &Path) -> io::Result<Space>;
}

/// One of several reads that are asked for together ([`File::read_many`]).
#[derive(Debug)]
pub struct ReadRequest<'b> {
    /// The first byte in the file.
    pub offset: u64,
    /// Where the bytes go: all of it is filled.
    pub buf: &'b mut [u8],
    /// What became of it; before that, an error of kind `Other`.
    pub result: io::Result<()>,
    /// The system had the bytes in memory: nobody waited for the disk.
    pub was_at_hand: bool,
}

impl<'b> ReadRequest<'b> {
    /// One that was not done yet.
    pub fn new(offset: u64, buf: &'b mut [u8]) -> Self {
        let result = Err(io::Error::other("not read yet"));
        Self { offset, buf, result, was_at_hand: false }
    }
}

/// An open file. All calls are positioned and may come from many threads at once.
pub trait File: Send + Sync {
    /// Reads up to `buf.len()` bytes; 0 means end of file.
    ///
    /// # Errors
    /// What the disk says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills `buf`.
    ///
    /// # Errors
    /// `UnexpectedEof` where the file ends before, and what the disk says.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Fills the buffers of several reads, each as [`File::read_exact_at`] does; at the same time where
    /// [`File::reads_at_once`], else one after the other.
    fn read_many(&self, reads: &mut [ReadRequest<'_>]) {
        for read in reads {
            read.result = self.read_exact_at(read.buf, read.offset);
        }
    }

    /// Whether several reads take hardly longer together than one of them.
    fn reads_at_once(&self) -> bool {
        false
    }

    /// Offsets, lengths and memory of reads must be multiples of this where the file [is direct](File::is_direct); a power of two
    /// that divides [`crate::DIRECT_ALIGN`]. Those of writes are multiples of the latter.
    fn read_alignment(&self) -> usize {
        crate::DIRECT_ALIGN
    }

    /// Writes all of `buf`, making the file longer where needed.
    ///
    /// # Errors
    /// `StorageFull` and what else the disk says; a part may then have been written.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Lets the disk begin with what was written in this range, so that the next sync finds less
    /// to do. A hint: waits for nothing, promises nothing, and a failure shows at the next sync.
    fn begin_writeback(&self, _offset: u64, _len: u64) {}

    /// Whose it is, and who may do what with it: of this very file, whatever has its name meanwhile.
    ///
    /// # Errors
    /// Where it cannot be told.
    fn permissions(&self) -> io::Result<FilePermissions>;

    /// Makes what was written durable, with the length, without times.
    ///
    /// # Errors
    /// What the disk says; see rule 4 of the module.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes what was written and all metadata durable.
    ///
    /// # Errors
    /// What the disk says; see rule 4 of the module.
    fn sync_all(&self) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// What the disk says.
    fn len(&self) -> io::Result<u64>;

    /// Whether the length is 0.
    ///
    /// # Errors
    /// What the disk says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts or extends (with zeros) the file.
    ///
    /// # Errors
    /// What the disk says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space for `[offset, offset + len)`, extending the file with zeros. Where the
    /// filesystem cannot reserve, it only extends.
    ///
    /// # Errors
    /// `StorageFull` and what else the disk says.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Gives the space of `[offset, offset + len)` back; it reads as zeros afterwards where the
    /// filesystem can, and stays as it is where it cannot. The length stays.
    ///
    /// # Errors
    /// What the disk says.
    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Whether this file really bypasses the page cache.
    fn is_direct(&self) -> bool {
        false
    }

    /// Bytes the file really occupies.
    ///
    /// # Errors
    /// What the disk says.
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.len()
    }
}
