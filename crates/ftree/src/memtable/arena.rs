//! Memory of one memtable: bump allocation for many threads, freed all at once.
//!
//! Always true: chunks never move and are freed only with the arena, so a pointer handed out is
//! valid as long as the arena lives; [`Arena::bytes`] is what was allocated, its owner included, and it
//! is taken from the cache's bound before.
//!
//! Threads that bump one counter pass its cache line, and those of records side by side, to and fro.
//! In a large arena each stripe takes a block of its own and small pieces out of that.
//!
//! Chunks are not zeroed: an allocator zeroes a large one by giving its pages back to the kernel,
//! which then maps and clears them again, one fault each.

use cachetable::{CacheTable, MemoryKind, Reservation};
use os::Padded;
use os::sync::Mutex;
use os::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::sync::Arc;

/// Idle dictionaries are many: the first chunk is small, later ones double up to [`LARGEST`].
const FIRST: usize = 2 << 10;
const LARGEST: usize = 1 << 20;
const ALIGN: usize = 16;
/// What a stripe takes at once, and the largest piece that is taken out of it.
const BLOCK: usize = 16 << 10;
const PIECE: usize = 2 << 10;
/// Room for a block's own [`Chunk`] at its beginning.
const BLOCK_HEAD: usize = 64;
const BLOCK_STRIPES: usize = 8;

/// Each stripe's block, a [`Chunk`] inside a chunk; null before its first piece.
type Stripes = [Padded<AtomicPtr<Chunk>>; BLOCK_STRIPES];

struct Chunk {
    data: *mut u8,
    capacity: usize,
    used: AtomicUsize,
}

pub(super) struct Arena {
    current: AtomicPtr<Chunk>,
    /// Null while the arena is small.
    stripes: AtomicPtr<Stripes>,
    /// Every chunk, for freeing; the lock also serialises growing.
    chunks: Mutex<Chunks>,
    bytes: AtomicU64,
    cache: Arc<CacheTable>,
}

struct Chunks {
    all: Vec<*mut Chunk>,
    memory: Reservation,
}

// SAFETY: chunks are owned by the arena; their memory is handed out in disjoint pieces, and the
// shared fields are atomics or under the lock.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An empty one, for an owner that takes `beside` bytes itself.
    pub(super) fn new(cache: &Arc<CacheTable>, beside: usize) -> Self {
        let beside = beside as u64;
        let memory = cache.reserve(MemoryKind::Memtables, beside);
        Self {
            current: AtomicPtr::new(std::ptr::null_mut()),
            stripes: AtomicPtr::new(std::ptr::null_mut()),
            chunks: Mutex::new(Chunks { all: Vec::new(), memory }),
            bytes: AtomicU64::new(beside),
            cache: Arc::clone(cache),
        }
    }

    /// What the arena took from the allocator.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// `size` zeroed bytes, aligned to 16, for as long as the arena lives.
    pub(super) fn allocate_zeroed(&self, size: usize) -> *mut u8 {
        let place = self.allocate(size);
        // SAFETY: `allocate` gave `size` bytes that nobody else has.
        unsafe { place.write_bytes(0, size) };
        place
    }

    /// `size` bytes holding anything, aligned to 16, for as long as the arena lives.
    pub(super) fn allocate(&self, size: usize) -> *mut u8 {
        let size = size.next_multiple_of(ALIGN);
        // SAFETY: null, or made by `add_stripes` in memory that lives as long as the arena.
        match unsafe { self.stripes.load(Ordering::Acquire).as_ref() } {
            Some(stripes) if size <= PIECE => {
                self.allocate_in(&stripes[os::stripe() % BLOCK_STRIPES], size)
            }
            _ => self.allocate_shared(size),
        }
    }

    /// A piece of a stripe's block, or of its next one.
    fn allocate_in(&self, stripe: &AtomicPtr<Chunk>, size: usize) -> *mut u8 {
        loop {
            let current = stripe.load(Ordering::Acquire);
            if let Some(place) = take(current, size) {
                return place;
            }
            let start = self.allocate_shared(BLOCK);
            let block: *mut Chunk = start.cast();
            let used = AtomicUsize::new(BLOCK_HEAD);
            // SAFETY: `BLOCK` bytes that nobody else has, aligned to 16, begin with room for it.
            unsafe { block.write(Chunk { data: start, capacity: BLOCK, used }) };
            // Where another thread of the stripe was first, its block is used and ours is not.
            let (release, acquire) = (Ordering::AcqRel, Ordering::Acquire);
            let _first = stripe.compare_exchange(current, block, release, acquire);
        }
    }

    fn allocate_shared(&self, size: usize) -> *mut u8 {
        loop {
            let current = self.current.load(Ordering::Acquire);
            if let Some(place) = take(current, size) {
                return place;
            }
            if let Some(place) = self.grow(current, size) {
                return place;
            }
        }
    }

    /// Adds a chunk unless another thread just did. A large piece gets its own chunk, and the
    /// current one stays current.
    fn grow(&self, seen: *mut Chunk, size: usize) -> Option<*mut u8> {
        let mut chunks = self.chunks.lock();
        if self.current.load(Ordering::Acquire) != seen {
            return None;
        }
        let usual = FIRST << chunks.all.len().min(9);
        if size > usual / 4 && size > FIRST {
            return take(self.add(&mut chunks, size), size);
        }
        let chunk = self.add(&mut chunks, usual.min(LARGEST).max(size));
        let place = take(chunk, size);
        if usual >= LARGEST && self.stripes.load(Ordering::Relaxed).is_null() {
            self.add_stripes(chunk);
        }
        self.current.store(chunk, Ordering::Release);
        place
    }

    /// Gives stripes their blocks from now on. In the chunk: idle dictionaries are many.
    fn add_stripes(&self, chunk: *mut Chunk) {
        let room = size_of::<Stripes>() + align_of::<Stripes>();
        let Some(start) = take(chunk, room) else { return };
        // SAFETY: `room` bytes that nobody else has hold it wherever its alignment begins.
        let stripes = unsafe {
            let stripes: *mut Stripes = start.add(start.align_offset(align_of::<Stripes>())).cast();
            stripes.write(std::array::from_fn(no_blocks));
            stripes
        };
        self.stripes.store(stripes, Ordering::Release);
    }

    fn add(&self, chunks: &mut Chunks, capacity: usize) -> *mut Chunk {
        let bytes = self.bytes.load(Ordering::Relaxed) + capacity as u64;
        self.cache.resize(&mut chunks.memory, bytes);
        let chunk = new_chunk(capacity);
        chunks.all.push(chunk);
        self.bytes.store(bytes, Ordering::Relaxed);
        chunk
    }
}

fn no_blocks(_: usize) -> Padded<AtomicPtr<Chunk>> {
    Padded(AtomicPtr::new(std::ptr::null_mut()))
}

fn take(chunk: *mut Chunk, size: usize) -> Option<*mut u8> {
    if chunk.is_null() {
        return None;
    }
    // SAFETY: non-null chunks come from `new_chunk` and live as long as the arena.
    let chunk = unsafe { &*chunk };
    // Checked first, so that failing callers do not push the counter towards overflow.
    if chunk.used.load(Ordering::Relaxed) + size > chunk.capacity {
        return None;
    }
    debug_assert!(size.is_multiple_of(ALIGN), "what is handed out stays aligned");
    let at = chunk.used.fetch_add(size, Ordering::Relaxed);
    if at + size > chunk.capacity {
        return None;
    }
    // SAFETY: `at + size` lies within the chunk's allocation.
    Some(unsafe { chunk.data.add(at) })
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGN).expect("chunk sizes are far below isize::MAX")
}

fn new_chunk(capacity: usize) -> *mut Chunk {
    let layout = layout(capacity);
    // SAFETY: the layout has a size above zero.
    let data = unsafe { alloc(layout) };
    if data.is_null() {
        handle_alloc_error(layout);
    }
    Box::into_raw(Box::new(Chunk { data, capacity, used: AtomicUsize::new(0) }))
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks.get_mut().all.drain(..) {
            // SAFETY: every chunk was made by `new_chunk` with this layout, is freed once, and
            // nobody holds pointers into it any more: they all borrow from the arena's owner.
            unsafe {
                let chunk = Box::from_raw(chunk);
                dealloc(chunk.data, layout(chunk.capacity));
            }
        }
    }
}
