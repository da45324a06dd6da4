//! A stable sort that can be stopped.
//!
//! The standard library's sort takes a comparison that cannot fail, and runs for seconds over
//! millions of values. This one merges runs of positions and polls as it goes.
//!
//! Always true: equal items keep their order; items are moved once, at the end, where they are. What it
//! takes beside the items is some bytes for each, charged whether they fit or not: who spills for want of
//! memory sorts first.

use crate::{Part, charge_regardless, poll, poll_work};
use errors::Result;
use std::cmp::Ordering;

/// So few items are left to the standard library: it compares each with each at most.
const FEW: usize = 16;

/// The items in order.
pub fn sort_by<T>(
    mut items: Vec<T>,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<Vec<T>> {
    if items.len() <= FEW {
        items.sort_by(compare);
        poll()?;
        return Ok(items);
    }
    let order = sorted_order(&items, &mut compare)?;
    let _memory = charge_regardless(Part::Values, items.len() * 3 * size_of::<u32>());
    let mut places = vec![0; items.len()];
    for (place, from) in order.into_iter().enumerate() {
        places[from as usize] = place;
    }
    for at in 0..items.len() {
        // Each swap brings one item to its place.
        while places[at] != at {
            let place = places[at];
            items.swap(at, place);
            places.swap(at, place);
        }
    }
    Ok(items)
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
    sort_positions(&mut order, &mut scratch, &mut compare)?;
    Ok(order)
}

/// Halves first, so that what is merged is in the processor's caches still.
fn sort_positions(
    order: &mut [u32],
    scratch: &mut [u32],
    compare: &mut impl FnMut(u32, u32) -> Ordering,
) -> Result<()> {
    if order.len() <= FEW {
        order.sort_by(|a, b| compare(*a, *b));
        return poll_work(order.len() * order.len() / 2);
    }
    let middle = order.len() / 2;
    let (left, right) = order.split_at_mut(middle);
    sort_positions(left, &mut scratch[..middle], compare)?;
    sort_positions(right, &mut scratch[middle..], compare)?;
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
        for len in [0, 1, 2, 3, 15, 16, 17, 31, 33, 64, 100, 1000, 4097] {
            let items: Vec<(u64, usize)> = (0..len)
                .map(|at| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (state >> 58, at)
                })
                .collect();
            let mut expected = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            let sorted = sort_by(items, |a, b| a.0.cmp(&b.0)).expect("no scope");
            assert_eq!(sorted, expected, "{len}");
        }
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
