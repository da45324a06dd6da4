//! Documents of an index's hits that are not in memory are read several at a time.

use super::*;
use catalog::Isolation;
use os::sim::SimOs;
use std::time::Duration;

const COUNT: i32 = 4000;

/// Documents of a kilobyte that hardly compress, many times the cache, on a disk that does several reads at once; in the
/// order of `n` they lie apart.
fn filled() -> Room {
    let engine = Engine::temporary_on_with(&SimOs::new(1).os(), |options| {
        options.cache_size = 8 << 20;
        options.sizes.write_budget = 1 << 20;
        options.sizes.memtable_bytes = 256 << 10;
        options.sizes.spill_bytes = 1 << 20;
        options.sizes.chunk_bytes = 256 << 10;
    });
    let room = Room::over(engine);
    room.insert(&[doc! { "_id": -1, "n": -1 }]);
    room.index(doc! { "key": { "n": 1 } });
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(32 + (state >> 58) as u8)
    };
    for first in (0..COUNT).step_by(100) {
        let text =
            |letter: &mut dyn FnMut() -> char| (0..6000).map(|_| letter()).collect::<String>();
        let documents: Vec<_> = (first..first + 100)
            .map(|id| doc! { "_id": id, "n": n_of(id), "text": text(&mut letter) })
            .collect();
        assert!(room.insert(&documents).errors.is_empty());
        while room.catalog.engine().step().unwrap() {}
    }
    room
}

fn n_of(id: i32) -> i32 {
    id * 1009 % COUNT
}

/// Ids by the index, as far as `limit` says, and how many pages were read early for them.
fn ids(room: &Room, ctx: &mut OpContext<'_>, from: i32, limit: u64) -> (Vec<i32>, u64) {
    let (filter, sort) = (raw(&doc! { "n": { "$gte": from } }), raw(&doc! { "n": 1 }));
    let (filter, sort) = (Some(&*filter), Some(&*sort));
    read(room, ctx, &FindRequest { filter, sort, limit, ..FindRequest::default() })
}

fn read(room: &Room, ctx: &mut OpContext<'_>, request: &FindRequest<'_>) -> (Vec<i32>, u64) {
    let before = room.catalog.engine().stats().cache.prefetches;
    let mut cursor = find(ctx, &room.ns, request).unwrap();
    let mut found = Vec::new();
    while let Some(document) = cursor.next().unwrap() {
        found.push(document.get_i32("_id").unwrap());
        if found.len() % 7 == 0 {
            cursor.park();
            cursor.resume(Arc::new(Uninterrupted)).unwrap();
        }
    }
    drop(cursor);
    (found, room.catalog.engine().stats().cache.prefetches - before)
}

fn expected(from: i32, limit: usize) -> Vec<i32> {
    let mut ids: Vec<i32> = (0..COUNT).filter(|id| n_of(*id) >= from).collect();
    ids.sort_by_key(|id| n_of(*id));
    ids.truncate(limit);
    ids
}

#[test]
fn rows_come_in_their_order_each_once_with_their_pages_read_together() {
    let room = filled();
    for (from, limit, most_early) in [(0, COUNT as u64, u64::MAX), (700, 500, 800), (1500, 1, 0)] {
        let (found, early) = ids(&room, &mut room.ctx(), from, limit);
        assert_eq!(found, expected(from, limit as usize));
        // The cache has some of them, decoded or not.
        assert!(early >= limit / 10 || most_early == 0, "{early} of {limit}");
        assert!(early <= most_early, "{early} of {limit}");
    }
}

#[test]
fn who_locks_what_it_reads_looks_at_nothing_early() {
    let room = filled();
    for (isolation, reads_early) in [(Isolation::Mvcc, true), (Isolation::Serializable, false)] {
        let mut txn = room.catalog.begin_bound(isolation, Duration::ZERO).unwrap();
        let mut ctx = room.ctx();
        ctx.txn = Some(&mut txn);
        let (found, early) = ids(&room, &mut ctx, 2000, 300);
        assert_eq!(found, expected(2000, 300));
        assert_eq!(early > 0, reads_early, "{isolation:?}");
    }
}

#[test]
fn documents_of_many_ids_are_read_together() {
    let room = filled();
    // Some twice, some that are not there, in no order.
    let asked: Vec<i32> = (0..400).map(|n| n * 1511 % (COUNT + 100)).chain([7, 7, 1511]).collect();
    let mut expected: Vec<i32> = asked.iter().copied().filter(|id| *id < COUNT).collect();
    expected.sort_unstable();
    expected.dedup();
    for descending in [false, true] {
        let filter = raw(&doc! { "_id": { "$in": &asked } });
        let sort = raw(&doc! { "_id": if descending { -1 } else { 1 } });
        let (filter, sort) = (Some(&*filter), Some(&*sort));
        let request = FindRequest { filter, sort, ..FindRequest::default() };
        let (mut found, early) = read(&room, &mut room.ctx(), &request);
        if descending {
            found.reverse();
        }
        assert_eq!(found, expected);
        assert!(early > 50, "{early} of {}", expected.len());
    }
}

/// What a pipeline over the filled collection finds before it fails, whether it does, and how many pages were read early.
fn piped(room: &Room, stages: &[Document]) -> (Vec<Document>, bool, u64) {
    let before = room.catalog.engine().stats().cache.prefetches;
    let mut cursor = room.open(stages).unwrap();
    let mut found = Vec::new();
    let fails = loop {
        match cursor.next() {
            Ok(Some(document)) => found.push(Document::try_from(document).unwrap()),
            Ok(None) => break false,
            Err(_) => break true,
        }
        if found.len() % 7 == 0 {
            cursor.park();
            cursor.resume(Arc::new(Uninterrupted)).unwrap();
        }
    };
    drop(cursor);
    (found, fails, room.catalog.engine().stats().cache.prefetches - before)
}

#[test]
fn documents_that_are_joined_by_their_id_are_read_together() {
    let room = filled();
    // A twentieth of them find nothing.
    let reference = |n: i32| n * 1511 % (COUNT + 200);
    // The outer documents come from the index alone. What was read for some is in memory, so that each has others.
    let outer = |from: i32| {
        vec![
            doc! { "$match": { "n": { "$gte": from, "$lt": from + 400 } } },
            doc! { "$sort": { "n": 1 } },
            doc! { "$project": {
                "_id": 0, "n": 1, "of": { "$mod": [{ "$multiply": ["$n", 1511] }, COUNT + 200] },
            } },
        ]
    };
    let lookup = |foreign: &str| {
        doc! { "$lookup": {
            "from": room.ns.collection(), "localField": "of", "foreignField": foreign, "as": "found",
        } }
    };
    let shown = doc! { "$project": { "n": 1, "of": 1, "ids": "$found._id" } };
    let gathered = |n: i32| {
        let ids: Vec<i32> = Some(reference(n)).filter(|id| *id < COUNT).into_iter().collect();
        doc! { "n": n, "of": reference(n), "ids": ids }
    };
    let stages = [outer(1000), vec![lookup("_id"), shown.clone()]].concat();
    let (found, fails, early) = piped(&room, &stages);
    assert_eq!((found, fails), ((1000..1400).map(gathered).collect(), false));
    assert!(early > 100, "{early}");
    // One by one.
    let unwound = vec![lookup("_id"), doc! { "$unwind": "$found" }, shown.clone()];
    let (found, fails, early) = piped(&room, &[outer(2000), unwound].concat());
    let one_each = (2000..2400)
        .filter(|n| reference(*n) < COUNT)
        .map(|n| doc! { "n": n, "of": reference(n), "ids": reference(n) });
    assert_eq!((found, fails), (one_each.collect(), false));
    assert!(early > 100, "{early}");
    // An outer document that cannot be made fails in its turn, behind those that were taken with it.
    let bad = doc! { "$addFields": { "bad": { "$divide": [1, { "$subtract": ["$n", 3203] }] } } };
    let stages = [outer(3000), vec![bad, lookup("_id"), shown.clone()]].concat();
    let (found, fails, early) = piped(&room, &stages);
    assert_eq!((found, fails), ((3000..3203).map(gathered).collect(), true));
    assert!(early > 50, "{early}");
    // By another index each document is read when it is found.
    let (found, fails, early) = piped(&room, &[outer(0), vec![lookup("n"), shown]].concat());
    assert_eq!((found.len(), fails, early), (400, false, 0));
}
