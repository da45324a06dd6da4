//! A stable sort that can be stopped.
//!
//! The standard library's sort takes a comparison that cannot fail, and runs for seconds over
//! millions of values. This one merges runs of positions and polls as it goes.
//!
//! Always true: equal items keep their order; items are moved once, at the end, where they are. What it
//! takes beside the items is some bytes for each, charged whether they fit or not: who spills for want of
//! memory sorts first.

use crate::{BYTES_PER_UNIT, Part, charge_regardless, poll, poll_work};
use errors::Result;
use std::cmp::Ordering;

/// Slices of at most this many items are sorted by the standard library, which cannot be
/// interrupted.
const MAX_STD_SORT: usize = 16;

/// The same for keys: nearly every comparison is of two integers, so more of them fit between two
/// polls.
const MAX_STD_SORT_BY_KEY: usize = 256;

/// Units of work charged for each item of such a slice: half of the others, or the logarithm of
/// their number.
const COMPARISONS_PER_ITEM: usize = 8;

/// The items in order.
pub fn sort_by<T>(
    mut items: Vec<T>,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<Vec<T>> {
    if items.len() <= MAX_STD_SORT {
        items.sort_by(compare);
        poll()?;
        return Ok(items);
    }
    let mut order = sorted_order(&items, &mut compare)?;
    permute(&mut items, &mut order, |from| from);
    Ok(items)
}

/// The items in the order of their keys' bytes; `compare` says the same, and decides between equal keys.
/// A key's first bytes, less those that all keys share, lie side by side in memory and decide nearly all;
/// the keys do not.
pub fn sort_by_key_bytes<T>(
    mut items: Vec<T>,
    key: impl Fn(&T) -> &[u8],
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<Vec<T>> {
    let shared = shared_bytes(&items, &key)?;
    let _memory = charge_regardless(Part::Values, items.len() * 2 * size_of::<(u64, u32)>());
    let mut order: Vec<(u64, u32)> =
        (0..).zip(&items).map(|(at, item)| (first_bytes(&key(item)[shared..]), at)).collect();
    let mut compare = |a: (u64, u32), b: (u64, u32)| {
        a.0.cmp(&b.0).then_with(|| compare(&items[a.1 as usize], &items[b.1 as usize]))
    };
    let mut scratch = vec![(0, 0); order.len()];
    sort_positions(&mut order, &mut scratch, MAX_STD_SORT_BY_KEY, &mut compare)?;
    drop(scratch);
    permute(&mut items, &mut order, |(_, from)| from);
    Ok(items)
}

/// How many bytes all keys begin with.
fn shared_bytes<T>(items: &[T], key: impl Fn(&T) -> &[u8]) -> Result<usize> {
    let Some((first, others)) = items.split_first() else { return Ok(0) };
    let mut shared = key(first);
    for item in others {
        poll_work(1 + shared.len() / BYTES_PER_UNIT)?;
        let key = key(item);
        if !key.starts_with(shared) {
            let same = shared.iter().zip(key).take_while(|(a, b)| a == b).count();
            shared = &shared[..same];
        }
    }
    Ok(shared.len())
}

/// The first bytes of a key as a number: not greater than those of a greater key.
fn first_bytes(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = key.len().min(first.len());
    first[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(first)
}

/// The items' positions in the items' order.
pub fn sorted_order<T>(
    items: &[T],
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<Vec<u32>> {
    let len = u32::try_from(items.len()).expect("four thousand million items do not fit the bound");
    let _memory = charge_regardless(Part::Values, items.len() * 2 * size_of::<u32>());
    let mut order: Vec<u32> = (0..len).collect();
    let mut scratch = vec![0; items.len()];
    let mut compare = |a: u32, b: u32| compare(&items[a as usize], &items[b as usize]);
    sort_positions(&mut order, &mut scratch, MAX_STD_SORT, &mut compare)?;
    Ok(order)
}

/// Permutes `items` in place: position `i` receives the item whose old position `from(&mut
/// order[i])` holds.
fn permute<T, P>(items: &mut [T], order: &mut [P], from: impl Fn(&mut P) -> &mut u32) {
    for start in 0..items.len() {
        // Along one cycle: each swap brings the item of `at` there, and leaves what stood there where the
        // cycle goes on.
        let mut at = start;
        loop {
            let next = std::mem::replace(from(&mut order[at]), at as u32) as usize;
            if next == start {
                break;
            }
            items.swap(at, next);
            at = next;
        }
    }
}

/// Halves first, so that what is merged is in the processor's caches still.
fn sort_positions<P: Copy>(
    order: &mut [P],
    scratch: &mut [P],
    max_std_sort: usize,
    compare: &mut impl FnMut(P, P) -> Ordering,
) -> Result<()> {
    if order.len() <= max_std_sort {
        order.sort_by(|a, b| compare(*a, *b));
        return poll_work(order.len() * COMPARISONS_PER_ITEM);
    }
    let middle = order.len() / 2;
    let (left, right) = order.split_at_mut(middle);
    sort_positions(left, &mut scratch[..middle], max_std_sort, compare)?;
    sort_positions(right, &mut scratch[middle..], max_std_sort, compare)?;
    if compare(order[middle - 1], order[middle]).is_le() {
        // In order as they stand.
        return Ok(());
    }
    scratch.copy_from_slice(order);
    let (mut left, mut right) = scratch.split_at(middle);
    for slot in order {
        poll()?;
        let take_right = match (left.first(), right.first()) {
            (Some(a), Some(b)) => compare(*a, *b).is_gt(),
            (None, _) => true,
            (_, None) => false,
        };
        let run = if take_right { &mut right } else { &mut left };
        if let Some((first, rest)) = run.split_first() {
            *slot = *first;
            *run = rest;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Account, Interrupt, enter};
    use errors::{Code, Error};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn sorts_as_the_standard_library_and_keeps_equal_items_in_place() {
        let mut state = 1_u64;
        for len in [0, 1, 2, 3, 15, 16, 17, 31, 33, 64, 100, 255, 257, 1000, 4097, 40_000] {
            let items: Vec<(u64, usize)> = (0..len)
                .map(|at| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (state >> 58, at)
                })
                .collect();
            let mut expected = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            let sorted = sort_by(items.clone(), |a, b| a.0.cmp(&b.0)).expect("no scope");
            assert_eq!(sorted, expected, "{len}");
            // Keys that differ in their ninth byte and later at the earliest, and equal ones.
            let keys = items.iter().map(|(n, at)| (format!("as all: {:02}", n / 3), *at));
            let keys: Vec<(String, usize)> = keys.collect();
            let mut expected = keys.clone();
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            let sorted = sort_by_key_bytes(keys, |item| item.0.as_bytes(), |a, b| a.0.cmp(&b.0));
            assert_eq!(sorted.expect("no scope"), expected, "{len}, by bytes");
        }
    }

    #[test]
    fn keys_of_any_bytes_are_sorted_as_bytes() {
        let keys: [&[u8]; 9] = [
            b"",
            b"\0",
            b"\0\0\x01",
            b"a",
            b"a\0",
            b"abcdefgh",
            b"abcdefgh\0",
            b"abcdefghi",
            b"\xff\xff",
        ];
        let shuffled = (0..900).map(|n| keys[n * 7 % keys.len()]).collect();
        let sorted = sort_by_key_bytes(shuffled, |key| key, Ord::cmp).expect("no scope");
        assert_eq!(sorted, (0..900).map(|n| keys[n / 100]).collect::<Vec<_>>());
        let shared = |some: &[&[u8]]| shared_bytes(some, |key| key).expect("no scope");
        assert_eq!(
            [shared(&keys), shared(&keys[5..8]), shared(&keys[3..8]), shared(&[])],
            [0, 8, 1, 0]
        );
    }

    struct FiresAfter(AtomicU32);

    impl Interrupt for FiresAfter {
        fn check(&self) -> Result<()> {
            if self.0.fetch_sub(1, Relaxed) > 1 {
                return Ok(());
            }
            Err(Error::new(Code::INTERRUPTED, "operation was interrupted"))
        }
    }

    #[test]
    fn a_sort_stops_within_one_period_of_comparisons() {
        let _scope = enter(Arc::new(FiresAfter(AtomicU32::new(10))), Account::new(1 << 30));
        let mut compared = 0_u32;
        let items: Vec<u32> = (0..100_000_u32).map(|n| n.wrapping_mul(2654435761)).collect();
        let stopped = sort_by(items, |a, b| {
            compared += 1;
            a.cmp(b)
        });
        assert_eq!(stopped.expect_err("it is stopped").code(), Code::INTERRUPTED);
        assert!(compared <= 10 * 256, "{compared}");
    }
}
