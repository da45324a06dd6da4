//! Old messages in, commands out; command replies in, old replies out.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use super::*;
use bson::{Document, doc, rawdoc};

fn asked<'a>(namespace: &'a str, query: &'a RawDocument) -> OpQuery<'a> {
    OpQuery {
        flags: QueryFlags::default(),
        namespace,
        skip: 0,
        number_to_return: 0,
        query,
        fields: None,
    }
}

fn body(translated: &Translated<'_>) -> Document {
    Document::try_from(&translated.body).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.unwrap_err().code().0
}

#[test]
fn plain_query_is_a_filter() {
    let filter = rawdoc! { "a": 1, "$or": [{ "b": 1 }] };
    let translated = query(&asked("db.c.d", &filter)).unwrap();
    assert_eq!((translated.database, translated.answer), ("db", Answer::Batch));
    assert_eq!(
        body(&translated),
        doc! { "find": "c.d", "filter": { "a": 1, "$or": [{ "b": 1 }] } }
    );
}

#[test]
fn modifiers_become_fields_and_unknown_ones_are_refused() {
    let wrapped = rawdoc! {
        "$query": { "a": 1 }, "$orderby": { "a": -1 }, "$hint": "a_1", "$min": { "a": 0 },
        "$max": { "a": 9 }, "$maxTimeMS": 50, "$comment": "why", "$returnKey": true,
        "$showDiskLoc": 1, "$snapshot": true, "$readPreference": { "mode": "nearest" },
    };
    let translated = query(&asked("db.c", &wrapped)).unwrap();
    let expected = doc! {
        "find": "c", "filter": { "a": 1 }, "sort": { "a": -1 }, "hint": "a_1", "min": { "a": 0 },
        "max": { "a": 9 }, "maxTimeMS": 50, "comment": "why", "returnKey": true,
        "showRecordId": 1, "$readPreference": { "mode": "nearest" },
    };
    assert_eq!(body(&translated), expected);
    let older = rawdoc! { "query": { "a": 1 }, "orderby": { "a": 1 } };
    let expected = doc! { "find": "c", "filter": { "a": 1 }, "sort": { "a": 1 } };
    assert_eq!(body(&query(&asked("db.c", &older)).unwrap()), expected);
    let unknown = rawdoc! { "$query": {}, "$maxScan": 5 };
    assert_eq!(code(query(&asked("db.c", &unknown))), 2);
    for field in [
        rawdoc! { "a": 1, "query": { "b": 1 } },
        rawdoc! { "query": { "b": 1 }, "a": 1 },
        rawdoc! { "query": 1 },
    ] {
        let plain = body(&query(&asked("db.c", &field)).unwrap());
        let filter = Document::try_from(&field).unwrap();
        assert_eq!(plain, doc! { "find": "c", "filter": filter }, "a field called query");
    }
}

#[test]
fn number_to_return_says_batch_or_limit() {
    let filter = rawdoc! {};
    let find = |number_to_return| {
        let old = OpQuery { number_to_return, skip: 3, ..asked("db.c", &filter) };
        let mut found = body(&query(&old).unwrap());
        assert_eq!(found.remove("skip"), Some(3.into()));
        found.remove("find");
        found.remove("filter");
        found
    };
    assert_eq!(find(0), doc! {});
    assert_eq!(find(7), doc! { "batchSize": 7 });
    for (number, limit) in [(1, 1_i64), (-1, 1), (-7, 7), (i32::MIN, 1 << 31)] {
        let expected = doc! { "limit": limit, "batchSize": limit, "singleBatch": true };
        assert_eq!(find(number), expected, "{number}");
    }
}

#[test]
fn flags_become_fields_and_exhaust_is_refused() {
    let filter = rawdoc! {};
    let find = |flags| query(&OpQuery { flags: QueryFlags(flags), ..asked("db.c", &filter) });
    assert_eq!(code(find(1 << 6)), 238);
    let expected = doc! {
        "find": "c", "filter": {}, "tailable": true, "awaitData": true, "oplogReplay": true,
        "noCursorTimeout": true, "allowPartialResults": true,
    };
    assert_eq!(body(&find(0b1011_1110).unwrap()), expected);
    assert_eq!(body(&find(1 << 5 | 1 << 2).unwrap()), doc! { "find": "c", "filter": {} });
}

#[test]
fn explain_wraps_the_find_and_its_plan_has_no_ok() {
    let wrapped = rawdoc! { "$query": { "a": 1 }, "$explain": 1 };
    let translated = query(&asked("db.c", &wrapped)).unwrap();
    assert_eq!(translated.answer, Answer::Plan);
    let expected = doc! {
        "explain": { "find": "c", "filter": { "a": 1 } }, "verbosity": "allPlansExecution",
    };
    assert_eq!(body(&translated), expected);
    assert_eq!(plan(&rawdoc! { "x": 1, "ok": 1.0 }).unwrap(), rawdoc! { "x": 1 });
    assert_eq!(code(plan(&rawdoc! { "ok": 0.0, "code": 2, "errmsg": "no" })), 2);
}

#[test]
fn commands_go_through_unwrapped() {
    for wrapped in [
        rawdoc! { "buildinfo": 1 },
        rawdoc! { "query": { "buildinfo": 1 } },
        rawdoc! { "$query": { "buildinfo": 1 }, "$readPreference": { "mode": "primary" } },
    ] {
        let translated = query(&asked("db.$cmd", &wrapped)).unwrap();
        assert_eq!((translated.database, translated.answer), ("db", Answer::Command));
        assert_eq!(body(&translated), doc! { "buildinfo": 1 });
    }
    let filter = rawdoc! { "$all": true };
    let translated = query(&asked("x.$cmd.sys.inprog", &filter)).unwrap();
    assert_eq!(translated.database, "admin");
    assert_eq!(body(&translated), doc! { "currentOp": 1, "$all": true });
}

#[test]
fn namespace_needs_a_database_and_a_collection() {
    let filter = rawdoc! {};
    for bad in ["", "db", ".c", "db."] {
        assert_eq!(code(query(&asked(bad, &filter))), 73, "{bad}");
        let more = GetMore { namespace: bad, number_to_return: 0, cursor_id: 1 };
        assert_eq!(code(get_more(&more)), 73, "{bad}");
    }
}

#[test]
fn catalogs_that_are_no_collections_are_refused_not_empty() {
    let filter = rawdoc! {};
    for namespace in ["db.system.namespaces", "db.system.indexes"] {
        assert_eq!(code(query(&asked(namespace, &filter))), 115, "{namespace}");
    }
}

#[test]
fn aggregate_without_cursor_gets_its_result_in_one_document() {
    let old = rawdoc! { "aggregate": "c", "pipeline": [] };
    let translated = query(&asked("db.$cmd", &old)).unwrap();
    assert_eq!(translated.answer, Answer::Inline);
    assert_eq!(
        body(&translated),
        doc! { "aggregate": "c", "pipeline": [], "cursor": { "batchSize": i32::MAX } }
    );
    for modern in [
        rawdoc! { "aggregate": "c", "pipeline": [], "cursor": {} },
        rawdoc! { "aggregate": "c", "pipeline": [], "explain": true },
    ] {
        assert_eq!(query(&asked("db.$cmd", &modern)).unwrap().answer, Answer::Command);
    }
    let reply = rawdoc! { "cursor": { "firstBatch": [{ "a": 1 }], "id": 0_i64 }, "ok": 1.0 };
    let (out, kill) = inline(&reply);
    assert_eq!(out, rawdoc! { "result": [{ "a": 1 }], "ok": 1.0 });
    assert!(kill.is_none());
    let reply = rawdoc! { "cursor": { "firstBatch": [{ "a": 1 }], "id": 7_i64 }, "ok": 1.0 };
    let (out, kill) = inline(&reply);
    assert_eq!(out.get_i32("code").unwrap(), 16389, "never a part of the result");
    assert_eq!(body(&kill.unwrap()).get_array("cursors").unwrap(), &[7_i64.into()]);
}

#[test]
fn get_more_never_limits_the_cursor() {
    for (number, expected) in [
        (0, doc! { "getMore": 5_i64, "collection": "c" }),
        (3, doc! { "getMore": 5_i64, "collection": "c", "batchSize": 3_i64 }),
        (-3, doc! { "getMore": 5_i64, "collection": "c", "batchSize": 3_i64 }),
    ] {
        let more = GetMore { namespace: "db.c", number_to_return: number, cursor_id: 5 };
        assert_eq!(body(&get_more(&more).unwrap()), expected);
    }
}

#[test]
fn batch_becomes_documents_and_lost_cursors_a_flag() {
    let reply = rawdoc! {
        "cursor": { "nextBatch": [{ "a": 1 }, { "a": 2 }], "startingFrom": 101, "id": 9_i64 },
        "ok": 1.0,
    };
    let found = batch(&reply).unwrap();
    assert_eq!((found.cursor_id, found.starting_from), (9, 101));
    let (one, two) = (rawdoc! { "a": 1 }, rawdoc! { "a": 2 });
    assert_eq!(found.documents, [one.as_ref(), two.as_ref()]);
    let lost = rawdoc! { "ok": 0.0, "code": 43, "errmsg": "gone" };
    let found = batch(&lost).unwrap();
    assert_eq!((found.flags.0 & 1, found.cursor_id, found.documents.len()), (1, 0, 0));
    assert_eq!(code(batch(&rawdoc! { "ok": 0.0, "code": 2, "errmsg": "bad" })), 2);
}

#[test]
fn insert_is_cut_into_parts_a_command_can_hold() {
    let one = rawdoc! { "_id": 1 };
    let documents = vec![one.as_ref(); INSERT_PART + 1];
    let old = Insert { flags: 1, namespace: "db.c", documents };
    let parts = insert(&old).unwrap();
    assert_eq!(parts.iter().map(|part| part.sequences[0].1.len()).sum::<usize>(), INSERT_PART + 1);
    assert_eq!(parts.len(), 2);
    assert_eq!(body(&parts[0]), doc! { "insert": "c", "ordered": false });
}

#[test]
fn insert_into_system_indexes_makes_indexes() {
    let index = rawdoc! { "ns": "db.c", "key": { "a": 1 }, "name": "a_1", "unique": true };
    let elsewhere = rawdoc! { "ns": "other.c", "key": { "a": 1 }, "name": "a_1" };
    let old =
        |document| Insert { flags: 0, namespace: "db.system.indexes", documents: vec![document] };
    let expected = doc! {
        "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1", "unique": true }],
    };
    assert_eq!(body(&insert(&old(&index)).unwrap()[0]), expected);
    assert_eq!(code(insert(&old(&elsewhere))), 67);
}

#[test]
fn update_and_delete_carry_their_flags() {
    let (selector, change) = (rawdoc! { "a": 1 }, rawdoc! { "$set": { "b": 2 } });
    for (flags, upsert, multi) in
        [(0, false, false), (1, true, false), (2, false, true), (3, true, true)]
    {
        let old = wire::Update { namespace: "db.c", flags, selector: &selector, update: &change };
        let expected = doc! { "update": "c", "updates": [{
            "q": { "a": 1 }, "u": { "$set": { "b": 2 } }, "upsert": upsert, "multi": multi,
        }] };
        assert_eq!(body(&update(&old).unwrap()), expected);
    }
    for (flags, limit) in [(0, 0), (1, 1)] {
        let old = Delete { namespace: "db.c", flags, selector: &selector };
        let expected = doc! { "delete": "c", "deletes": [{ "q": { "a": 1 }, "limit": limit }] };
        assert_eq!(body(&delete(&old).unwrap()), expected);
    }
}
