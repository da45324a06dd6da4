//! Memtable against a model, and with several threads at once.

use super::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn memtable_agrees_with_a_sorted_map_both_ways() {
    let table = Arc::new(MemTable::new(&Arc::new(CacheTable::new(1 << 30)), &KeyHasher::fixed()));
    let mut model = BTreeMap::new();
    let mut seed = 42;
    for ts in 1..6000u64 {
        let mut key = vec![b'k'; (random(&mut seed) % 12) as usize];
        key.extend(format!("{}", random(&mut seed) % 1500).into_bytes());
        let value = vec![7; (random(&mut seed) % 40) as usize];
        let delete = random(&mut seed).is_multiple_of(5);
        let message = if delete { Message::Delete } else { Message::Put(&value) };
        assert!(table.insert(&key, table.hash(&key), ts, message));
        assert!(table.insert(&key, table.hash(&key), ts, message), "a second time changes nothing");
        model.insert((key, Reverse(ts)), message.value().map(<[u8]>::to_vec));
    }
    assert_eq!(table.entries(), model.len() as u64);
    let mut forward = MemIter::forward(Arc::clone(&table), None);
    for ((key, ts), value) in &model {
        let entry = forward.entry().expect("as many as the model");
        assert_eq!((entry.key, entry.ts), (&key[..], ts.0));
        assert_eq!(entry.message.value(), value.as_deref());
        forward.advance();
    }
    assert!(forward.entry().is_none());
    let mut backward = MemIter::backward(Arc::clone(&table), None);
    for ((key, ts), _) in model.iter().rev() {
        let entry = backward.entry().expect("as many as the model");
        assert_eq!((entry.key, entry.ts), (&key[..], ts.0));
        backward.advance();
    }
    assert!(backward.entry().is_none());
    for ((key, ts), value) in &model {
        let (found, message) = table.get(key, table.hash(key), ts.0).expect("inserted");
        assert_eq!((found, message.value()), (ts.0, value.as_deref()));
        let place = Place { key, ts: ts.0 };
        let at = MemIter::forward(Arc::clone(&table), Some(place));
        assert_eq!(at.entry().map(|entry| entry.place()), Some(place));
        let before = MemIter::backward(Arc::clone(&table), Some(place));
        let expected = model.range(..(key.clone(), *ts)).next_back().map(|(place, _)| place);
        let found = before.entry().map(|entry| (entry.key.to_vec(), Reverse(entry.ts)));
        assert_eq!(found.as_ref(), expected);
    }
}

#[test]
fn what_is_added_together_is_as_if_it_was_added_one_after_the_other() {
    let new = || Arc::new(MemTable::new(&Arc::new(CacheTable::new(1 << 30)), &KeyHasher::fixed()));
    let (together, each) = (new(), new());
    let mut seed = 7;
    for ts in 1..2000u64 {
        let count = 1 + random(&mut seed) as usize % MOST_TOGETHER;
        let first = random(&mut seed) % 5000;
        // Whole leaves of neighbours, keys anywhere, keys that are there twice, versions of one or two keys, by
        // turns of one commit and of one each.
        let number = |i: u64, seed: &mut u64| match ts % 5 {
            0 => first * 100 + i,
            1 => random(seed) % 1_000_000,
            2 => random(seed) % 20,
            3 => 500_000,
            _ => 600_000 + (i >> (first % 4)) % 2,
        };
        let ts_of = |i: u64| if ts % 3 == 0 { ts * 100 } else { ts * 100 + i };
        let keys: Vec<_> =
            (0..count as u64).map(|i| number(i, &mut seed).to_be_bytes().to_vec()).collect();
        let message = |key: &[u8]| match key[7] % 3 {
            0 => Message::Delete,
            _ => Message::Put(b"value"),
        };
        let numbered = keys.iter().zip(0..);
        let versions: Vec<_> =
            numbered.map(|(key, i)| (&key[..], ts_of(i), message(key))).collect();
        assert!(together.insert_all(&versions));
        for (key, ts, message) in versions {
            assert!(each.insert(key, each.hash(key), ts, message));
        }
    }
    let totals = |table: &MemTable| (table.entries(), table.weight());
    assert_eq!(totals(&together), totals(&each));
    let [mut one, mut other] =
        [&together, &each].map(|table| MemIter::forward(Arc::clone(table), None));
    while let Some(entry) = one.entry() {
        assert_eq!(Some(entry), other.entry());
        let found = together.get(entry.key, together.hash(entry.key), entry.ts);
        assert_eq!(found, Some((entry.ts, entry.message)));
        one.advance();
        other.advance();
    }
    assert_eq!(other.entry(), None);
}

#[test]
fn version_that_arrives_late_takes_its_place_in_the_chain() {
    let table = MemTable::new(&Arc::new(CacheTable::new(1 << 30)), &KeyHasher::fixed());
    for ts in [5, 9, 7, 3, 8] {
        assert!(table.insert(b"k", table.hash(b"k"), ts, Message::Put(&[ts as u8])));
    }
    for (at, expected) in [(4, 3), (5, 5), (6, 5), (7, 7), (8, 8), (100, 9)] {
        assert_eq!(table.get(b"k", table.hash(b"k"), at).map(|found| found.0), Some(expected));
    }
    assert!(table.get(b"k", table.hash(b"k"), 2).is_none());
}

#[test]
fn sealed_table_refuses_and_becomes_quiet() {
    let table = MemTable::new(&Arc::new(CacheTable::new(1 << 30)), &KeyHasher::fixed());
    assert!(table.insert(b"a", table.hash(b"a"), 1, Message::Delete));
    table.seal(1);
    assert!(!table.insert(b"b", table.hash(b"b"), 2, Message::Delete));
    assert!(!table.insert_all(&[(b"b", 2, Message::Delete), (b"c", 2, Message::Delete)]));
    assert!(table.is_quiescent());
    assert_eq!(table.entries(), 1);
}

#[test]
fn threads_insert_at_once_and_readers_see_order_all_the_while() {
    const THREADS: u64 = 4;
    const EACH: u64 = 5000;
    let table = Arc::new(MemTable::new(&Arc::new(CacheTable::new(1 << 30)), &KeyHasher::fixed()));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let table = Arc::clone(&table);
            scope.spawn(move || {
                let mut seed = thread + 1;
                for i in 0..EACH {
                    // Half ascending at the right edge, half anywhere.
                    let number = if i % 2 == 0 { u64::MAX / 2 + i } else { random(&mut seed) / 2 };
                    let key = [&number.to_be_bytes()[..], &thread.to_be_bytes()].concat();
                    let beside = [&key[..], b"beside"].concat();
                    let (ts, value) = (i + 1, Message::Put(&key));
                    let versions = [(&key[..], ts, value), (&beside, ts, Message::Put(&beside))];
                    if thread % 2 == 0 {
                        assert!(table.insert_all(&versions));
                    } else {
                        for (key, ts, message) in versions {
                            assert!(table.insert(key, table.hash(key), ts, message));
                        }
                    }
                    let (_, read) =
                        table.get(&key, table.hash(&key), u64::MAX - 1).expect("own write");
                    assert_eq!(read.value(), Some(&key[..]));
                }
            });
        }
        let table = Arc::clone(&table);
        scope.spawn(move || {
            for round in 0..40 {
                let mut last: Option<Vec<u8>> = None;
                let mut iter = if round % 2 == 0 {
                    MemIter::forward(Arc::clone(&table), None)
                } else {
                    MemIter::backward(Arc::clone(&table), None)
                };
                while let Some(entry) = iter.entry() {
                    if let Some(last) = &last {
                        assert_eq!(round % 2 == 0, &last[..] < entry.key);
                    }
                    assert_eq!(entry.message.value(), Some(entry.key));
                    last = Some(entry.key.to_vec());
                    iter.advance();
                }
            }
        });
    });
    let mut count = 0;
    let mut iter = MemIter::forward(Arc::clone(&table), None);
    while iter.entry().is_some() {
        count += 1;
        iter.advance();
    }
    assert_eq!(count, 2 * THREADS * EACH);
}
