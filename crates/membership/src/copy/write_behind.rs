//! Writes what has come of a copy on a thread of its own, while more is received and checked.
//!
//! Always true: at most [`MOST_WAITING`] parts wait to be written, and memory is used again; what [`WriteBehind::settle`]
//! returned for is written; nothing writes any more once it is dropped. Where there is no thread to be had each part
//! is written by who hands it over.

use super::{Arrived, CopyError};
use engine::ReceivedFile;
use os::{JoinHandle, Spawner};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Parts that wait to be written, at most: enough for the disk to have work while a part is checked.
pub(super) const MOST_WAITING: usize = 4;

/// What parts are written to.
pub(super) trait Target: Send + 'static {
    /// Writes bytes at their place.
    fn write(&self, offset: u64, bytes: &[u8]) -> engine::Result<()>;
}

impl Target for ReceivedFile {
    fn write(&self, offset: u64, bytes: &[u8]) -> engine::Result<()> {
        Self::write(self, offset, bytes)
    }
}

/// A part that is to be written.
struct ToWrite<T> {
    to: T,
    offset: u64,
    arrived: Arrived,
}

/// A part that was written, or not.
struct Written {
    memory: Vec<u8>,
    bytes: u64,
    result: engine::Result<()>,
}

struct Thread<T> {
    to_write: SyncSender<ToWrite<T>>,
    written: Receiver<Written>,
    handle: JoinHandle,
}

/// Who writes.
pub(super) struct WriteBehind<T: Target> {
    thread: Option<Thread<T>>,
    /// Parts that the thread has.
    waiting: usize,
    /// Memory of parts that were written.
    free: Vec<Vec<u8>>,
}

impl<T: Target> ToWrite<T> {
    fn write(self) -> Written {
        let Self { to, offset, arrived } = self;
        let result = to.write(offset, arrived.bytes());
        Written { bytes: arrived.bytes().len() as u64, memory: arrived.memory, result }
    }
}

impl<T: Target> WriteBehind<T> {
    /// With a thread, where there is one to be had.
    pub(super) fn new(spawner: &dyn Spawner) -> Self {
        let (to_write, work) = sync_channel::<ToWrite<T>>(MOST_WAITING);
        let (done, written) = sync_channel(MOST_WAITING);
        let job = move || {
            os::work_in_background();
            for part in work {
                if done.send(part.write()).is_err() {
                    return;
                }
            }
        };
        // Without one it only takes longer.
        let handle = spawner.spawn("copy-write", Box::new(job)).ok();
        let thread = handle.map(|handle| Thread { to_write, written, handle });
        Self { thread, waiting: 0, free: Vec::new() }
    }

    /// Memory for the next part, of one that was written where there is some.
    pub(super) fn memory(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    /// Memory that is not needed.
    pub(super) fn give_back(&mut self, memory: Vec<u8>) {
        if self.free.len() < MOST_WAITING {
            self.free.push(memory);
        }
    }

    /// Has a part written: waits where as many wait as may. Returns how many bytes were written since that was told last.
    pub(super) fn write(&mut self, to: T, offset: u64, arrived: Arrived) -> Result<u64, CopyError> {
        let part = ToWrite { to, offset, arrived };
        if self.thread.is_none() {
            return self.note(part.write());
        }
        let mut bytes = 0;
        while self.waiting == MOST_WAITING {
            bytes += self.await_one()?;
        }
        let thread = self.thread.as_ref().ok_or(CopyError::NobodyWrites)?;
        thread.to_write.send(part).map_err(|_| CopyError::NobodyWrites)?;
        self.waiting += 1;
        Ok(bytes)
    }

    /// Waits until all is written. Returns how many bytes were since that was told last.
    pub(super) fn settle(&mut self) -> Result<u64, CopyError> {
        let mut bytes = 0;
        while self.waiting > 0 {
            bytes += self.await_one()?;
        }
        Ok(bytes)
    }

    fn await_one(&mut self) -> Result<u64, CopyError> {
        let thread = self.thread.as_ref().ok_or(CopyError::NobodyWrites)?;
        let written = thread.written.recv().map_err(|_| CopyError::NobodyWrites)?;
        self.waiting -= 1;
        self.note(written)
    }

    fn note(&mut self, written: Written) -> Result<u64, CopyError> {
        let Written { memory, bytes, result } = written;
        self.give_back(memory);
        result?;
        Ok(bytes)
    }
}

impl<T: Target> Drop for WriteBehind<T> {
    fn drop(&mut self) {
        let Some(Thread { to_write, written, handle }) = self.thread.take() else { return };
        // It ends when it finds that nobody hands over or hears any more.
        drop((to_write, written));
        if let Err(panicked) = handle.join() {
            tracing::error!(target: "INITSYNC", %panicked, "The thread that writes a copy has panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Part;
    use os::Os;
    use os::sync::{Condvar, Mutex};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// What was written, in order; nothing is while it is closed.
    #[derive(Clone, Default)]
    struct Disk(Arc<Inner>);

    #[derive(Default)]
    struct Inner {
        written: Mutex<Vec<(u64, Vec<u8>)>>,
        is_closed: Mutex<bool>,
        opened: Condvar,
        fails_at: Option<u64>,
    }

    impl Disk {
        fn set_closed(&self, is_closed: bool) {
            *self.0.is_closed.lock() = is_closed;
            self.0.opened.notify_all();
        }
    }

    impl Target for Disk {
        fn write(&self, offset: u64, bytes: &[u8]) -> engine::Result<()> {
            let mut is_closed = self.0.is_closed.lock();
            while *is_closed {
                self.0.opened.wait(&mut is_closed);
            }
            if self.0.fails_at == Some(offset) {
                return Err(engine::Error::InvalidOption("no disk".to_owned()));
            }
            self.0.written.lock().push((offset, bytes.to_vec()));
            Ok(())
        }
    }

    /// A part whose bytes say where it belongs, between others of its answer.
    fn arrived(mut memory: Vec<u8>, offset: u64) -> Arrived {
        memory.clear();
        memory.extend_from_slice(b"before");
        memory.extend_from_slice(&offset.to_le_bytes());
        memory.extend_from_slice(b"behind");
        Arrived { memory, part: Part::Bytes(6..14, 0) }
    }

    fn threads() -> Vec<Os> {
        vec![Os::real(), os::sim::SimOs::new(1).os()]
    }

    #[test]
    fn parts_are_written_in_order_at_their_places_from_memory_that_is_used_again() {
        for os in threads() {
            let disk = Disk::default();
            let mut writes = WriteBehind::new(&*os.spawner);
            let (mut bytes, mut made) = (0, 0);
            for part in 0..100 {
                let memory = writes.memory();
                made += usize::from(memory.capacity() == 0);
                bytes += writes.write(disk.clone(), part * 8, arrived(memory, part * 8)).unwrap();
            }
            bytes += writes.settle().unwrap();
            assert_eq!(bytes, 800);
            assert!(made <= MOST_WAITING + 1, "{made} pieces of memory");
            let expected: Vec<_> =
                (0..100_u64).map(|part| (part * 8, (part * 8).to_le_bytes().to_vec())).collect();
            assert_eq!(*disk.0.written.lock(), expected);
        }
    }

    #[test]
    fn no_more_parts_wait_than_may() {
        let disk = Disk::default();
        disk.set_closed(true);
        let handed_over = Arc::new(AtomicUsize::new(0));
        let (to, count) = (disk.clone(), Arc::clone(&handed_over));
        let job = move || {
            let mut writes = WriteBehind::new(&*Os::real().spawner);
            for part in 0..20 {
                let memory = writes.memory();
                writes.write(to.clone(), part, arrived(memory, part)).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
            assert_eq!(writes.settle().unwrap() % 8, 0);
        };
        let thread = Os::real().spawner.spawn("hands-over", Box::new(job)).unwrap();
        while handed_over.load(Ordering::SeqCst) < MOST_WAITING {
            std::thread::yield_now();
        }
        // It would have handed over another one by now.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(handed_over.load(Ordering::SeqCst), MOST_WAITING);
        assert!(disk.0.written.lock().is_empty());
        disk.set_closed(false);
        thread.join().unwrap();
        assert_eq!(disk.0.written.lock().len(), 20);
    }

    #[test]
    fn part_that_is_not_written_ends_it_and_so_does_letting_go() {
        for os in threads() {
            let disk = Disk(Arc::new(Inner { fails_at: Some(3), ..Inner::default() }));
            let mut writes = WriteBehind::new(&*os.spawner);
            let mut hand_over = || {
                for part in 0..5 {
                    writes.write(disk.clone(), part, arrived(Vec::new(), part))?;
                }
                writes.settle()
            };
            assert!(matches!(hand_over(), Err(CopyError::Engine(_))));
            drop(writes);
            assert_eq!(Arc::strong_count(&disk.0), 1, "nobody has it any more");
        }
    }
}
