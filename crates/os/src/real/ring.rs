//! Several reads by one system call: `io_uring`, a small ring for each thread that asks.
//!
//! Always true: when [`read_many`] returns, the kernel writes into none of the buffers any more.

use crate::vfs::ReadRequest;
use io_uring::{IoUring, opcode, types};
use std::cell::RefCell;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU8, Ordering};

/// Reads that are on their way at a time.
const ENTRIES: usize = 64;

thread_local! {
    /// This thread's ring, once it has asked for several reads; none where the kernel gives none.
    static RING: RefCell<Option<IoUring>> = const { RefCell::new(None) };
}

/// Whether the kernel gives rings: not asked yet, yes, no.
static USABLE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Whether several reads are done at the same time. Containers often forbid it.
pub(super) fn is_usable() -> bool {
    match USABLE.load(Ordering::Relaxed) {
        UNKNOWN => {
            let usable = make().is_ok();
            USABLE.store(if usable { YES } else { NO }, Ordering::Relaxed);
            usable
        }
        known => known == YES,
    }
}

/// A ring for this thread alone, whose completions are worked off when the thread waits for them, where
/// the kernel is new enough for that (6.1).
fn make() -> io::Result<IoUring> {
    let entries = ENTRIES as u32;
    let mut frugal = IoUring::builder();
    frugal.setup_single_issuer().setup_defer_taskrun();
    frugal.build(entries).or_else(|_| IoUring::new(entries))
}

/// Reads all at once. A request that was not done, or in part, has an error of kind `Interrupted`.
pub(super) fn read_many(file: &impl AsRawFd, reads: &mut [&mut ReadRequest<'_>]) {
    for read in reads.iter_mut() {
        read.result = Err(io::ErrorKind::Interrupted.into());
    }
    if !is_usable() {
        return;
    }
    RING.with_borrow_mut(|ring| {
        if ring.is_none() {
            // Without one the requests stay as they are.
            *ring = make().ok();
        }
        let Some(ring) = ring else { return };
        for reads in reads.chunks_mut(ENTRIES) {
            read_some(ring, file, reads);
        }
    });
}

/// The same for no more than the ring has room for.
fn read_some(ring: &mut IoUring, file: &impl AsRawFd, reads: &mut [&mut ReadRequest<'_>]) {
    let guard = AbortOnUnwind;
    let file = types::Fd(file.as_raw_fd());
    for (number, read) in reads.iter_mut().enumerate() {
        let length = u32::try_from(read.buf.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(file, read.buf.as_mut_ptr(), length).offset(read.offset);
        let entry = entry.build().user_data(number as u64);
        // SAFETY: the file is open and the buffer borrowed until this function returns, and it returns after
        // every entry's completion.
        let pushed = unsafe { ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "a ring is empty before each call, and has room for this many");
    }
    let mut awaited = reads.len();
    while awaited > 0 {
        match ring.submit_and_wait(awaited) {
            Ok(_) => {}
            // A signal, or the kernel is short of memory: what is on its way goes on, the rest is asked for again.
            Err(error) if is_passing(&error) => std::thread::yield_now(),
            // Nobody could say when the kernel is done with the buffers.
            Err(error) => panic!("io_uring_enter failed with {error}; the process cannot go on"),
        }
        for completion in ring.completion() {
            awaited -= 1;
            let read = &mut *reads[completion.user_data() as usize];
            read.result = match usize::try_from(completion.result()) {
                Ok(length) if length == read.buf.len() => Ok(()),
                Ok(_) => Err(io::ErrorKind::Interrupted.into()),
                Err(_) => Err(failure(io::Error::from_raw_os_error(-completion.result()))),
            };
        }
    }
    std::mem::forget(guard);
}

/// Ends the process where a panic, which was logged, would leave the frame that has this: entries of the ring would name
/// buffers that are gone.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// What is to be tried again is as if it had not been done.
fn failure(error: io::Error) -> io::Error {
    if is_passing(&error) { io::ErrorKind::Interrupted.into() } else { error }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}
