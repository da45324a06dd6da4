//! Inserts, updates, deletes and findAndModify as clients see them.

use super::*;

fn delete_all(room: &Room, filter: Document, only_one: bool) -> u64 {
    let filter = raw(&filter);
    let statement = DeleteStatement { filter: &filter, only_one, hint: None, collation: None };
    let request = DeleteRequest { deletes: &[statement], ordered: true, let_variables: None };
    delete(&mut room.ctx(), &room.ns, &request).unwrap().n
}

#[test]
fn missing_ids_are_made_and_come_first() {
    let room = Room::with(&[doc! { "a": 1 }, doc! { "a": 2, "_id": 5 }]);
    let found = room.find(doc! {});
    assert_eq!(found.len(), 2);
    for document in found {
        assert_eq!(document.keys().next().unwrap(), "_id");
    }
}

#[test]
fn an_ordered_batch_stops_at_its_error_and_an_unordered_one_goes_on() {
    let documents = [doc! { "_id": 1 }, doc! { "_id": 1 }, doc! { "_id": [2] }, doc! { "_id": 3 }];
    let raws: Vec<RawDocumentBuf> = documents.iter().map(raw).collect();
    let refs: Vec<&bson::RawDocument> = raws.iter().map(AsRef::as_ref).collect();
    for (ordered, n, failed) in [(true, 1, vec![1]), (false, 2, vec![1, 2])] {
        let room = Room::new();
        let request = InsertRequest { documents: &refs, ordered };
        let result = insert(&mut room.ctx(), &room.ns, &request).unwrap();
        assert_eq!(result.n, n);
        let indexes: Vec<usize> = result.errors.iter().map(|error| error.index).collect();
        assert_eq!(indexes, failed);
        assert_eq!(result.errors[0].error.code(), Code::DUPLICATE_KEY);
        assert_eq!(room.find(doc! {}).len() as u64, n);
        room.check_valid();
    }
}

#[test]
fn a_large_batch_goes_in_several_transactions() {
    let documents: Vec<Document> = (0..2500).map(|i| doc! { "_id": i, "a": i }).collect();
    let room = Room::with(&documents);
    assert_eq!(room.catalog.collection(&room.ns).unwrap().count(), 2500);
    assert_eq!(delete_all(&room, doc! { "a": { "$gte": 100 } }, false), 2400);
    assert_eq!(room.find(doc! {}).len(), 100);
    room.check_valid();
}

#[test]
fn deletes_take_one_or_all() {
    let documents: Vec<Document> = (0..10).map(|i| doc! { "_id": i, "a": i % 2 }).collect();
    let room = Room::with(&documents);
    room.index(doc! { "key": { "a": 1 } });
    assert_eq!(delete_all(&room, doc! { "a": 1 }, true), 1);
    assert_eq!(delete_all(&room, doc! { "a": 1 }, false), 4);
    assert_eq!(delete_all(&room, doc! { "a": 1 }, false), 0);
    assert_eq!(room.catalog.collection(&room.ns).unwrap().count(), 5);
    room.check_valid();
}

#[test]
fn system_collections_are_refused() {
    let room = Room::new();
    let ns = Namespace::parse("db.system.foo").unwrap();
    let request = InsertRequest { documents: &[], ordered: true };
    let error = insert(&mut room.ctx(), &ns, &request).unwrap_err();
    assert_eq!(error.code(), Code::INVALID_NAMESPACE);
}
