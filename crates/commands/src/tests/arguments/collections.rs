//! Commands that make, change, rename and drop collections and indexes.

use super::*;
use bson::bson;

/// `create` with these options, and the code it answers.
fn create(options: Document, code: i32) -> (Document, i32) {
    let mut command = doc! { "create": "c" };
    command.extend(options);
    (command, code)
}

#[test]
fn create_weighs_caps() {
    let capped = |value: Bson, code| create(doc! { "capped": value, "size": 4096 }, code);
    let size = |value: Bson, code| create(doc! { "capped": true, "size": value }, code);
    let max = |value: Bson, code| create(doc! { "capped": true, "size": 4096, "max": value }, code);
    check(
        &[],
        vec![
            capped(Bson::Double(f64::NAN), 0),
            capped(decimal("-Infinity"), 0),
            capped(Bson::Double(0.5), 0),
            capped(Bson::Null, 72),
            create(doc! { "capped": 0 }, 0),
            create(doc! { "capped": decimal("-0") }, 0),
            create(doc! { "capped": true }, 72),
            create(doc! { "size": 4096 }, 72),
            create(doc! { "size": 0 }, 72),
            create(doc! { "max": 100 }, 72),
            create(doc! { "capped": false, "size": 4096 }, 72),
            size(Bson::Double(1.9), 0),
            size(decimal("1.5"), 0),
            size(Bson::Int64(1 << 50), 0),
            size(Bson::Int64((1 << 50) + 1), 2),
            size(Bson::Double(0.9), 2),
            size(decimal("0.5"), 2),
            size(decimal("NaN"), 2),
            size(Bson::Double(f64::INFINITY), 2),
            size(Bson::Int32(-1), 2),
            size(Bson::Null, 72),
            size(Bson::Boolean(true), 14),
            max(Bson::Double(100.9), 0),
            max(Bson::Int32(-5), 0),
            max(decimal("NaN"), 0),
            max(Bson::Null, 0),
            max(Bson::Int32(i32::MAX), 0),
            max(Bson::Double(2_147_483_647.9), 0),
            max(Bson::Int64(1 << 31), 2),
            max(decimal("2147483647.5"), 2),
            max(Bson::Double(f64::INFINITY), 2),
        ],
    );
}

#[test]
fn create_reads_a_clustered_index() {
    let of = |spec: Bson, code| create(doc! { "clusteredIndex": spec }, code);
    let key = bson!({ "_id": 1 });
    let with = |extra: Document| {
        let mut options = doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true } };
        options.extend(extra);
        options
    };
    let version = |v: Bson, code| of(bson!({ "key": { "_id": 1 }, "unique": true, "v": v }), code);
    check(
        &[],
        vec![
            of(bson!({ "key": { "_id": decimal("1.0") }, "unique": 42 }), 0),
            of(bson!({ "key": key.clone(), "unique": f64::NAN, "name": "a.b" }), 0),
            of(Bson::Boolean(false), 0),
            of(decimal("-0"), 0),
            of(Bson::Boolean(true), 5_979_703),
            of(Bson::Double(1.0), 5_979_703),
            of(Bson::Null, 14),
            of(Bson::String("x".into()), 14),
            of(bson!([{ "key": key.clone() }]), 14),
            of(bson!({ "unique": true }), 40414),
            of(bson!({ "key": key.clone() }), 40414),
            of(bson!({ "key": null, "unique": true }), 40414),
            of(bson!({ "key": key.clone(), "unique": null }), 40414),
            of(bson!({ "key": 1, "unique": true }), 14),
            of(bson!({ "key": { "x": 1 }, "unique": true }), 197),
            of(bson!({ "key": key.clone(), "unique": 0 }), 5_979_700),
            of(bson!({ "key": key.clone(), "unique": "yes" }), 14),
            of(bson!({ "key": key.clone(), "unique": true, "other": 1 }), 40415),
            version(Bson::Double(2.999), 0),
            version(decimal("2.5"), 0),
            version(Bson::Int32(1), 5_979_704),
            version(Bson::Double(f64::INFINITY), 5_979_704),
            version(decimal("NaN"), 5_979_704),
            create(with(doc! { "capped": true, "size": 4096 }), 6_049_200),
            create(with(doc! { "max": 5 }), 6_049_204),
            create(with(doc! { "viewOn": "x", "pipeline": [] }), 6_026_500),
            create(with(doc! { "timeseries": { "timeField": "t" } }), 72),
            create(with(doc! { "idIndex": { "key": { "_id": 1 }, "name": "_id_" } }), 72),
            create(with(doc! { "expireAfterSeconds": 7200 }), 0),
            create(with(doc! { "expireAfterSeconds": 9_999_999_999_i64 }), 72),
            create(doc! { "clusteredIndex": false, "capped": true, "size": 4096 }, 6_049_200),
        ],
    );
}

#[test]
fn create_reads_other_layouts_and_what_lies_beside_them() {
    let series = |spec: Document, code| create(doc! { "timeseries": spec }, code);
    let expires = |value: Bson, code| {
        create(doc! { "timeseries": { "timeField": "t" }, "expireAfterSeconds": value }, code)
    };
    let span = |value: Bson, code| {
        series(
            doc! { "timeField": "t", "bucketMaxSpanSeconds": value.clone(),
            "bucketRoundingSeconds": value },
            code,
        )
    };
    let beside = |extra: Document, code| {
        let mut options = doc! { "timeseries": { "timeField": "t" } };
        options.extend(extra);
        create(options, code)
    };
    check(
        &[],
        vec![
            create(doc! { "timeseries": Bson::Null }, 0),
            series(doc! {}, 40414),
            series(doc! { "timeField": Bson::Null }, 40414),
            series(doc! { "timeField": 5 }, 14),
            series(doc! { "timeField": "a.b" }, 72),
            series(doc! { "timeField": "a\0b" }, 2),
            series(doc! { "timeField": "t", "metaField": Bson::Null }, 0),
            series(doc! { "timeField": "t", "metaField": true }, 14),
            series(doc! { "timeField": "t", "metaField": "a\0b" }, 2),
            series(doc! { "timeField": "t", "metaField": "_id" }, 72),
            series(doc! { "timeField": "t", "metaField": "t" }, 72),
            series(doc! { "timeField": "t", "granularity": Bson::Null }, 0),
            series(doc! { "timeField": "t", "granularity": "days" }, 2),
            series(doc! { "timeField": "t", "granularity": 5 }, 14),
            series(doc! { "timeField": "t", "other": 5 }, 40415),
            span(decimal("300"), 0),
            span(Bson::Double(3.9), 0),
            span(Bson::Int32(0), 2),
            span(Bson::Int32(31_536_001), 2),
            span(Bson::Double(f64::NAN), 2),
            span(Bson::String("300".into()), 14),
            expires(Bson::Double(-0.9), 0),
            expires(Bson::Double(f64::NAN), 0),
            expires(decimal("-0.5"), 0),
            expires(Bson::Null, 0),
            expires(decimal("-0.9"), 72),
            expires(Bson::Int64(9_999_999_999), 72),
            expires(Bson::Double(f64::INFINITY), 72),
            expires(Bson::String("off".into()), 14),
            expires(Bson::Boolean(true), 14),
            create(doc! { "expireAfterSeconds": 5 }, 72),
            create(doc! { "viewOn": "o", "expireAfterSeconds": 5 }, 72),
            beside(doc! { "validationAction": "error" }, 72),
            beside(doc! { "capped": true, "size": 1 }, 72),
            beside(doc! { "changeStreamPreAndPostImages": { "enabled": false } }, 72),
            beside(doc! { "viewOn": "o", "pipeline": [] }, 72),
        ],
    );
}

#[test]
fn create_reads_pre_and_post_images_and_encrypted_fields() {
    let images = |spec: Bson, code| create(doc! { "changeStreamPreAndPostImages": spec }, code);
    let view = |enabled: bool, code| {
        let images = doc! { "enabled": enabled };
        create(doc! { "viewOn": "o", "changeStreamPreAndPostImages": images }, code)
    };
    let fields = |list: Bson, code| create(doc! { "encryptedFields": { "fields": list } }, code);
    let id = Bson::from(Uuid::from_bytes([1; 16]));
    let path = |path: &str, code| fields(bson!([{ "path": path, "keyId": id.clone() }]), code);
    let kind = |kind: &str, code| {
        fields(bson!([{ "path": "ssn", "keyId": id.clone(), "bsonType": kind }]), code)
    };
    let short = Binary { subtype: BinarySubtype::Uuid, bytes: vec![1] };
    let mut cases = vec![
        images(bson!({ "enabled": true }), 0),
        images(Bson::Null, 0),
        images(bson!({}), 40414),
        images(bson!({ "enabled": null }), 40414),
        images(bson!({ "enabled": 1 }), 14),
        images(bson!({ "enabled": true, "other": 1 }), 40415),
        view(true, 72),
        view(false, 0),
        create(doc! { "encryptedFields": {} }, 40414),
        fields(Bson::Null, 40414),
        fields(Bson::String("x".into()), 14),
        path("", 6_316_402),
        path("_id.sub", 6_316_403),
        path("a\0b", 9_867_600),
        path("ssn", 238),
        kind("null", 6_338_406),
        kind("foobar", 2),
        fields(bson!([{ "path": "ssn", "keyId": short }]), 207),
        fields(bson!([{ "path": "ssn", "keyId": 1 }]), 14),
    ];
    let one = bson!({ "path": "ssn", "keyId": id.clone() });
    cases.push(fields(Bson::Array(vec![one.clone(), one.clone()]), 6_338_402));
    let encrypted = bson!({ "fields": [one] });
    for (extra, code) in [
        (doc! { "capped": true, "size": 4096 }, 6_367_301),
        (doc! { "viewOn": "o", "pipeline": [] }, 6_346_401),
        (doc! { "timeseries": { "timeField": "t" } }, 6_346_401),
    ] {
        let mut options = doc! { "encryptedFields": encrypted.clone() };
        options.extend(extra);
        cases.push(create(options, code));
    }
    check(&[], cases);
    let client = Client::new();
    client.ok("db", create(doc! { "changeStreamPreAndPostImages": { "enabled": true } }, 0).0);
    let shown = |client: &Client| {
        let list = client.ok("db", doc! { "listCollections": 1 });
        let batch = list.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch[0].as_document().unwrap().get_document("options").unwrap().clone()
    };
    assert_eq!(shown(&client), doc! { "changeStreamPreAndPostImages": { "enabled": true } });
    client.ok("db", doc! { "collMod": "c", "changeStreamPreAndPostImages": { "enabled": false } });
    assert_eq!(shown(&client), doc! {});
}

#[test]
fn create_takes_no_other_index_on_id() {
    let of = |spec: Document, code| create(doc! { "idIndex": spec }, code);
    let with = |name: &str, value: Bson, code| {
        let mut spec = doc! { "key": { "_id": 1 }, "name": "_id_" };
        spec.insert(name, value);
        of(spec, code)
    };
    check(
        &[],
        vec![
            create(doc! { "idIndex": Bson::Null }, 0),
            with("v", Bson::Int64(2), 0),
            with("v", Bson::Double(1.0), 0),
            with("name", Bson::String("another".into()), 0),
            with("collation", bson!({ "locale": "simple" }), 0),
            with("collation", bson!({ "locale": "en" }), 2),
            of(doc! {}, 9),
            of(doc! { "key": { "_id": 1 } }, 9),
            of(doc! { "name": "_id_" }, 9),
            with("key", bson!({ "x": 1 }), 2),
            with("key", bson!({ "_id": 1, "x": 1 }), 2),
            with("key", bson!({ "_id": -1 }), 2),
            with("key", bson!({ "_id": "hashed" }), 2),
            with("key", bson!({ "_id": "text" }), 2),
            with("key", Bson::Null, 14),
            with("name", Bson::Int32(1), 14),
            with("name", Bson::String(String::new()), 67),
            with("v", Bson::Int32(3), 67),
            with("v", Bson::Double(2.5), 2),
            with("v", Bson::Boolean(true), 14),
            // As TokuMX tells of it.
            with("unique", Bson::Boolean(true), 0),
            with("unique", Bson::Boolean(false), 197),
            with("clustering", Bson::Boolean(true), 0),
            with("clustering", Bson::Boolean(false), 197),
            with("compression", Bson::String("zlib".into()), 0),
            with("compression", Bson::String("snappy".into()), 16442),
            with("storageEngine", bson!({}), 197),
            with("sparse", Bson::Boolean(false), 197),
            with("background", Bson::Boolean(true), 197),
            with("expireAfterSeconds", Bson::Int32(5), 197),
            with("other", Bson::Int32(5), 197),
            create(doc! { "viewOn": "o", "idIndex": { "key": { "_id": 1 }, "name": "_id_" } }, 72),
        ],
    );
}

#[test]
fn create_checks_storage_and_collation_and_names() {
    let engine = |spec: Bson, code| create(doc! { "storageEngine": spec }, code);
    let collation = |name: &str, value: Bson, code| {
        let mut spec = doc! { "locale": "en" };
        spec.insert(name, value);
        create(doc! { "collation": spec }, code)
    };
    let named = |name: &str, code| (doc! { "create": name }, code);
    check(
        &[],
        vec![
            engine(bson!({}), 0),
            engine(bson!({ "wiredTiger": { "configString": "" } }), 0),
            engine(bson!({ "other": {} }), 72),
            engine(bson!({ "wiredTiger": "x" }), 2),
            engine(bson!({ "wiredTiger": { "bad": "x" } }), 72),
            engine(bson!({ "wiredTiger": { "configString": "invalid=bad" } }), 2),
            engine(bson!({ "wiredTiger": { "configString": "a\0b" } }), 9),
            create(doc! { "indexOptionDefaults": {} }, 0),
            create(doc! { "indexOptionDefaults": { "x": 1 } }, 40415),
            collation("strength", decimal("2.5"), 0),
            collation("strength", decimal("5.5"), 2),
            collation("strength", Bson::Double(f64::NAN), 2),
            collation("strength", Bson::Boolean(true), 14),
            collation("caseLevel", Bson::Null, 0),
            collation("backwards", Bson::Null, 14),
            named("c.", 0),
            named(".c", 73),
            named("c$d", 73),
            named("system.other", 73),
            named("system.views", 73),
            named("system.users", 73),
            named("system.indexes", 73),
            named("system.namespaces", 73),
            named("system.", 73),
            named("systems", 0),
            named("system.js", 0),
            named("system.profile", 0),
            (doc! { "create": "system.views", "viewOn": "c", "pipeline": [] }, 73),
            (doc! { "insert": "system.views", "documents": [{ "_id": 1 }] }, 73),
            (
                doc! { "createIndexes": "system.views", "indexes": [{ "key": { "a": 1 }, "name": "a" }] },
                73,
            ),
            named("system.buckets.c", 20),
            (doc! { "create": 5 }, 73),
        ],
    );
    let again = |options: Document, code| {
        check(&[doc! { "create": "c" }], vec![create(options, code)]);
    };
    again(doc! { "storageEngine": {} }, 0);
    again(doc! { "indexOptionDefaults": {} }, 0);
    again(doc! { "changeStreamPreAndPostImages": { "enabled": false } }, 0);
    again(doc! { "validationLevel": "strict" }, 48);
    again(doc! { "validator": { "x": 1 } }, 48);
    again(doc! { "viewOn": "o" }, 48);
}

#[test]
fn a_view_drops_what_it_cannot_use_and_refuses_stages_that_it_cannot_run() {
    let view = |extra: Document, code| {
        let mut options = doc! { "viewOn": "o", "pipeline": [] };
        options.extend(extra);
        create(options, code)
    };
    let stages = |pipeline: Bson, code| create(doc! { "viewOn": "o", "pipeline": pipeline }, code);
    let mut nested = bson!([{ "$match": { "x": 1 } }]);
    for _ in 0..21 {
        nested = bson!([{ "$lookup": { "from": "s", "pipeline": nested, "as": "x" } }]);
    }
    let many = |count: usize| Bson::Array(vec![bson!({ "$match": { "x": 1 } }); count]);
    check(
        &[],
        vec![
            create(doc! { "viewOn": Bson::Null }, 0),
            view(doc! { "capped": true, "size": 4096, "max": 3 }, 0),
            view(doc! { "validator": { "x": 1 } }, 0),
            view(doc! { "validationLevel": "strict" }, 0),
            view(doc! { "storageEngine": { "wiredTiger": { "configString": "" } } }, 0),
            view(doc! { "collation": { "locale": "en" } }, 0),
            view(doc! { "capped": true }, 72),
            view(doc! { "validationLevel": "bogus" }, 2),
            view(doc! { "storageEngine": { "other": {} } }, 72),
            stages(Bson::Null, 0),
            stages(bson!([null, { "$match": { "x": 1 } }, null]), 0),
            stages(bson!([5]), 14),
            stages(bson!([{}]), 40323),
            stages(bson!([{ "$bad": {} }]), 40324),
            stages(bson!([{ "$out": "x" }]), 167),
            stages(bson!([{ "$merge": { "into": "x" } }]), 167),
            stages(bson!([{ "$changeStream": {} }]), 167),
            stages(bson!([{ "$currentOp": {} }]), 73),
            stages(bson!([{ "$listSessions": {} }]), 73),
            stages(bson!([{ "$listLocalSessions": {} }]), 73),
            stages(bson!([{ "$documents": [{ "x": 1 }] }]), 73),
            stages(bson!([{ "$facet": { "a": [{ "$out": "x" }] } }]), 40600),
            stages(
                bson!([{ "$unionWith": { "coll": "o", "pipeline": [{ "$out": "x" }] } }]),
                31441,
            ),
            stages(many(1000), 0),
            stages(many(1001), 7_749_501),
            stages(nested, 232),
            create(doc! { "viewOn": "" }, 2),
            create(doc! { "pipeline": [] }, 72),
        ],
    );
}

#[test]
fn validators_refuse_what_cannot_be_asked_of_one_document() {
    let of = |validator: Bson, code| create(doc! { "validator": validator }, code);
    let schema = |schema: Bson, code| of(bson!({ "$jsonSchema": schema }), code);
    check(
        &[],
        vec![
            of(bson!({ "$where": "true" }), 2),
            of(bson!({ "$text": { "$search": "x" } }), 2),
            of(bson!({ "loc": { "$near": [0, 0] } }), 5_626_500),
            of(bson!({ "loc": { "$nearSphere": [0, 0] } }), 5_626_500),
            of(bson!({ "$badOp": 1 }), 2),
            of(bson!({ "$expr": { "$badOp": 1 } }), 168),
            schema(bson!({ "unknownKeyword": true }), 9),
            schema(bson!({ "properties": { "x": { "type": "integer" } } }), 9),
            schema(bson!({ "properties": { "x": { "type": "string", "bsonType": "string" } } }), 9),
            create(doc! { "validationLevel": "Off" }, 2),
            create(doc! { "validationAction": "" }, 2),
        ],
    );
}

#[test]
fn coll_mod_looks_before_it_changes() {
    let plain = [
        doc! { "create": "c" },
        doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] },
    ];
    let of = |options: Document, code| {
        let mut command = doc! { "collMod": "c" };
        command.extend(options);
        (command, code)
    };
    check(
        &plain,
        vec![
            of(doc! { "index": Bson::Null, "validator": Bson::Null, "viewOn": Bson::Null }, 0),
            of(doc! { "index": {} }, 72),
            of(doc! { "index": { "name": "a_1", "bogus": 1 } }, 40415),
            of(doc! { "index": { "name": "a_1", "hidden": true }, "validator": { "a": 1 } }, 0),
            of(doc! { "index": { "name": "none", "hidden": true }, "validator": { "a": 1 } }, 27),
            of(doc! { "index": { "keyPattern": { "z": 1 }, "hidden": true } }, 27),
            of(doc! { "viewOn": "o" }, 72),
            of(doc! { "pipeline": [] }, 72),
            of(doc! { "cappedSize": 100 }, 72),
            of(doc! { "changeStreamPreAndPostImages": { "enabled": true } }, 0),
            of(doc! { "changeStreamPreAndPostImages": {} }, 40414),
            of(doc! { "expireAfterSeconds": "off" }, 72),
            of(doc! { "CappedSize": 100 }, 40415),
            (doc! { "collMod": "none" }, 26),
        ],
    );
    let series = [doc! { "create": "c", "timeseries": { "timeField": "t" } }];
    check(
        &series,
        vec![
            of(doc! { "timeseries": {}, "cappedSize": 100_000 }, 0),
            of(doc! { "timeseries": {}, "cappedMax": 1000 }, 0),
            of(doc! { "index": { "name": "none", "hidden": true } }, 27),
            of(doc! { "expireAfterSeconds": 9_999_999_999_i64 }, 72),
            of(doc! { "expireAfterSeconds": "never" }, 72),
        ],
    );
    let view = [doc! { "create": "c", "viewOn": "o", "pipeline": [] }];
    check(
        &view,
        vec![
            of(doc! { "index": { "name": "a_1", "hidden": true } }, 72),
            of(doc! { "viewOn": "p", "pipeline": [null] }, 0),
            of(doc! { "validator": { "a": 1 } }, 72),
        ],
    );
}

#[test]
fn capped_copies_and_conversions_have_one_refusal_for_sizes() {
    let convert = |size: Bson, code| (doc! { "convertToCapped": "c", "size": size }, code);
    let clone = |to: Bson, code| {
        (doc! { "cloneCollectionAsCapped": "c", "toCollection": to, "size": 4096 }, code)
    };
    let plain = [doc! { "create": "c" }, doc! { "create": "v", "viewOn": "c" }];
    check(
        &plain,
        vec![
            convert(Bson::Double(3.9), 0),
            convert(decimal("0.51"), 0),
            convert(Bson::Double(0.9), 72),
            convert(Bson::Int32(-1), 72),
            convert(Bson::String("4096".into()), 72),
            convert(Bson::Null, 72),
            convert(Bson::Double(f64::INFINITY), 2),
            (doc! { "convertToCapped": "c" }, 72),
            (doc! { "convertToCapped": "none", "size": 1 }, 26),
            (doc! { "convertToCapped": "v", "size": 1 }, 166),
            clone(Bson::String("d".into()), 0),
            clone(Bson::String("c".into()), 48),
            clone(Bson::String("v".into()), 166),
            clone(Bson::String("system.buckets.x".into()), 20),
            clone(Bson::Int32(5), 14),
            clone(Bson::Null, 14),
            (doc! { "cloneCollectionAsCapped": "c", "size": 4096 }, 14),
            (doc! { "cloneCollectionAsCapped": 5, "toCollection": "d", "size": 4096 }, 14),
            (doc! { "cloneCollectionAsCapped": "c", "toCollection": "d" }, 72),
            (doc! { "cloneCollectionAsCapped": "none", "toCollection": "d", "size": 9 }, 26),
            (doc! { "cloneCollectionAsCapped": "v", "toCollection": "d", "size": 9 }, 166),
        ],
    );
    let series = [doc! { "create": "c", "timeseries": { "timeField": "t" } }];
    check(&series, vec![convert(Bson::Int32(5), 166), clone(Bson::String("d".into()), 166)]);
}

#[test]
fn names_are_dropped_and_changed_by_the_rules() {
    let rename = |extra: Document, code| {
        let mut command = doc! { "renameCollection": "db.c" };
        command.extend(extra);
        (command, code)
    };
    let uuid = Bson::from(Uuid::from_bytes([1; 16]));
    let drop = |value: Bson, code| (doc! { "dropDatabase": value }, code);
    let index = |value: Bson, code| (doc! { "dropIndexes": "c", "index": value }, code);
    let setup = [
        doc! { "create": "c" },
        doc! { "create": "d" },
        doc! { "create": "v", "viewOn": "c" },
        doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] },
    ];
    check(
        &setup,
        vec![
            rename(doc! { "to": "db.e" }, 0),
            rename(doc! {}, 40414),
            rename(doc! { "to": Bson::Null }, 40414),
            rename(doc! { "to": 5 }, 14),
            rename(doc! { "to": "db" }, 73),
            rename(doc! { "to": "db.d" }, 48),
            rename(doc! { "to": "db.d", "dropTarget": true }, 0),
            rename(doc! { "to": "db.d", "dropTarget": uuid }, 48),
            rename(doc! { "to": "db.e", "dropTarget": Bson::Null }, 14),
            rename(doc! { "to": "db.e", "dropTarget": 1 }, 14),
            (doc! { "renameCollection": 5, "to": "db.e" }, 14),
            (doc! { "renameCollection": "db.v", "to": "db.e" }, 166),
            (doc! { "renameCollection": "db.none", "to": "db.e" }, 26),
            drop(Bson::Double(1.9), 0),
            drop(decimal("0.9"), 0),
            drop(Bson::Null, 40414),
            drop(Bson::Boolean(true), 14),
            drop(Bson::String("1".into()), 14),
            drop(Bson::Int32(2), 5_255_100),
            drop(Bson::Double(0.9), 5_255_100),
            drop(decimal("1.5"), 5_255_100),
            drop(Bson::Double(f64::NAN), 5_255_100),
            index(bson!("a_1"), 0),
            index(bson!(["a_1"]), 0),
            index(bson!(["a_1", "a_1"]), 27),
            index(bson!(["a_1", "none"]), 27),
            index(bson!(["a_1", "_id_"]), 72),
            index(bson!({ "_id": 1 }), 72),
            index(bson!({}), 27),
            index(bson!(""), 27),
            index(bson!([1]), 14),
            index(Bson::Null, 14),
            (doc! { "dropIndexes": "c" }, 40414),
            (doc! { "dropIndexes": "none", "index": "*" }, 26),
            (doc! { "dropIndexes": "v", "index": "*" }, 166),
            (doc! { "dropIndexes": "", "index": "*" }, 73),
            (doc! { "listIndexes": "v" }, 166),
            (doc! { "listIndexes": "" }, 73),
            (doc! { "listIndexes": "c", "cursor": { "x": 1 } }, 40415),
            (
                doc! { "listIndexes": "c", "includeBuildUUIDs": true, "includeIndexBuildInfo": true },
                72,
            ),
        ],
    );
}
