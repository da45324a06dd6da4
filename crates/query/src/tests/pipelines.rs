//! Pipelines over collections: what is pushed down, what is written, what views show.

use super::*;
use catalog::CollectionOptions;

fn array(stages: Vec<Document>) -> RawArrayBuf {
    stages.iter().map(|stage| bson::RawBson::Document(raw(stage))).collect()
}

fn request(pipeline: &RawArrayBuf) -> AggregateRequest<'_> {
    AggregateRequest {
        pipeline,
        let_variables: None,
        hint: None,
        collation: None,
        allow_disk_use: None,
    }
}

impl Room {
    fn explain_pipeline(&self, stages: Vec<Document>) -> Document {
        let pipeline = array(stages);
        let target = AggregateTarget::Collection(self.ns.clone());
        let explained = explain_aggregate(
            &mut self.ctx(),
            &target,
            &request(&pipeline),
            Verbosity::ExecutionStats,
        )
        .unwrap();
        Document::try_from(&*explained).unwrap()
    }
}

fn numbers() -> Room {
    let documents: Vec<Document> =
        (0..50).map(|i| doc! { "_id": i, "a": i % 5, "b": i, "s": "x" }).collect();
    let room = Room::with(&documents);
    room.index(doc! { "key": { "a": 1, "b": 1 } });
    room
}

#[test]
fn a_leading_match_and_sort_use_an_index() {
    let room = numbers();
    let stages_of =
        vec![doc! { "$match": { "a": 3 } }, doc! { "$sort": { "b": -1 } }, doc! { "$limit": 2 }];
    let found = room.aggregate(stages_of.clone()).unwrap();
    let ids: Vec<i32> = found.iter().map(|d| d.get_i32("_id").unwrap()).collect();
    assert_eq!(ids, [48, 43]);
    let explained = room.explain_pipeline(stages_of);
    let cursor = explained.get_array("stages").unwrap()[0].as_document().unwrap();
    let cursor = cursor.get_document("$cursor").unwrap();
    assert_eq!(stages(cursor), ["FETCH", "IXSCAN"]);
}

#[test]
fn a_count_of_an_indexed_match_fetches_nothing() {
    let room = numbers();
    let counting =
        vec![doc! { "$match": { "a": 3 } }, doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } }];
    assert_eq!(room.aggregate(counting).unwrap(), [doc! { "_id": 1, "n": 10 }]);
    let covered = vec![
        doc! { "$match": { "a": { "$gte": 3 } } },
        doc! { "$group": { "_id": "$a", "sum": { "$sum": "$b" } } },
        doc! { "$sort": { "_id": 1 } },
    ];
    let explained = room.explain_pipeline(covered.clone());
    let cursor = explained.get_array("stages").unwrap()[0].as_document().unwrap();
    let cursor = cursor.get_document("$cursor").unwrap();
    assert_eq!(stages(cursor), ["IXSCAN"]);
    let sum = |a: i32| (0..50).filter(|i| i % 5 == a).sum::<i32>();
    assert_eq!(
        room.aggregate(covered).unwrap(),
        [doc! { "_id": 3, "sum": sum(3) }, doc! { "_id": 4, "sum": sum(4) }]
    );
}

#[test]
fn lookups_find_by_index_and_without() {
    let room = numbers();
    for foreign in ["_id", "b"] {
        let joined = room
            .aggregate(vec![
                doc! { "$match": { "_id": { "$lt": 3 } } },
                doc! { "$lookup": {
                "from": "c", "localField": "a", "foreignField": foreign, "as": "found" } },
                doc! { "$project": { "ids": "$found._id" } },
            ])
            .unwrap();
        let expected: Vec<Document> = (0..3).map(|i| doc! { "_id": i, "ids": [i] }).collect();
        assert_eq!(joined, expected, "{foreign}");
    }
}

#[test]
fn out_replaces_a_collection_and_keeps_its_indexes() {
    let room = numbers();
    let target = Namespace::parse("db.out").unwrap();
    let spec = doc! { "key": { "b": 1 }, "name": "b_1", "unique": true };
    let spec = IndexSpec::parse(&raw(&spec)).unwrap();
    room.catalog.create_indexes(&target, &[spec], &|| Ok(())).unwrap();
    for (a, n) in [(1, 10), (7, 0)] {
        let none =
            room.aggregate(vec![doc! { "$match": { "a": a } }, doc! { "$out": "out" }]).unwrap();
        assert!(none.is_empty());
        let collection = room.catalog.collection(&target).unwrap();
        assert_eq!(collection.count(), n);
        assert!(collection.index("b_1").is_some());
    }
    let error = room
        .aggregate(vec![doc! { "$project": { "b": { "$literal": 1 } } }, doc! { "$out": "out" }])
        .unwrap_err();
    assert_eq!(error.code(), Code::DUPLICATE_KEY);
    assert_eq!(room.catalog.collections("db").len(), 2);
}

#[test]
fn merge_inserts_and_overlays() {
    let room = numbers();
    let merge = |filter: Document, add: i32| {
        room.aggregate(vec![
            doc! { "$match": filter },
            doc! { "$project": { "b": { "$add": ["$b", add] } } },
            doc! { "$merge": { "into": "m" } },
        ])
        .unwrap()
    };
    merge(doc! { "a": 1 }, 0);
    merge(doc! { "a": { "$lte": 1 } }, 100);
    let target = Namespace::parse("db.m").unwrap();
    assert_eq!(room.catalog.collection(&target).unwrap().count(), 20);
    let mut cursor = find(&mut room.ctx(), &target, &FindRequest::default()).unwrap();
    while let Some(document) = cursor.next().unwrap() {
        assert_eq!(document.get_i32("b").unwrap(), document.get_i32("_id").unwrap() + 100);
    }
    let refused = room.aggregate(vec![doc! { "$merge": { "into": "m", "on": "b" } }]);
    assert_eq!(refused.unwrap_err().code().0, 51183);
}

#[test]
fn a_view_answers_find_count_and_distinct() {
    let room = numbers();
    let view = Namespace::parse("db.v").unwrap();
    let options = doc! { "viewOn": "c", "pipeline": [
    { "$match": { "a": 2 } }, { "$set": { "twice": { "$multiply": ["$b", 2] } } } ] };
    let options = CollectionOptions::parse(&raw(&options)).unwrap();
    room.catalog.create_collection(&view, &options, &|| Ok(())).unwrap();
    let filter = raw(&doc! { "twice": { "$gt": 50 } });
    let count_request = CountRequest { filter: Some(&filter), ..CountRequest::default() };
    assert_eq!(count(&mut room.ctx(), &view, &count_request).unwrap(), 5);
    let request = DistinctRequest { key: "a", filter: None, hint: None, collation: None };
    assert_eq!(distinct(&mut room.ctx(), &view, &request).unwrap().into_iter().count(), 1);
    let sort = raw(&doc! { "b": -1 });
    let request = FindRequest { sort: Some(&sort), limit: 1, ..FindRequest::default() };
    let mut cursor = find(&mut room.ctx(), &view, &request).unwrap();
    assert_eq!(cursor.next().unwrap().unwrap().get_i32("twice").unwrap(), 94);
    let documents = [&*raw(&doc! { "a": 1 })].map(ToOwned::to_owned);
    let documents: Vec<&bson::RawDocument> = documents.iter().map(AsRef::as_ref).collect();
    let request = InsertRequest { documents: &documents, ordered: true };
    let error = insert(&mut room.ctx(), &view, &request).unwrap_err();
    assert_eq!(error.code(), Code::COMMAND_NOT_SUPPORTED_ON_VIEW);
    let nothing = raw(&doc! {});
    let statement =
        DeleteStatement { filter: &nothing, only_one: false, hint: None, collation: None };
    let request = DeleteRequest { deletes: &[statement], ordered: true, let_variables: None };
    let error = delete(&mut room.ctx(), &view, &request).unwrap_err();
    assert_eq!(error.code(), Code::COMMAND_NOT_SUPPORTED_ON_VIEW);
}

#[test]
fn statistics_stages_tell_about_the_collection() {
    let room = numbers();
    let found = room.aggregate(vec![doc! { "$collStats": { "count": {} } }]).unwrap();
    assert_eq!(found[0].get_i64("count").unwrap(), 50);
    let found = room.aggregate(vec![doc! { "$indexStats": {} }]).unwrap();
    let names: Vec<&str> = found.iter().map(|d| d.get_str("name").unwrap()).collect();
    assert_eq!(names, ["_id_", "a_1_b_1"]);
}

#[test]
fn updates_in_pipeline_form_see_the_document() {
    let room = numbers();
    let filter = raw(&doc! { "a": 4 });
    let update_stages = array(vec![doc! { "$set": { "c": { "$add": ["$a", "$b"] } } }]);
    let statement = UpdateStatement {
        filter: &filter,
        update: RawBsonRef::Array(&update_stages),
        multi: true,
        upsert: false,
        array_filters: None,
        hint: None,
        collation: None,
        constants: None,
        sort: None,
        is_delta: false,
    };
    let request = UpdateRequest { updates: &[statement], ordered: true, let_variables: None };
    let done = update(&mut room.ctx(), &room.ns, &request).unwrap();
    assert_eq!((done.n, done.n_modified), (10, 10));
    assert_eq!(room.find(doc! { "c": 8 })[0].get_i32("_id").unwrap(), 4);
}

#[test]
fn a_sort_beyond_its_memory_gives_the_same_from_disk() {
    use crate::canonical::{Canonical, Purpose};
    use crate::exec::{ExecContext, PlanStage, SortStage, TempFiles};
    let documents: Vec<Document> =
        (0..500).map(|i| doc! { "_id": i, "n": (i * 7919) % 31, "pad": "x".repeat(50) }).collect();
    let room = Room::with(&documents);
    let ctx = room.ctx();
    let query = Canonical::of_find(&ctx, &room.ns, &FindRequest::default(), Purpose::Read).unwrap();
    let pattern = bsonval::SortPattern::parse(&raw(&doc! { "n": 1 })).unwrap();
    let sorted = |memory: usize, disk: bool, limit: Option<usize>| -> Result<Vec<i32>> {
        let input = query.stages(&room.catalog, &query.decide(None)?.winner)?;
        let disk = disk.then(|| TempFiles::of(&room.catalog));
        let mut stage = SortStage::new(input, (pattern.clone(), None), limit, memory, disk);
        let exec = ExecContext::new(&query.snapshot, &Uninterrupted);
        let mut ids = Vec::new();
        while stage.advance(&exec)? {
            ids.push(stage.row().document()?.get_i32("_id").unwrap());
        }
        Ok(ids)
    };
    let whole = sorted(100 << 20, false, None).unwrap();
    assert_eq!(whole.len(), 500);
    assert_eq!(sorted(2000, true, None).unwrap(), whole);
    assert_eq!(sorted(2000, true, Some(7)).unwrap(), whole[..7]);
    let error = sorted(2000, false, None).unwrap_err();
    assert_eq!(error.code(), Code::QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED);
}
