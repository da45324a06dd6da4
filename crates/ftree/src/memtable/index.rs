//! Hash index of a memtable: from a key to its newest version, without ordering.
//!
//! Open addressing in 16 shards; a slot holds a record's address with 16 bits of the key's hash
//! above it, so that a miss touches one cache line and follows no pointer.
//!
//! Always true: readers take no lock; writers of one shard exclude each other; a table that was
//! outgrown stays as it was until the memtable goes, so a reader in it misses only records
//! that were inserted after it looked, whose commits it cannot see anyway.

use super::arena::Arena;
use super::record::Record;
use crate::KeyHasher;
use crate::fetch::{LINE_BYTES, fetch};
use os::sync::Mutex;
use os::sync::atomic::{AtomicPtr, Ordering};

const SHARDS: usize = 16;
const SHARD_SHIFT: u32 = 60;
const TAG_SHIFT: u32 = 48;
const ADDRESS: usize = (1 << TAG_SHIFT) - 1;
const FIRST_SLOTS: usize = 16;
/// So many slots ahead of use a record is asked for when a table grows.
const SLOTS_AHEAD: usize = 8;

#[repr(C)]
struct Table {
    mask: usize,
}

type Slot = AtomicPtr<Record>;

/// What writers of one shard hold, on a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Shard(Mutex<Totals>);

/// What went into one shard.
#[derive(Default)]
struct Totals {
    keys: usize,
    entries: u64,
    weight: u64,
}

pub(super) struct Index {
    /// Apart from what writers change all the time, so that readers keep the lines.
    tables: [AtomicPtr<Table>; SHARDS],
    shards: [Shard; SHARDS],
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            tables: [const { AtomicPtr::new(std::ptr::null_mut()) }; SHARDS],
            shards: std::array::from_fn(|_| Shard::default()),
        }
    }

    /// The newest version of `key`.
    pub(super) fn find(&self, key: &[u8], hash: u64) -> Option<&Record> {
        let table = self.tables[shard_of(hash)].load(Ordering::Acquire);
        let slot = probe(table, key, hash)?;
        // SAFETY: a slot's address is null or a record of the memtable's arena.
        let record = unsafe { address(slot.load(Ordering::Acquire)).as_ref() }?;
        // A slot that was free when it was probed may have got another key since.
        (record.key() == key).then_some(record)
    }

    /// Asks for the memory where a key of this hash is looked for.
    pub(super) fn fetch(&self, hash: u64) {
        let table = self.tables[shard_of(hash)].load(Ordering::Acquire);
        if !table.is_null() {
            let slots = slots(table);
            fetch(std::ptr::from_ref(&slots[hash as usize & (slots.len() - 1)]).cast());
        }
    }

    /// Links a record in; false where the same version is there already. A duplicate's memory
    /// stays unused in the arena.
    pub(super) fn insert(
        &self,
        arena: &Arena,
        hasher: &KeyHasher,
        hash: u64,
        new: *mut Record,
        weight: u64,
    ) -> bool {
        let shard = shard_of(hash);
        let mut totals = self.shards[shard].0.lock();
        let linked = Self::link(&self.tables[shard], &mut totals, (arena, hasher), hash, new);
        totals.entries += u64::from(linked);
        totals.weight += if linked { weight } else { 0 };
        linked
    }

    /// Entries and their weight, summed over the shards.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(entries, weight), shard| {
            let totals = shard.0.lock();
            (entries + totals.entries, weight + totals.weight)
        })
    }

    fn link(
        place: &AtomicPtr<Table>,
        totals: &mut Totals,
        shared: (&Arena, &KeyHasher),
        hash: u64,
        new: *mut Record,
    ) -> bool {
        let mut table = place.load(Ordering::Acquire);
        // SAFETY: the caller made the record in this memtable's arena.
        let record = unsafe { &*new };
        if table.is_null() || totals.keys * 4 >= capacity(table) * 3 {
            table = grow(shared, table);
            place.store(table, Ordering::Release);
        }
        let slot = probe(table, record.key(), hash).expect("a grown table has free slots");
        let newest = address(slot.load(Ordering::Acquire));
        // SAFETY: as in `find`.
        let Some(mut newer) = (unsafe { newest.as_ref() }) else {
            slot.store(tagged(new, hash), Ordering::Release);
            totals.keys += 1;
            debug_assert!(totals.keys < capacity(table), "a probe always ends at a free slot");
            return true;
        };
        if newer.ts() < record.ts() {
            record.older.store(newest, Ordering::Relaxed);
            slot.store(tagged(new, hash), Ordering::Release);
            return true;
        }
        // Replay may bring an old version after a newer one: it goes to its place in the chain.
        while newer.ts() != record.ts() {
            match newer.older() {
                Some(next) if next.ts() >= record.ts() => newer = next,
                _ => {
                    debug_assert!(newer.ts() > record.ts(), "versions stand newest first");
                    record.older.store(newer.older.load(Ordering::Acquire), Ordering::Relaxed);
                    newer.older.store(new, Ordering::Release);
                    return true;
                }
            }
        }
        false
    }
}

fn shard_of(hash: u64) -> usize {
    (hash >> SHARD_SHIFT) as usize % SHARDS
}

fn tag(hash: u64) -> usize {
    // Other bits than those that choose shard and slot.
    (hash >> 40) as usize & 0xffff
}

fn tagged(record: *mut Record, hash: u64) -> *mut Record {
    record.map_addr(|address| {
        assert!(address <= ADDRESS, "user addresses have 48 bits");
        address | tag(hash) << TAG_SHIFT
    })
}

fn address(slot: *mut Record) -> *mut Record {
    slot.map_addr(|address| address & ADDRESS)
}

fn capacity(table: *mut Table) -> usize {
    // SAFETY: tables are null or made by `new_table`.
    unsafe { table.as_ref() }.map_or(0, |table| table.mask + 1)
}

fn slots<'a>(table: *mut Table) -> &'a [Slot] {
    // SAFETY: `new_table` put `mask + 1` zeroed slots right behind the header, and the arena
    // outlives every use: tables are reached through the memtable only.
    unsafe { std::slice::from_raw_parts(table.add(1).cast::<Slot>(), (*table).mask + 1) }
}

fn new_table(arena: &Arena, count: usize) -> *mut Table {
    assert!(count.is_power_of_two(), "a mask needs a power of two");
    let table: *mut Table =
        arena.allocate_zeroed(size_of::<Table>() + count * size_of::<Slot>()).cast();
    // SAFETY: the arena gave zeroed room for the header and the slots behind it.
    unsafe { table.write(Table { mask: count - 1 }) };
    table
}

fn grow((arena, hasher): (&Arena, &KeyHasher), old: *mut Table) -> *mut Table {
    if old.is_null() {
        return new_table(arena, FIRST_SLOTS);
    }
    let new = new_table(arena, capacity(old) * 2);
    let held = slots(old);
    for (at, slot) in held.iter().enumerate() {
        // Records are scattered over memory.
        if let Some(ahead) = held.get(at + SLOTS_AHEAD) {
            let record: *const u8 = address(ahead.load(Ordering::Relaxed)).cast();
            fetch(record);
            fetch(record.wrapping_add(LINE_BYTES));
        }
        let held = slot.load(Ordering::Relaxed);
        // SAFETY: as in `find`.
        if let Some(record) = unsafe { address(held).as_ref() } {
            let hash = hasher.hash(record.key());
            let free = probe(new, record.key(), hash).expect("twice as large");
            free.store(held, Ordering::Relaxed);
        }
    }
    new
}

/// The slot that holds `key`, else the free one where it would go.
fn probe<'a>(table: *mut Table, key: &[u8], hash: u64) -> Option<&'a Slot> {
    if table.is_null() {
        return None;
    }
    let slots = slots(table);
    let mask = slots.len() - 1;
    let tag = tag(hash);
    let mut at = hash as usize & mask;
    for _ in 0..slots.len() {
        let held = slots[at].load(Ordering::Acquire);
        if held.is_null() {
            return Some(&slots[at]);
        }
        if held.addr() >> TAG_SHIFT == tag {
            // SAFETY: non-null addresses are records of the arena.
            let record = unsafe { &*address(held) };
            if record.key() == key {
                return Some(&slots[at]);
            }
        }
        at = (at + 1) & mask;
    }
    None
}
