//! Sorting more than memory holds: everything comes back in order, and nothing stays behind.

use crate::{open, tiny};
use engine::Sorter;
use os::sim::SimOs;

fn contents(sorter: &Sorter, space: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut sorted = sorter.sorted(space);
    let mut found = Vec::new();
    while let Some((key, value)) = sorted.next().unwrap() {
        found.push((key.to_vec(), value.to_vec()));
    }
    found
}

#[test]
fn entries_of_each_space_come_back_ascending_with_their_last_value() {
    let sim = SimOs::new(71);
    let engine = open(&sim.os(), tiny()).unwrap();
    let before = engine.stats().file.live_bytes;
    let mut sorter = engine.sorter();
    assert_eq!(contents(&sorter, 0), []);
    let scattered = |number: u32| number.wrapping_mul(0x9e37_79b1);
    for number in 0..3000_u32 {
        let (space, key) = (u64::from(number % 2), scattered(number).to_be_bytes());
        sorter.put(space, &key, b"first").unwrap();
        sorter.put(space, &key, &number.to_le_bytes()).unwrap();
    }
    assert!(engine.stats().file.live_bytes > before, "more than memory holds");
    for space in 0..2 {
        let mut expected: Vec<_> = (0..3000_u32)
            .filter(|number| u64::from(number % 2) == space)
            .map(|number| (scattered(number).to_be_bytes().to_vec(), number.to_le_bytes().to_vec()))
            .collect();
        expected.sort();
        assert!(contents(&sorter, space) == expected);
    }
    let known = scattered(7).to_be_bytes();
    assert_eq!(sorter.get(1, &known).unwrap().as_deref(), Some(&7_u32.to_le_bytes()[..]));
    assert_eq!(sorter.get(0, &known).unwrap(), None);
    drop(sorter);
    engine.checkpoint().unwrap();
    assert_eq!(engine.stats().file.live_bytes, before, "its pages go with it");
}
