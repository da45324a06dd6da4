//! Sorting more than memory holds: everything comes back in order, and nothing stays behind.

use crate::{open, tiny};
use engine::Sorted;
use os::sim::SimOs;

fn contents(sorted: &Sorted, space: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut walk = sorted.walk(space).unwrap();
    let mut found = Vec::new();
    while let Some((key, value)) = walk.next().unwrap() {
        found.push((key.to_vec(), value.to_vec()));
    }
    found
}

#[test]
fn rows_of_each_space_come_back_ascending_each_as_often_as_it_came() {
    for compresses in [true, false] {
        let sim = SimOs::new(71);
        let engine = open(&sim.os(), tiny()).unwrap();
        engine.adjustable().set_loader_max_memory(20_000);
        engine.adjustable().set_loader_compresses(compresses);
        let before = engine.stats().file.live_bytes;
        let mut sorter = engine.sorter();
        let scattered = |number: u32| number.wrapping_mul(0x9e37_79b1);
        for number in 0..3000_u32 {
            let (space, key) = (number % 2, scattered(number).to_be_bytes());
            sorter.put(space, &key, b"twice").unwrap();
            sorter.put(space, &key, &number.to_le_bytes()).unwrap();
        }
        assert!(engine.stats().file.live_bytes > before, "more than memory holds");
        let (held, _) = engine.memory();
        assert!(held > 0);
        let sorted = sorter.finish().unwrap();
        assert_eq!(sorted.row_bytes(), 3000 * (4 + 5) + 3000 * (4 + 4));
        for space in 0..2 {
            let numbers = (0..3000_u32).filter(|number| number % 2 == space);
            let rows = numbers.flat_map(|number| {
                let key = scattered(number).to_be_bytes().to_vec();
                [(key.clone(), b"twice".to_vec()), (key, number.to_le_bytes().to_vec())]
            });
            let mut expected: Vec<_> = rows.collect();
            expected.sort();
            let mut found = contents(&sorted, space);
            assert!(found.is_sorted_by(|one, two| one.0 <= two.0));
            found.sort();
            assert!(found == expected);
        }
        assert_eq!(contents(&sorted, 2), []);
        drop(sorted);
        engine.checkpoint().unwrap();
        assert_eq!(engine.stats().file.live_bytes, before, "its pages go with it");
    }
}
