//! Stages whose arguments the command checks.

use super::*;
use bson::bson;

/// A pipeline over `c`, and the code it answers.
pub(super) fn over(pipeline: Bson, code: i32) -> (Document, i32) {
    (doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} }, code)
}

#[test]
fn the_server_is_asked_of_a_database() {
    check(
        &[],
        vec![
            over(bson!([{ "$documents": [{ "a": 1 }] }]), 73),
            over(bson!([{ "$currentOp": {} }]), 73),
            over(bson!([{ "$listLocalSessions": {} }]), 73),
        ],
    );
}

#[test]
fn merge_reads_its_target_and_modes() {
    let merge = |spec: Bson, code| over(bson!([{ "$merge": spec }]), code);
    let into = |into: Bson, code| merge(bson!({ "into": into }), code);
    let on = |on: Bson, code| merge(bson!({ "into": "t", "on": on }), code);
    let modes = |matched: Bson, not: Bson, code| {
        merge(bson!({ "into": "t", "whenMatched": matched, "whenNotMatched": not }), code)
    };
    check(
        &[],
        vec![
            merge(bson!("t"), 0),
            merge(bson!(""), 73),
            merge(bson!({}), 40414),
            merge(bson!({ "into": "t", "other": 1 }), 40415),
            into(bson!(""), 5_786_800),
            into(bson!(5), 51178),
            into(bson!("system.test"), 31319),
            into(bson!({ "coll": null }), 5_786_801),
            into(bson!({ "coll": 5 }), 14),
            into(bson!({ "db": 5, "coll": "t" }), 14),
            into(bson!({ "db": null, "coll": "t" }), 0),
            into(bson!({ "coll": "t", "x": 1 }), 40415),
            into(bson!({ "db": "admin", "coll": "t" }), 31320),
            into(bson!({ "db": "local", "coll": "t" }), 31320),
            on(Bson::Null, 51186),
            on(bson!(5), 51186),
            on(bson!([5]), 51134),
            on(bson!(["valid", null]), 51134),
            on(bson!([]), 51187),
            on(bson!(""), 40352),
            on(bson!("$field"), 16410),
            on(bson!("field."), 40353),
            on(bson!([".field"]), 15998),
            on(bson!("a..b"), 15998),
            on(bson!("a\0b"), 16411),
            on(bson!(["_id", "_id"]), 31465),
            on(bson!("other"), 51183),
            modes(bson!("keepExisting"), bson!("discard"), 51181),
            modes(bson!("keepExisting"), bson!("fail"), 51181),
            modes(bson!("fail"), bson!("discard"), 51181),
            modes(bson!("fail"), bson!("fail"), 51181),
            modes(bson!("fail"), bson!("insert"), 0),
            modes(bson!([{ "$set": { "a": 1 } }]), bson!("discard"), 0),
            modes(bson!("other"), bson!("insert"), 2),
            modes(bson!("merge"), bson!("other"), 2),
            modes(bson!(5), bson!("insert"), 51191),
            modes(bson!("merge"), bson!(5), 14),
            modes(bson!("merge"), Bson::Null, 0),
            merge(bson!({ "into": "t", "let": 5 }), 14),
            merge(bson!({ "into": "t", "let": { "a": 1 } }), 51199),
            merge(bson!({ "into": "t", "whenMatched": [], "let": { "new": 1 } }), 51273),
        ],
    );
}

#[test]
fn out_reads_its_target() {
    let out = |spec: Bson, code| over(bson!([{ "$out": spec }]), code);
    let setup = [
        doc! { "create": "capped", "capped": true, "size": 4096 },
        doc! { "create": "view", "viewOn": "c" },
    ];
    check(
        &setup,
        vec![
            out(bson!("t"), 0),
            out(bson!(""), 73),
            out(bson!(5), 16990),
            out(bson!({ "db": 5, "coll": "t" }), 14),
            out(bson!({ "db": "db", "coll": 5 }), 14),
            out(bson!({ "db": "db" }), 40414),
            out(bson!({ "db": "db", "coll": "t", "x": 1 }), 40415),
            out(bson!({ "db": "admin", "coll": "t" }), 31321),
            out(bson!({ "db": "config", "coll": "t" }), 31321),
            out(bson!("system.x"), 17385),
            out(bson!("capped"), 17152),
            out(bson!("view"), 166),
            over(bson!([{ "$out": "t" }, { "$match": {} }]), 40601),
            over(bson!([{ "$facet": { "a": [{ "$out": "t" }] } }]), 40600),
        ],
    );
}
