//! The ordered side of a memtable: a B+-tree whose readers take no lock.
//!
//! A B-link tree (Lehman and Yao 1981) with version counters: every node knows its right
//! neighbour and the first record that lies beyond it, so a reader that meets a node just split
//! moves right. Readers copy what they need and check that the version stayed even and the same.
//!
//! Always true:
//! 1. Nodes and records are never freed while the memtable lives: stale pointers stay valid.
//! 2. A node's records ascend; `low <= record < high`, the same for its children's.
//! 3. One node is locked at a time, except that a new right neighbour is not yet reachable.

use super::arena::Arena;
use super::record::{Record, Target};
use crate::fetch::{LINE_BYTES, fetch};
use os::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::cmp::Ordering as Order;

/// Slots per node: two searches of six steps beat deeper trees, and shifting stays in L1.
pub(super) const SLOTS: usize = 48;
/// Records whose leaves are asked for before the first of them is used.
const TOGETHER: usize = 4;

#[repr(C)]
struct Node {
    /// Odd while a writer is inside.
    version: AtomicU64,
    level: u32,
    count: AtomicU32,
    /// The first record beyond this node; null at the right edge.
    high: AtomicPtr<Record>,
    /// The head of `high`'s key, so that most comparisons with it touch no other line.
    high_head: AtomicU64,
    next: AtomicPtr<Node>,
    heads: [AtomicU64; SLOTS],
    /// Leaves: the records. Inner nodes: the least record below each child; slot 0 is not read.
    records: [AtomicPtr<Record>; SLOTS],
}

#[repr(C)]
struct Inner {
    node: Node,
    children: [AtomicPtr<Node>; SLOTS],
}

pub(super) struct Ordered {
    root: AtomicPtr<Node>,
}

/// A copy of one leaf's records from some place on.
pub(super) struct Batch {
    pub(super) records: [*const Record; SLOTS],
    pub(super) count: usize,
    next: *mut Node,
}

impl Batch {
    /// No place of it is null: memory that has to come zeroed costs more than filling it.
    pub(super) fn empty() -> Self {
        let nowhere = std::ptr::NonNull::<Record>::dangling().as_ptr().cast_const();
        Self { records: [nowhere; SLOTS], count: 0, next: std::ptr::null_mut() }
    }
}

enum Step {
    Here,
    To(*mut Node),
}

impl Ordered {
    /// Empty: the first insert makes the root, an idle table costs nothing.
    pub(super) fn new() -> Self {
        Self { root: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Adds a record that is not there yet.
    pub(super) fn insert(&self, arena: &Arena, record: *mut Record) {
        self.make_root(arena);
        let target = target_of(record);
        let leaf = self.descend(&target, 0, false);
        self.insert_at(arena, leaf, &target, record, std::ptr::null_mut());
    }

    /// Adds records that are not there yet: the memory of one's place comes while the place of another is looked for.
    pub(super) fn insert_all(&self, arena: &Arena, mut records: &[*mut Record]) {
        self.make_root(arena);
        while !records.is_empty() {
            let versions = versions_of_one_key(records);
            let some = if versions > 1 {
                self.insert_versions(arena, &records[..versions]);
                versions
            } else {
                let mut some = 1;
                while some < TOGETHER.min(records.len())
                    && versions_of_one_key(&records[some..]) == 1
                {
                    some += 1;
                }
                self.insert_scattered(arena, &records[..some]);
                some
            };
            records = &records[some..];
        }
    }

    /// Adds at most [`TOGETHER`] records whose places are anywhere.
    fn insert_scattered(&self, arena: &Arena, records: &[*mut Record]) {
        let mut leaves = [std::ptr::null_mut(); TOGETHER];
        for (record, leaf) in records.iter().zip(&mut leaves) {
            *leaf = self.descend(&target_of(*record), 0, false);
            fetch_leaf(*leaf);
        }
        // What belongs behind a leaf that was split since is put there.
        for (record, leaf) in records.iter().zip(leaves) {
            let target = target_of(*record);
            self.insert_at(arena, leaf, &target, *record, std::ptr::null_mut());
        }
    }

    /// Adds versions of one key, each newer than the one before it. The newest stands first: from its leaf the others are
    /// found to the right, but not the other way round.
    fn insert_versions(&self, arena: &Arena, records: &[*mut Record]) {
        let Some(newest) = records.last() else { return };
        let leaf = self.descend(&target_of(*newest), 0, false);
        for record in records.iter().rev() {
            self.insert_at(arena, leaf, &target_of(*record), *record, std::ptr::null_mut());
        }
    }

    fn make_root(&self, arena: &Arena) {
        if self.root.load(Ordering::Acquire).is_null() {
            let null = std::ptr::null_mut();
            // Where another thread was first, its root stays and ours is 900 unused bytes.
            let (release, acquire) = (Ordering::AcqRel, Ordering::Acquire);
            let _first = self.root.compare_exchange(null, new_node(arena, 0), release, acquire);
        }
    }

    /// Inserts into `node` or, where it was split meanwhile, a node right of it; splits go up
    /// one level at a time.
    fn insert_at(
        &self,
        arena: &Arena,
        node: *mut Node,
        target: &Target<'_>,
        record: *mut Record,
        child: *mut Node,
    ) {
        let mut node = node_ref(node);
        node.lock();
        while node.lies_beyond(target, false) {
            let next = node_ref(node.next.load(Ordering::Acquire));
            node.unlock();
            next.lock();
            node = next;
        }
        let position = node.search(target, false).unwrap_or(0);
        if node.len() < SLOTS {
            node.put(position, target.head, record, child);
            node.unlock();
            return;
        }
        let (separator, right) = node.split(arena, position, target.head, record, child);
        let raw: *mut Node = std::ptr::from_ref(node).cast_mut();
        if self.root.load(Ordering::Acquire) == raw {
            let root = new_node(arena, node.level + 1);
            node_ref(root).put(0, 0, separator, raw);
            node_ref(root).put(1, head_of(separator), separator, right);
            self.root.store(root, Ordering::Release);
            node.unlock();
            return;
        }
        let level = node.level + 1;
        node.unlock();
        let target = target_of(separator);
        let parent = self.descend(&target, level, false);
        self.insert_at(arena, parent, &target, separator, right);
    }

    /// The node of `level` that covers `target`; with `strict`, the one with the greatest
    /// record below it.
    fn descend(&self, target: &Target<'_>, level: u32, strict: bool) -> *mut Node {
        let mut at = self.root.load(Ordering::Acquire);
        loop {
            let node = node_ref(at);
            let step = node.read(|| {
                if node.lies_beyond(target, strict) {
                    return Some(Step::To(node.next.load(Ordering::Acquire)));
                }
                if node.level == level {
                    return Some(Step::Here);
                }
                let slot = node.search(target, strict)?.checked_sub(1)?;
                Some(Step::To(inner(at).children[slot].load(Ordering::Acquire)))
            });
            match step {
                Step::Here => return at,
                Step::To(next) => at = next,
            }
        }
    }

    /// Fills `batch` with records at or behind `target`, ascending; empty at the end.
    pub(super) fn forward(&self, target: &Target<'_>, batch: &mut Batch) {
        if self.root.load(Ordering::Acquire).is_null() {
            return;
        }
        (batch.count, batch.next) = self.in_leaf(target, false, |leaf| {
            // Strict: the number of records before the target, so the target itself is taken.
            copy_slots(leaf, leaf.search(target, true)?, &mut batch.records)
        });
        if batch.count == 0 {
            Self::forward_more(batch);
        }
    }

    /// Fills `batch` with what follows it.
    pub(super) fn forward_more(batch: &mut Batch) {
        batch.count = 0;
        while batch.count == 0 && !batch.next.is_null() {
            let leaf = node_ref(batch.next);
            (batch.count, batch.next) = leaf.read(|| copy_slots(leaf, 0, &mut batch.records));
        }
    }

    /// Fills `batch` with records strictly before `target`, ascending, the last of them being
    /// the greatest; empty where there are none.
    pub(super) fn backward(&self, target: &Target<'_>, batch: &mut Batch) {
        if self.root.load(Ordering::Acquire).is_null() {
            return;
        }
        batch.count = self.in_leaf(target, true, |leaf| {
            let count = leaf.search(target, true)?;
            for slot in 0..count {
                batch.records[slot] = non_null(leaf.records[slot].load(Ordering::Acquire))?;
            }
            Some(count)
        });
    }

    /// Looks at the leaf that covers `target`. A leaf may be split between the descent and the
    /// look; then what is looked for is in a leaf right of it.
    fn in_leaf<T>(
        &self,
        target: &Target<'_>,
        strict: bool,
        mut look: impl FnMut(&Node) -> Option<T>,
    ) -> T {
        let mut leaf = node_ref(self.descend(target, 0, strict));
        loop {
            let seen = leaf.read(|| {
                if leaf.lies_beyond(target, strict) {
                    return Some(Err(leaf.next.load(Ordering::Acquire)));
                }
                look(leaf).map(Ok)
            });
            match seen {
                Ok(seen) => return seen,
                Err(next) => leaf = node_ref(next),
            }
        }
    }
}

/// Copies a leaf's records from slot `first` on; says how many, and the next leaf.
fn copy_slots(
    leaf: &Node,
    first: usize,
    records: &mut [*const Record; SLOTS],
) -> Option<(usize, *mut Node)> {
    let count = leaf.len();
    for slot in first..count {
        records[slot - first] = non_null(leaf.records[slot].load(Ordering::Acquire))?;
    }
    Some((count.checked_sub(first)?, leaf.next.load(Ordering::Acquire)))
}

fn non_null(record: *mut Record) -> Option<*const Record> {
    (!record.is_null()).then_some(record.cast_const())
}

fn head_of(record: *mut Record) -> u64 {
    // SAFETY: records live as long as the memtable.
    crate::message::head(unsafe { &*record }.key())
}

/// Where a record belongs that the caller has made in the memtable's arena.
fn target_of<'a>(record: *mut Record) -> Target<'a> {
    // SAFETY: records live as long as the memtable.
    Target::new(Some(unsafe { &*record }.entry_place()))
}

/// How many of the first records are versions of one key, each newer than the one before it.
fn versions_of_one_key(records: &[*mut Record]) -> usize {
    let follows = |pair: &&[*mut Record]| {
        // SAFETY: records live as long as the memtable.
        let (older, newer) = unsafe { (&*pair[0], &*pair[1]) };
        older.ts() < newer.ts() && older.key() == newer.key()
    };
    1 + records.windows(2).take_while(follows).count()
}

fn fetch_leaf(leaf: *const Node) {
    let bytes: *const u8 = leaf.cast();
    (0..size_of::<Node>()).step_by(LINE_BYTES).for_each(|at| fetch(bytes.wrapping_add(at)));
}

fn node_ref<'a>(node: *mut Node) -> &'a Node {
    debug_assert!(!node.is_null());
    // SAFETY: nodes are made by `new_node` in the arena, which outlives every use (invariant 1).
    unsafe { &*node }
}

fn inner<'a>(node: *mut Node) -> &'a Inner {
    debug_assert!(node_ref(node).level > 0);
    // SAFETY: nodes above level 0 are allocated as `Inner`, whose first field is the node.
    unsafe { &*node.cast::<Inner>() }
}

fn new_node(arena: &Arena, level: u32) -> *mut Node {
    let size = if level == 0 { size_of::<Node>() } else { size_of::<Inner>() };
    let node: *mut Node = arena.allocate_zeroed(size).cast();
    // SAFETY: fresh zeroed memory of the right size; all-zero is a valid empty node, and only
    // the level differs from zero.
    unsafe { (&raw mut (*node).level).write(level) };
    node
}

impl Node {
    fn len(&self) -> usize {
        (self.count.load(Ordering::Relaxed) as usize).min(SLOTS)
    }

    fn lock(&self) {
        let mut tries = 0;
        loop {
            let version = self.version.load(Ordering::Relaxed);
            if version.is_multiple_of(2)
                && self
                    .version
                    .compare_exchange_weak(
                        version,
                        version + 1,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                // Readers that see our stores must see the odd version too.
                fence(Ordering::Release);
                return;
            }
            wait(&mut tries);
        }
    }

    fn unlock(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Release);
    }

    /// Runs `look` until nobody wrote meanwhile. `look` returns `None` where it met a state
    /// that only a writer at work leaves.
    fn read<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let mut tries = 0;
        loop {
            let before = self.version.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let seen = look();
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == before
                    && let Some(seen) = seen
                {
                    return seen;
                }
            }
            wait(&mut tries);
        }
    }

    /// The target lies right of this node. `strict` asks for records before the target, so a
    /// node that ends exactly there is the right one.
    fn lies_beyond(&self, target: &Target<'_>, strict: bool) -> bool {
        let high = self.high.load(Ordering::Acquire);
        // SAFETY: null or a record of the arena.
        unsafe { high.as_ref() }.is_some_and(|high| {
            let order = target.compare(self.high_head.load(Ordering::Relaxed), high);
            order == Order::Greater || (order == Order::Equal && !strict)
        })
    }

    /// How many slots lie before the target (`strict`), or before or at it. An inner node's
    /// first slot always counts.
    fn search(&self, target: &Target<'_>, strict: bool) -> Option<usize> {
        let mut low = usize::from(self.level > 0);
        let mut high = self.len();
        if low > high {
            return None;
        }
        // Ascending loads: behind the last slot is where the next record goes most often.
        if high > low && self.slot_is_before(high - 1, target, strict)? {
            return Some(high);
        }
        if target.place.is_some() && low < high {
            // Versions of one key stand together, the newest first: a new one goes before all of them, which is seen without
            // comparing it with each.
            let before = |head: &AtomicU64| head.load(Ordering::Relaxed) < target.head;
            let first = low + self.heads[low..high].partition_point(before);
            if first == high || !self.slot_is_before(first, target, strict)? {
                return Some(first);
            }
            low = first + 1;
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.slot_is_before(middle, target, strict)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    #[inline]
    fn slot_is_before(&self, slot: usize, target: &Target<'_>, strict: bool) -> Option<bool> {
        // Most heads differ: then the record need not be there, as whoever reads without the lock looks at the
        // version afterwards.
        let head = self.heads[slot].load(Ordering::Relaxed);
        if target.place.is_some() && head != target.head {
            return Some(head < target.head);
        }
        // SAFETY: null or a record of the arena.
        let record = unsafe { self.records[slot].load(Ordering::Acquire).as_ref() }?;
        let order = target.compare(head, record);
        Some(order == Order::Greater || (order == Order::Equal && !strict))
    }

    /// Opens a gap at `position` and fills it; the caller holds the lock or owns the node.
    fn put(&self, position: usize, head: u64, record: *mut Record, child: *mut Node) {
        let count = self.len();
        for slot in (position..count).rev() {
            self.copy_slot(slot, self, slot + 1);
        }
        self.heads[position].store(head, Ordering::Relaxed);
        self.records[position].store(record, Ordering::Release);
        if self.level > 0 {
            inner(std::ptr::from_ref(self).cast_mut()).children[position]
                .store(child, Ordering::Release);
        }
        self.count.store(count as u32 + 1, Ordering::Release);
    }

    fn copy_slot(&self, from: usize, node: &Self, to: usize) {
        node.heads[to].store(self.heads[from].load(Ordering::Relaxed), Ordering::Relaxed);
        node.records[to].store(self.records[from].load(Ordering::Relaxed), Ordering::Release);
        if self.level > 0 {
            let child =
                inner(std::ptr::from_ref(self).cast_mut()).children[from].load(Ordering::Relaxed);
            inner(std::ptr::from_ref(node).cast_mut()).children[to].store(child, Ordering::Release);
        }
    }

    /// Splits this full, locked node and inserts; returns the right half and its least record.
    /// At the right edge an append leaves the left half full: ascending loads fill their nodes.
    fn split(
        &self,
        arena: &Arena,
        position: usize,
        head: u64,
        record: *mut Record,
        child: *mut Node,
    ) -> (*mut Record, *mut Node) {
        let count = self.len();
        let raw = new_node(arena, self.level);
        let right = node_ref(raw);
        let append = position == count && self.next.load(Ordering::Relaxed).is_null();
        let cut = if append { count } else { count / 2 };
        for slot in cut..count {
            self.copy_slot(slot, right, slot - cut);
        }
        right.count.store((count - cut) as u32, Ordering::Relaxed);
        let separator = if append { record } else { self.records[cut].load(Ordering::Relaxed) };
        right.high_head.store(self.high_head.load(Ordering::Relaxed), Ordering::Relaxed);
        right.high.store(self.high.load(Ordering::Relaxed), Ordering::Relaxed);
        right.next.store(self.next.load(Ordering::Relaxed), Ordering::Relaxed);
        self.count.store(cut as u32, Ordering::Relaxed);
        if append || position > cut {
            right.put(position - cut, head, record, child);
        } else {
            self.put(position, head, record, child);
        }
        self.next.store(raw, Ordering::Release);
        self.high_head.store(head_of(separator), Ordering::Relaxed);
        self.high.store(separator, Ordering::Release);
        (separator, raw)
    }
}

fn wait(tries: &mut u32) {
    *tries += 1;
    if (*tries).is_multiple_of(64) {
        os::sync::yield_now();
    } else {
        os::sync::spin_loop();
    }
}
