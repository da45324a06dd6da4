//! `$text`: plans, scores, rules, and that an index finds what a walk over the documents finds.

use super::*;
use matcher::{Filter, ParseContext};
use std::collections::BTreeMap;

fn shops() -> Room {
    let room = Room::with(&[
        doc! { "_id": 1, "name": "Java Hut", "description": "Coffee and cakes", "n": 1 },
        doc! { "_id": 2, "name": "Burger Buns", "description": "Gourmet hamburgers", "n": 2 },
        doc! { "_id": 3, "name": "Coffee Shop", "description": "Just coffee", "n": 3 },
        doc! { "_id": 4, "name": "Clothes Clothes Clothes", "description": "Discount clothing" },
        doc! { "_id": 5, "name": "Java Shopping", "description": "Indonesian goods", "n": 5 },
    ]);
    room.index(doc! { "key": { "name": "text", "description": "text" } });
    room
}

fn search(text: &str) -> Document {
    doc! { "$text": { "$search": text } }
}

fn score() -> Document {
    doc! { "$meta": "textScore" }
}

impl Room {
    fn ask(
        &self,
        filter: &Document,
        projection: &Document,
        sort: &Document,
    ) -> Result<Vec<Document>> {
        let (filter, projection, sort) = (raw(filter), raw(projection), raw(sort));
        self.find_with(&FindRequest {
            filter: Some(&filter),
            projection: Some(&projection),
            sort: Some(&sort),
            ..FindRequest::default()
        })
    }

    fn run(&self, pipeline: &[Document]) -> Result<Vec<Document>> {
        let stages: Vec<RawDocumentBuf> = pipeline.iter().map(raw).collect();
        let stages: RawArrayBuf = stages.iter().map(|stage| &**stage).collect();
        let request = AggregateRequest {
            pipeline: &stages,
            let_variables: None,
            hint: None,
            collation: None,
            allow_disk_use: None,
        };
        let target = AggregateTarget::Collection(self.ns.clone());
        let mut cursor = aggregate(&mut self.ctx(), &target, &request)?;
        let mut out = Vec::new();
        while let Some(document) = cursor.next()? {
            out.push(Document::try_from(document).unwrap());
        }
        Ok(out)
    }
}

fn ids(documents: &[Document]) -> Vec<i32> {
    let mut ids: Vec<i32> = documents.iter().map(|d| d.get_i32("_id").unwrap()).collect();
    ids.sort_unstable();
    ids
}

fn code_of<T: std::fmt::Debug>(result: Result<T>) -> (i32, String) {
    let error = result.unwrap_err();
    (error.code().0, error.message().to_owned())
}

#[test]
fn searches_find_what_they_name() {
    let room = shops();
    for (text, expected) in [
        ("java coffee shop", vec![1, 3, 5]),
        ("java shop -coffee", vec![5]),
        ("\"coffee shop\"", vec![3]),
        ("JAVA -\"hut\"", vec![5]),
        ("shops", vec![3, 5]),
        ("clothing", vec![4]),
        ("nothing of it", vec![]),
        ("-java", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(ids(&room.find(search(text))), expected, "{text}");
        let filter = raw(&search(text));
        let request = CountRequest { filter: Some(&filter), ..CountRequest::default() };
        assert_eq!(count(&mut room.ctx(), &room.ns, &request).unwrap(), expected.len() as i64);
    }
    let mut both = search("java coffee");
    both.insert("n", doc! { "$gt": 1 });
    assert_eq!(ids(&room.find(both)), [3, 5]);
}

#[test]
fn scores_are_those_of_mongodbs_documentation() {
    let room = shops();
    let projection = doc! { "_id": 1, "score": score() };
    let found = room.ask(&search("java coffee shop"), &projection, &doc! { "score": score() });
    let found = found.unwrap();
    assert_eq!(found[0], doc! { "_id": 3, "score": 2.25 });
    let others: Vec<f64> = found[1..].iter().map(|d| d.get_f64("score").unwrap()).collect();
    assert_eq!(others, [1.5, 1.5]);
    // Sorted by the score without showing it, and shown beside whole documents.
    let sorted = room.ask(&search("java coffee shop"), &doc! {}, &doc! { "s": score() }).unwrap();
    let first = doc! { "_id": 3, "name": "Coffee Shop", "description": "Just coffee", "n": 3 };
    assert_eq!(sorted[0], first);
    let with_all = room.ask(&search("burger"), &doc! { "score": score() }, &doc! {}).unwrap();
    assert_eq!(
        with_all[0].keys().collect::<Vec<_>>(),
        ["_id", "name", "description", "n", "score"]
    );
    let by_id = room.ask(&search("java"), &projection, &doc! { "s": score(), "_id": -1 }).unwrap();
    assert_eq!(by_id.iter().map(|d| d.get_i32("_id").unwrap()).collect::<Vec<_>>(), [5, 1]);
}

#[test]
fn plans_are_shown_as_mongodb_shows_them() {
    let room = shops();
    assert_eq!(stages(&room.explain(search("java"), doc! {})), ["TEXT_MATCH", "FETCH", "IXSCAN"]);
    assert_eq!(stages(&room.explain(search("java hut"), doc! {})), ["TEXT_MATCH", "FETCH", "OR"]);
    let sorted = room.explain(search("java -\"big hut\" -shop"), doc! { "s": score() });
    assert_eq!(stages(&sorted), ["SORT", "TEXT_MATCH", "TEXT_OR", "IXSCAN"]);
    let plan = sorted.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    assert_eq!(plan.get_document("sortPattern").unwrap(), &doc! { "s": score() });
    let matching = plan.get_document("inputStage").unwrap();
    assert_eq!(matching.get_str("indexName").unwrap(), "name_text_description_text");
    assert_eq!(matching.get_i32("textIndexVersion").unwrap(), 3);
    let parsed = doc! { "terms": ["java"], "negatedTerms": ["shop"], "phrases": [], "negatedPhrases": ["big hut"] };
    assert_eq!(matching.get_document("parsedTextQuery").unwrap(), &parsed);
    let scan = matching.get_document("inputStage").unwrap().get_document("inputStage").unwrap();
    assert_eq!(scan.get_document("keyPattern").unwrap(), &doc! { "_fts": "text", "_ftsx": 1 });
    assert_eq!(scan.get_document("indexBounds").unwrap(), &doc! {});
    assert_eq!(scan.get_str("direction").unwrap(), "backward");
    let query = sorted.get_document("queryPlanner").unwrap().get_document("parsedQuery").unwrap();
    assert_eq!(query.get_document("$text").unwrap().get_str("$language").unwrap(), "english");
    let ran = sorted.get_document("executionStats").unwrap();
    assert_eq!(ran.get_i32("nReturned").unwrap(), 1);
    assert_eq!(ran.get_i32("totalKeysExamined").unwrap(), 2);
}

#[test]
fn prefixes_are_asked_for_and_suffixes_are_not() {
    let room = Room::with(&[
        doc! { "_id": 1, "p": 1, "a": "green tea", "s": 1 },
        doc! { "_id": 2, "p": 2, "a": "green tea", "s": 2 },
        doc! { "_id": 3, "p": 2, "a": "black tea", "s": 3 },
        doc! { "_id": 4, "a": "black tea", "s": 3 },
    ]);
    room.index(doc! { "key": { "p": 1, "a": "text", "s": 1 } });
    let with = |extra: Document| {
        let mut filter = search("tea");
        filter.extend(extra);
        filter
    };
    assert_eq!(ids(&room.find(with(doc! { "p": 2 }))), [2, 3]);
    assert_eq!(ids(&room.find(with(doc! { "p": 2.0, "s": { "$gt": 2 } }))), [3]);
    assert_eq!(ids(&room.find(with(doc! { "p": null }))), [4]);
    let plan = room.explain(with(doc! { "p": 2 }), doc! {});
    let plan = plan.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    assert_eq!(plan.get_document("indexPrefix").unwrap(), &doc! { "p": 2 });
    for filter in [search("tea"), with(doc! { "p": { "$in": [1, 2] } })] {
        let (code, message) = code_of(room.ask(&filter, &doc! {}, &doc! {}));
        assert_eq!(code, 291, "{message}");
        assert!(message.contains("are equality predicates given for all prefix fields?"));
    }
    let result = room.insert(&[doc! { "_id": 9, "p": [1], "a": "tea" }]);
    assert_eq!(result.errors[0].error.code(), Code::CANNOT_BUILD_INDEX_KEYS);
}

#[test]
fn what_cannot_stand_beside_a_search_is_refused() {
    let room = shops();
    let hint = RawBsonRef::String("name_text_description_text");
    let filter = raw(&search("java"));
    let hinted = FindRequest { filter: Some(&filter), hint: Some(hint), ..FindRequest::default() };
    assert_eq!(
        code_of(room.find_with(&hinted)),
        (2, "text and hint not allowed in same query".to_owned())
    );
    let (code, _) =
        code_of(room.find_with(&FindRequest { hint: Some(hint), ..FindRequest::default() }));
    assert_eq!(code, 291);
    let natural = room.ask(&search("java"), &doc! {}, &doc! { "$natural": 1 });
    assert_eq!(code_of(natural).1, "text expression not allowed with $natural sort order");
    let lonely = [
        room.ask(&doc! {}, &doc! { "s": score() }, &doc! {}),
        room.ask(&doc! {}, &doc! {}, &doc! { "s": score() }),
        room.run(&[doc! { "$project": { "s": score() } }]),
        room.run(&[doc! { "$sort": { "s": score() } }]),
        room.run(&[
            doc! { "$match": search("x") },
            doc! { "$group": { "_id": 1 } },
            doc! { "$set": { "s": score() } },
        ]),
    ];
    for result in lonely {
        let expected = "query requires text score metadata, but it is not available";
        assert_eq!(code_of(result), (40218, expected.to_owned()));
    }
    for pipeline in [
        vec![doc! { "$limit": 1 }, doc! { "$match": search("java") }],
        vec![doc! { "$facet": { "f": [{ "$match": search("java") }] } }],
    ] {
        assert_eq!(code_of(room.run(&pipeline)).0, 17313);
    }
    let language = doc! { "$text": { "$search": "x", "$language": "elvish" } };
    assert_eq!(code_of(room.ask(&language, &doc! {}, &doc! {})).0, 2);

    let empty = Room::new();
    let missing = (27, "text index required for $text query".to_owned());
    assert_eq!(code_of(empty.ask(&search("x"), &doc! {}, &doc! {})), missing);
    empty.insert(&[doc! { "_id": 1 }]);
    assert_eq!(code_of(empty.ask(&search("x"), &doc! {}, &doc! {})), missing);
    assert_eq!(code_of(empty.run(&[doc! { "$match": search("x") }])), missing);
}

#[test]
fn a_search_in_an_or_needs_indexes_beside_it() {
    let room = shops();
    let either = |other: Document| doc! { "$or": [other, search("burger")] };
    let (code, message) = code_of(room.ask(&either(doc! { "n": 3 }), &doc! {}, &doc! {}));
    assert_eq!(code, 291);
    assert!(message.contains("other non-TEXT clauses under OR have to be indexed as well"));
    room.index(doc! { "key": { "n": 1 } });
    assert_eq!(ids(&room.find(either(doc! { "n": 3 }))), [2, 3]);
    let scored = room.ask(&either(doc! { "n": 2 }), &doc! { "s": score() }, &doc! {}).unwrap();
    assert_eq!((scored.len(), scored[0].get_f64("s").unwrap()), (1, 0.75));
}

#[test]
fn pipelines_search_and_carry_the_score() {
    let room = shops();
    let found = room.run(&[
        doc! { "$match": search("java coffee shop") },
        doc! { "$sort": { "s": score(), "_id": 1 } },
        doc! { "$project": { "_id": 1, "s": score() } },
    ]);
    let expected =
        [doc! { "_id": 3, "s": 2.25 }, doc! { "_id": 1, "s": 1.5 }, doc! { "_id": 5, "s": 1.5 }];
    assert_eq!(found.unwrap(), expected);
    // Through stages that change the document; what is whole is without the score.
    let found = room.run(&[
        doc! { "$match": search("burger") },
        doc! { "$project": { "name": 1, "_id": 0 } },
        doc! { "$replaceRoot": { "newRoot": { "inner": "$$ROOT" } } },
        doc! { "$addFields": { "s": score(), "twice": { "$multiply": [score(), 2] } } },
        doc! { "$match": { "s": { "$gt": 0.5 } } },
    ]);
    let expected = doc! { "inner": { "name": "Burger Buns" }, "s": 0.75, "twice": 1.5 };
    assert_eq!(found.unwrap(), [expected]);
    let found = room.run(&[
        doc! { "$match": search("burger java") },
        doc! { "$group": { "_id": score(), "all": { "$push": "$$ROOT" } } },
        doc! { "$project": { "n": { "$size": "$all" }, "one": { "$first": "$all.name" } } },
        doc! { "$sort": { "one": 1 } },
    ]);
    assert_eq!(found.unwrap().iter().map(|d| d.get_i32("n").unwrap()).sum::<i32>(), 3);
    let facet = doc! { "$facet": { "f": [{ "$sort": { "s": score() } }, { "$limit": 1 }] } };
    let found = room.run(&[doc! { "$match": search("coffee") }, facet]).unwrap();
    let expected = doc! { "_id": 3, "name": "Coffee Shop", "description": "Just coffee", "n": 3 };
    assert_eq!(found, [doc! { "f": [expected] }]);
    // Without a score nothing is carried.
    let found = room.run(&[doc! { "$match": search("coffee") }, doc! { "$count": "n" }]);
    assert_eq!(found.unwrap(), [doc! { "n": 2 }]);
    // In a sub-pipeline, which has a score of its own.
    let inner =
        [doc! { "$match": search("burger") }, doc! { "$project": { "_id": 0, "s": score() } }];
    let lookup = doc! { "$lookup": { "from": "c", "as": "l", "pipeline": inner.to_vec() } };
    let found =
        room.run(&[doc! { "$match": { "_id": 1 } }, lookup, doc! { "$project": { "l": 1 } }]);
    assert_eq!(found.unwrap(), [doc! { "_id": 1, "l": [{ "s": 0.75 }] }]);
    let out = [
        doc! { "$match": search("burger") },
        doc! { "$set": { "s": score() } },
        doc! { "$out": "o" },
    ];
    room.run(&out).unwrap();
    let written =
        Room { catalog: Arc::clone(&room.catalog), ns: Namespace::parse("db.o").unwrap() };
    assert_eq!(written.find(doc! {})[0].keys().last().unwrap(), "s");
    assert_eq!(written.find(doc! {})[0].keys().next().unwrap(), "_id");
}

#[test]
fn writes_search_too() {
    let room = shops();
    let (filter, change) = (raw(&search("java")), raw(&doc! { "$set": { "name": "Tea Hut" } }));
    let statement = UpdateStatement {
        filter: &filter,
        update: RawBsonRef::Document(&change),
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
    assert_eq!(update(&mut room.ctx(), &room.ns, &request).unwrap().n_modified, 2);
    assert!(room.find(search("java")).is_empty());
    assert_eq!(ids(&room.find(search("tea"))), [1, 5]);
    room.check_valid();

    let (filter, sort) = (raw(&search("coffee shop")), raw(&doc! { "s": score() }));
    let fields = raw(&doc! { "_id": 1, "s": score() });
    let request = FindAndModifyRequest {
        filter: Some(&filter),
        sort: Some(&sort),
        projection: Some(&fields),
        remove: true,
        ..FindAndModifyRequest::default()
    };
    let lonely = FindAndModifyRequest { filter: None, sort: None, ..request };
    assert_eq!(code_of(find_and_modify(&mut room.ctx(), &room.ns, &lonely)).0, 40218);
    let removed = find_and_modify(&mut room.ctx(), &room.ns, &request).unwrap().value.unwrap();
    assert_eq!(removed, raw(&doc! { "_id": 3, "s": 2.25 }));
    let filter = raw(&search("tea burger"));
    let statement =
        DeleteStatement { filter: &filter, only_one: false, hint: None, collation: None };
    let request = DeleteRequest { deletes: &[statement], ordered: true, let_variables: None };
    assert_eq!(delete(&mut room.ctx(), &room.ns, &request).unwrap().n, 3);
    assert_eq!(ids(&room.find(doc! {})), [4]);
    room.check_valid();
}

#[test]
fn a_partial_index_answers_what_its_filter_holds() {
    let room =
        Room::with(&[doc! { "_id": 1, "a": "tea", "n": 1 }, doc! { "_id": 2, "a": "tea", "n": 5 }]);
    room.index(doc! { "key": { "a": "text" }, "partialFilterExpression": { "n": { "$gt": 3 } } });
    let mut filter = search("tea");
    assert_eq!(code_of(room.ask(&filter, &doc! {}, &doc! {})).0, 291);
    filter.insert("n", doc! { "$gt": 4 });
    assert_eq!(ids(&room.find(filter)), [2]);
}

#[test]
fn one_text_index_is_all_a_collection_has() {
    let room = shops();
    let build = |spec: Document| {
        let spec = IndexSpec::parse(&raw(&spec)).unwrap();
        room.catalog.create_indexes(&room.ns, &[spec], &|| Ok(()))
    };
    let name = "name_text_description_text";
    let same =
        build(doc! { "key": { "name": "text", "description": "text" }, "name": name }).unwrap();
    assert_eq!(same.before, same.after);
    let (code, message) = code_of(build(doc! { "key": { "p": 1, "x": "text" }, "name": "other" }));
    assert_eq!(code, 67);
    assert!(message.ends_with(&format!("found existing text index \"{name}\"")), "{message}");
    assert_eq!(code_of(build(doc! { "key": { "x": "text" }, "name": "other" })).0, 85);
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "(tea|cake|coffee|café|run|shop)(s|ing)?",
        1 => "(The|and|Black|GREEN)",
    ]
}

fn text() -> impl Strategy<Value = Bson> {
    let words = || prop::collection::vec(word(), 0..5).prop_map(|words| words.join(" "));
    prop_oneof![
        4 => words().prop_map(Bson::String),
        1 => prop::collection::vec(words().prop_map(Bson::String), 0..3).prop_map(Bson::Array),
        1 => words().prop_map(|text| Bson::Document(doc! { "language": "fr", "a": text })),
        1 => Just(Bson::Int32(1)),
    ]
}

fn searched() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        5 => word(),
        1 => word().prop_map(|word| format!("-{word}")),
        1 => (word(), word()).prop_map(|(a, b)| format!("\"{a} {b}\"")),
        1 => word().prop_map(|word| format!("-\"{word}\"")),
    ];
    prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_index_finds_what_the_documents_say(
        documents in prop::collection::vec((text(), text()), 1..8),
        changes in prop::collection::vec((0..8, text()), 0..4),
        key in prop_oneof![
            Just(doc! { "a": "text" }),
            Just(doc! { "a": "text", "b": "text" }),
            Just(doc! { "b.a": "text" }),
            Just(doc! { "$**": "text" }),
        ],
        search in searched(),
        (case, accents) in (any::<bool>(), any::<bool>()),
    ) {
        let room = Room::new();
        room.catalog.ensure_collection(&room.ns).unwrap();
        room.index(doc! { "key": key, "weights": { "a": 3 } });
        for (id, (a, b)) in documents.iter().enumerate() {
            room.insert(&[doc! { "_id": id as i32, "a": a.clone(), "b": b.clone() }]);
        }
        for (id, b) in &changes {
            let (filter, change) = (raw(&doc! { "_id": id }), raw(&doc! { "$set": { "b": b } }));
            let statement = UpdateStatement {
                filter: &filter,
                update: RawBsonRef::Document(&change),
                multi: false,
                upsert: false,
                array_filters: None,
                hint: None,
                collation: None,
                constants: None,
                sort: None,
                is_delta: false,
            };
            let request = UpdateRequest { updates: &[statement], ordered: true, let_variables: None };
            update(&mut room.ctx(), &room.ns, &request).unwrap();
        }
        room.check_valid();

        let filter = doc! { "$text": { "$search": search, "$caseSensitive": case, "$diacriticSensitive": accents } };
        let collection = room.catalog.collection(&room.ns).unwrap();
        let fields = collection.indexes()[0].spec().text.as_ref().unwrap().fields();
        let ctx = ParseContext { text: true, ..ParseContext::default() };
        let bound = Filter::parse(&raw(&filter), &ctx).unwrap().bind_text(fields).unwrap();
        let terms = bound.text().unwrap().search().unwrap().query().index_terms().clone();
        let mut expected = BTreeMap::new();
        for document in room.find(doc! {}) {
            let raw = raw(&document);
            if bound.matches(&raw).unwrap() {
                let scores = fields.scores(&raw).unwrap();
                let score: f64 = terms.iter().filter_map(|term| scores.get(term)).sum();
                expected.insert(document.get_i32("_id").unwrap(), format!("{score:.9}"));
            }
        }
        let shown = doc! { "_id": 1, "s": score() };
        let mut last = f64::INFINITY;
        let mut found = BTreeMap::new();
        for document in room.ask(&filter, &shown, &doc! { "s": score() }).unwrap() {
            let score = document.get_f64("s").unwrap();
            prop_assert!(score <= last);
            last = score;
            found.insert(document.get_i32("_id").unwrap(), format!("{score:.9}"));
        }
        prop_assert_eq!(&found, &expected, "{}", filter);
        prop_assert_eq!(ids(&room.find(filter)), found.into_keys().collect::<Vec<_>>());
    }
}
