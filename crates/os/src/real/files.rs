//! Linux files behind [`Vfs`] and [`File`].

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::ring;
use crate::DIRECT_ALIGN;
use crate::vfs::{File, FilePermissions, LockGuard, OpenOptions, ReadRequest, Space, Vfs};

/// The machine's filesystem.
#[derive(Debug)]
pub struct RealVfs;

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    direct: bool,
    /// [`File::read_alignment`].
    read_alignment: usize,
}

impl Vfs for RealVfs {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let plain = flags(options);
        if options.direct {
            match rustix::fs::open(path, plain | OFlags::DIRECT, mode()) {
                Ok(fd) => return Ok(Arc::new(RealFile::direct(fd.into()))),
                // tmpfs and some network filesystems know no direct I/O; a file that
                // `create_new` made before it failed is opened as it is
                Err(Errno::INVAL) => {
                    let fd = rustix::fs::open(path, plain - OFlags::EXCL, mode())?;
                    return Ok(Arc::new(RealFile::buffered(fd.into())));
                }
                Err(e) => return Err(e.into()),
            }
        }
        let fd = rustix::fs::open(path, plain, mode())?;
        Ok(Arc::new(RealFile::buffered(fd.into())))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let missing: Vec<&Path> =
            path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
        // For its user alone: what lies inside says much even where the files cannot be read.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        for made in missing {
            self.sync_dir(made)?;
            if let Some(parent) = made.parent() {
                self.sync_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
            }
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut names =
            fs::read_dir(path)?.map(|e| e.map(|e| e.path())).collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        rustix::fs::fsync(fd)?;
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, mode())?;
        rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
        Ok(LockGuard::new(fd))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(path)?;
        let unit = if stat.f_frsize == 0 { stat.f_bsize } else { stat.f_frsize };
        Ok(Space {
            total: stat.f_blocks.saturating_mul(unit),
            available: stat.f_bavail.saturating_mul(unit),
        })
    }
}

/// What direct reads of a file are aligned to: the disk's sector where the kernel tells (since 6.1), which often is
/// a part of [`DIRECT_ALIGN`].
fn direct_read_alignment(file: &fs::File) -> Option<usize> {
    let mut status = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the descriptor is open, the path is an empty string, as `AT_EMPTY_PATH` asks, and the status has its type.
    let failed = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            status.as_mut_ptr(),
        )
    };
    // SAFETY: all zeros is a status, and the kernel writes nothing else than one.
    let status = unsafe { status.assume_init() };
    if failed != 0 || status.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    // Memory that begins where a read may begin is good enough too.
    let alignment = status.stx_dio_offset_align.max(status.stx_dio_mem_align) as usize;
    let is_known = alignment.is_power_of_two() && DIRECT_ALIGN.is_multiple_of(alignment);
    is_known.then_some(alignment)
}

fn flags(options: OpenOptions) -> OFlags {
    let mut flags = OFlags::CLOEXEC;
    flags |= if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if options.create {
        flags |= OFlags::CREATE;
    }
    if options.create_new {
        flags |= OFlags::CREATE | OFlags::EXCL;
    }
    if options.truncate {
        flags |= OFlags::TRUNC;
    }
    if options.no_follow {
        flags |= OFlags::NOFOLLOW;
    }
    flags
}

fn mode() -> Mode {
    Mode::RUSR | Mode::WUSR
}

impl RealFile {
    fn buffered(file: fs::File) -> Self {
        Self { file, direct: false, read_alignment: DIRECT_ALIGN }
    }

    fn direct(file: fs::File) -> Self {
        let read_alignment = direct_read_alignment(&file).unwrap_or(DIRECT_ALIGN);
        Self { file, direct: true, read_alignment }
    }

    /// Reads what the kernel has in memory; none where it has to fetch it, or cannot tell.
    fn read_at_once(&self, buf: &mut [u8], offset: u64) -> Option<usize> {
        let mut into = [io::IoSliceMut::new(buf)];
        let read = rustix::io::preadv2(&self.file, &mut into, offset, ReadWriteFlags::NOWAIT);
        // At the end of the file nothing is read, also by one who waits.
        read.ok().filter(|read| *read > 0)
    }
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if !crate::waits::is_announced() {
            return self.file.read_at(buf, offset);
        }
        // What the kernel has in memory needs no wait.
        if !self.direct
            && let Some(read) = self.read_at_once(buf, offset)
        {
            return Ok(read);
        }
        crate::about_to_wait();
        self.file.read_at(buf, offset)
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) {
        let mut missing = Vec::with_capacity(reads.len());
        for read in reads {
            let at_hand =
                !self.direct && self.read_at_once(read.buf, read.offset) == Some(read.buf.len());
            if at_hand {
                (read.result, read.was_at_hand) = (Ok(()), true);
            } else {
                missing.push(read);
            }
        }
        if missing.is_empty() {
            return;
        }
        crate::about_to_wait();
        ring::read_many(&self.file, &mut missing);
        for read in missing {
            // What a signal or the end of the file cut short, and all where the kernel forbids rings.
            if let Err(error) = &read.result
                && error.kind() == io::ErrorKind::Interrupted
            {
                read.result = self.read_exact_at(read.buf, read.offset);
            }
        }
    }

    fn reads_at_once(&self) -> bool {
        ring::is_usable()
    }

    fn read_alignment(&self) -> usize {
        self.read_alignment
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn begin_writeback(&self, offset: u64, len: u64) {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
        // Without the waiting flags the result says nothing that a sync does not say again.
        // SAFETY: the descriptor is open while `self.file` lives; no memory is passed.
        let _hint = unsafe {
            libc::sync_file_range(self.file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE)
        };
    }

    fn sync_data(&self) -> io::Result<()> {
        crate::about_to_wait();
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        crate::about_to_wait();
        self.file.sync_all()
    }

    fn permissions(&self) -> io::Result<FilePermissions> {
        let status = rustix::fs::fstat(&self.file)?;
        Ok(FilePermissions { owner: status.st_uid, mode: status.st_mode & 0o7777 })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let end = offset.saturating_add(len);
                if self.len()? < end { self.set_len(end) } else { Ok(()) }
            }
            other => Ok(other?),
        }
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_names_and_lengths_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        RealVfs.create_dir_all(&deep).unwrap();
        let path = deep.join("one");
        assert!(!RealVfs.exists(&path).unwrap());
        let file = RealVfs.open(&path, OpenOptions::create_new()).unwrap();
        file.write_all_at(b"fern", 10).unwrap();
        let mut buf = [9; 14];
        file.read_exact_at(&mut buf, 0).unwrap();
        assert_eq!(&buf, b"\0\0\0\0\0\0\0\0\0\0fern");
        let error = file.read_exact_at(&mut buf, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        file.begin_writeback(0, u64::MAX);
        file.begin_writeback(0, 14);
        file.sync_data().unwrap();
        file.allocate(0, 8192).unwrap();
        assert_eq!(file.len().unwrap(), 8192);
        file.punch_hole(0, 4096).unwrap();
        file.set_len(5).unwrap();
        assert_eq!(file.len().unwrap(), 5);
        let twice = RealVfs.open(&path, OpenOptions::create_new()).err().unwrap();
        assert_eq!(twice.kind(), io::ErrorKind::AlreadyExists);
        RealVfs.rename(&path, &deep.join("two")).unwrap();
        RealVfs.sync_dir(&deep).unwrap();
        assert_eq!(RealVfs.list_dir(&deep).unwrap(), [deep.join("two")]);
        RealVfs.remove_file(&deep.join("two")).unwrap();
        assert_eq!(RealVfs.list_dir(&deep).unwrap(), Vec::<PathBuf>::new());
        assert!(RealVfs.space(&deep).unwrap().total > 0);
    }

    #[test]
    fn security_finding_18_directories_are_for_their_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        RealVfs.create_dir_all(&deep).unwrap();
        for made in [dir.path().join("a"), deep] {
            assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700, "{}", made.display());
        }
    }

    #[test]
    fn security_finding_18_a_link_is_not_followed_where_that_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let options = OpenOptions { truncate: true, no_follow: true, ..OpenOptions::create() };
        assert!(RealVfs.open(&link, options).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"kept");
        assert!(RealVfs.open(&target, options).is_ok());
        assert_eq!(fs::read(&target).unwrap(), b"");
    }

    #[test]
    fn second_locker_would_block_until_the_first_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = RealVfs.lock(&path).unwrap();
        assert_eq!(RealVfs.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(first);
        let _again = RealVfs.lock(&path).unwrap();
    }

    #[test]
    fn direct_file_takes_aligned_buffers() {
        let dir = tempfile::tempdir().unwrap();
        let options = OpenOptions::create_new().with_direct(true);
        let file = RealVfs.open(&dir.path().join("d"), options).unwrap();
        let mut buf = crate::AlignedBuf::zeroed(DIRECT_ALIGN);
        buf[17] = 42;
        file.write_all_at(&buf, DIRECT_ALIGN as u64).unwrap();
        let mut back = crate::AlignedBuf::zeroed(DIRECT_ALIGN);
        file.read_exact_at(&mut back, DIRECT_ALIGN as u64).unwrap();
        assert_eq!(&back[..], &buf[..]);
    }

    /// What several reads bring, by a ring where the kernel gives one, else one after the other.
    #[test]
    fn several_reads_bring_each_its_own_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("many");
        let content: Vec<u8> = (0..200 * DIRECT_ALIGN).map(|at| (at / 512 % 251) as u8).collect();
        let file = RealVfs.open(&path, OpenOptions::create_new()).unwrap();
        file.write_all_at(&content, 0).unwrap();
        for direct in [false, true] {
            let file = RealVfs.open(&path, OpenOptions::read_only().with_direct(direct)).unwrap();
            let alignment = file.read_alignment();
            assert!(alignment.is_power_of_two() && DIRECT_ALIGN.is_multiple_of(alignment));
            // More than a ring takes at once, backwards, and each of another length.
            let mut bufs: Vec<_> =
                (0..150).map(|at| crate::AlignedBuf::zeroed(alignment * (1 + at % 9))).collect();
            let offset = |at: usize| ((150 - at) * DIRECT_ALIGN + at % 8 * alignment) as u64;
            let mut reads: Vec<_> = (bufs.iter_mut().enumerate())
                .map(|(at, buf)| ReadRequest::new(offset(at), &mut buf[..]))
                .collect();
            // One that ends behind the file, and one that begins there.
            reads[7].offset = (content.len() - alignment) as u64;
            reads[8].offset = content.len() as u64;
            file.read_many(&mut reads);
            for (at, read) in reads.iter().enumerate() {
                let first = read.offset as usize;
                let Some(expected) = content.get(first..first + read.buf.len()) else {
                    let kind = read.result.as_ref().unwrap_err().kind();
                    assert_eq!(kind, io::ErrorKind::UnexpectedEof, "read {at}");
                    continue;
                };
                assert!(read.result.is_ok() && read.buf == expected, "read {at}");
            }
            assert_eq!(reads.iter().filter(|read| read.result.is_err()).count(), 2);
        }
        assert_eq!(file.reads_at_once(), ring::is_usable());
    }
}
