//! Updates that do not read, of documents that a filter names by all of a primary key of several fields.

use super::writes::ask;
use super::*;
use crate::fast_updates::{FastUpdates, fast_update_rules};
use std::sync::atomic::Ordering;

/// A room whose engine knows fast updates, with a collection of these options.
fn room(options: &Document) -> Room {
    let rules = Arc::clone(fast_update_rules());
    let room = Room::over(Engine::temporary_with(|options| options.updates = Some(rules)));
    let options = CollectionOptions::parse(&raw(options)).unwrap();
    room.catalog.create_collection(&room.ns, &options, &|| Ok(())).unwrap();
    room
}

/// Runs an update, fast where it can be; says how many were performed fast.
fn change(room: &Room, filter: &Document, update: &Document, upsert: bool) -> u64 {
    let fast = FastUpdates::default();
    fast.enabled.store(true, Ordering::Relaxed);
    let (filter, update) = (raw(filter), raw(update));
    let statement = UpdateStatement {
        filter: &filter,
        update: RawBsonRef::Document(&update),
        multi: false,
        upsert,
        array_filters: None,
        hint: None,
        collation: None,
        constants: None,
        sort: None,
        is_delta: false,
    };
    let request = UpdateRequest { updates: &[statement], ordered: true, let_variables: None };
    let mut ctx = room.ctx();
    ctx.fast_updates = Some(&fast);
    let result = crate::update(&mut ctx, &room.ns, &request).unwrap();
    assert!(result.errors.is_empty(), "{:?}", result.errors);
    fast.performed.load(Ordering::Relaxed)
}

fn keyed() -> Room {
    let room = room(&doc! { "primaryKey": { "k": 1, "d.x": -1, "_id": 1 } });
    let documents: Vec<Document> = (0..30)
        .map(|i| doc! { "_id": i, "k": i % 3, "d": { "x": i % 2, "y": 0 }, "n": 0, "s": i })
        .collect();
    assert!(room.insert(&documents).errors.is_empty());
    room.index(doc! { "key": { "s": 1 } });
    room
}

#[test]
fn an_update_that_names_every_field_of_the_primary_key_does_not_read() {
    let room = keyed();
    let inc = doc! { "$inc": { "n": 1 } };
    for filter in [
        doc! { "k": 1, "d.x": 1, "_id": 7 },
        doc! { "_id": 7, "d.x": 1, "k": 1 },
        doc! { "k": 1_i64, "_id": 7_i64, "d.x": 1 },
    ] {
        assert_eq!(change(&room, &filter, &inc, false), 1, "{filter}");
    }
    assert_eq!(
        change(&room, &doc! { "k": 1, "d.x": 1, "_id": 7 }, &doc! { "$set": { "d.y": 5 } }, false),
        1
    );
    let expected = doc! { "_id": 7, "k": 1, "d": { "x": 1, "y": 5 }, "n": 3, "s": 7 };
    for filter in [doc! { "_id": 7 }, doc! { "s": 7 }, doc! { "k": 1, "d.x": 1, "_id": 7 }] {
        assert_eq!(room.find(filter), std::slice::from_ref(&expected));
    }
    room.check_valid();
}

#[test]
fn an_update_that_names_another_place_than_the_documents_changes_nothing() {
    let room = keyed();
    let before = room.find(doc! {});
    for filter in [
        doc! { "k": 2, "d.x": 1, "_id": 7 },
        doc! { "k": 1, "d.x": 0, "_id": 7 },
        doc! { "k": 1, "d.x": 1, "_id": 700 },
    ] {
        assert_eq!(change(&room, &filter, &doc! { "$inc": { "n": 1 } }, false), 1);
    }
    assert_eq!(room.find(doc! {}), before);
    assert_eq!(room.catalog.collection(&room.ns).unwrap().count(), 30);
    room.check_valid();
}

#[test]
fn updates_that_do_not_name_the_whole_key_or_touch_it_read() {
    let room = keyed();
    let inc = &doc! { "$inc": { "n": 1 } };
    let whole = doc! { "k": 1, "d.x": 1, "_id": 7 };
    for (filter, update, upsert) in [
        (doc! { "_id": 7 }, inc, false),
        (doc! { "k": 1, "_id": 7 }, inc, false),
        (doc! { "k": 1, "d.x": 1 }, inc, false),
        (doc! { "k": 1, "d.x": 1, "_id": 7, "n": { "$gte": 0 } }, inc, false),
        (doc! { "k": 1, "d.x": 1, "s": 7 }, inc, false),
        (doc! { "k": { "$in": [1] }, "d.x": 1, "_id": 7 }, inc, false),
        (doc! { "k": 1, "d": { "x": 1, "y": 0 }, "_id": 7 }, inc, false),
        (whole.clone(), inc, true),
        (whole.clone(), &doc! { "$set": { "k": 1 } }, false),
        (whole.clone(), &doc! { "$set": { "d": { "x": 1, "y": 0 } } }, false),
        (whole.clone(), &doc! { "$set": { "d.x": 1 } }, false),
        (whole.clone(), &doc! { "$inc": { "s": 0 } }, false),
    ] {
        assert_eq!(change(&room, &filter, update, upsert), 0, "{filter} {update}");
    }
    room.check_valid();
    // A document that has moved is found where it stands now, by a statement that asks for it there.
    assert_eq!(change(&room, &whole, &doc! { "$set": { "k": 9 } }, false), 0);
    assert_eq!(change(&room, &whole, inc, false), 1, "nothing stands there any more");
    assert_eq!(change(&room, &doc! { "k": 9, "d.x": 1, "_id": 7 }, inc, false), 1);
    let n = room.find(doc! { "_id": 7 })[0].get_i32("n").unwrap();
    // Of those above the ones that read and matched, and the last.
    assert_eq!(n, 8);
    room.check_valid();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is named, fast updates do what the ordinary ones do.
    #[test]
    fn both_ways_make_the_same_documents(
        statements in prop::collection::vec((0..4, 0..4, 0..6, 0..5), 1..60),
        flush in 0..60_usize,
    ) {
        let options = doc! { "primaryKey": { "k": -1, "j": 1, "_id": 1 } };
        let (fast, ordinary) = (room(&options), room(&options));
        let mut performed = 0;
        for (at, (k, j, id, what)) in statements.iter().enumerate() {
            let filter = doc! { "k": k, "j": j, "_id": id };
            let update = match what {
                0 => doc! { "$inc": { "n": 1 } },
                1 => doc! { "$set": { "s": id } },
                2 => doc! { "$push": { "list": j } },
                3 => doc! { "$set": { "k": (k + 1) % 4 } },
                _ => doc! {},
            };
            for (is_fast, room) in [(true, &fast), (false, &ordinary)] {
                if update.is_empty() {
                    // A document of that `_id` may be there: both refuse it then.
                    room.insert(&[doc! { "_id": id, "k": k, "j": j, "n": 0 }]);
                } else if is_fast {
                    performed += change(room, &filter, &update, false);
                } else {
                    ask(filter.clone(), update.clone()).run(room);
                }
            }
            if at == flush {
                let engine = fast.catalog.engine();
                engine.checkpoint().unwrap();
                while engine.step().unwrap() {}
            }
        }
        prop_assert_eq!(fast.find(doc! {}), ordinary.find(doc! {}));
        let named = statements.iter().filter(|(.., what)| *what < 3).count() as u64;
        prop_assert_eq!(performed, named);
        fast.check_valid();
        ordinary.check_valid();
    }
}
