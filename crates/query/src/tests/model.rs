//! Whatever the indexes, a query gives what a walk over the collection gives.

use super::*;
use bsonval::SortPattern;

pub(super) fn scalar() -> impl Strategy<Value = Bson> {
    prop_oneof![
        4 => (-2..4).prop_map(Bson::Int32),
        1 => (-2..4).prop_map(|n| Bson::Double(f64::from(n) + 0.5)),
        1 => (0..3i64).prop_map(Bson::Int64),
        1 => Just(Bson::Null),
        2 => "[abAB]{0,2}".prop_map(Bson::String),
        1 => any::<bool>().prop_map(Bson::Boolean),
    ]
}

fn value() -> impl Strategy<Value = Bson> {
    prop_oneof![
        4 => scalar(),
        2 => prop::collection::vec(scalar(), 0..3).prop_map(Bson::Array),
        1 => scalar().prop_map(|v| Bson::Document(doc! { "c": v })),
        1 => prop::collection::vec(
            (scalar(), scalar()).prop_map(|(c, d)| Bson::Document(doc! { "c": c, "d": d })), 0..3)
            .prop_map(Bson::Array),
    ]
}

pub(super) fn document() -> impl Strategy<Value = Document> {
    (prop::option::weighted(0.8, value()), prop::option::weighted(0.8, value())).prop_map(
        |(a, b)| {
            let mut document = Document::new();
            if let Some(a) = a {
                document.insert("a", a);
            }
            if let Some(b) = b {
                document.insert("b", b);
            }
            document
        },
    )
}

pub(super) fn path() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("a.c"), Just("a.d"), Just("_id")]
}

fn predicate() -> impl Strategy<Value = Bson> {
    let comparison = (
        prop_oneof![Just("$eq"), Just("$gt"), Just("$gte"), Just("$lt"), Just("$lte"), Just("$ne")],
        value(),
    )
        .prop_map(|(op, v)| doc! { op: v });
    let range = (-2..3, 0..4).prop_map(|(low, width)| doc! { "$gte": low, "$lt": low + width });
    prop_oneof![
        4 => comparison.prop_map(Bson::Document),
        2 => range.clone().prop_map(Bson::Document),
        1 => range.prop_map(|r| Bson::Document(doc! { "$elemMatch": r })),
        2 => prop::collection::vec(scalar(), 0..4).prop_map(|v| Bson::Document(doc! { "$in": v })),
        1 => prop::collection::vec(scalar(), 0..3).prop_map(|v| Bson::Document(doc! { "$nin": v })),
        1 => any::<bool>().prop_map(|b| Bson::Document(doc! { "$exists": b })),
        1 => "\\^?[ab]".prop_map(|p| Bson::Document(doc! { "$regex": p })),
        1 => Just(Bson::Document(doc! { "$elemMatch": { "c": { "$gte": 0 }, "d": { "$lt": 3 } } })),
        2 => value(),
    ]
}

pub(super) fn filter() -> impl Strategy<Value = Document> {
    let leaf = (path(), predicate()).prop_map(|(p, v)| doc! { p: v });
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 1..3).prop_map(|v| doc! { "$and": v }),
            1 => prop::collection::vec(inner.clone(), 1..3).prop_map(|v| doc! { "$or": v }),
            1 => prop::collection::vec(inner, 1..3).prop_map(|v| doc! { "$nor": v }),
        ]
    })
}

pub(super) fn sort() -> impl Strategy<Value = Document> {
    let direction = prop_oneof![Just(1), Just(-1)];
    prop::collection::vec((path(), direction), 0..3)
        .prop_map(|parts| parts.into_iter().map(|(p, d)| (p.to_owned(), Bson::Int32(d))).collect())
}

pub(super) const INDEXES: [&[(&str, i32)]; 11] = [
    &[("a", 1)],
    &[("a", -1), ("b", 1)],
    &[("b", 1), ("a", 1)],
    &[("a.c", 1)],
    &[("a.c", 1), ("a.d", -1)],
    &[("b", -1), ("a.c", 1)],
    &[("a.d", 1), ("b", 1)],
    &[("$**", 1)],
    &[("a.$**", -1)],
    &[("b", 1), ("a.$**", 1)],
    &[("a.$**", 1), ("b", -1)],
];

/// Options of a collection: in most cases with a primary key or partitions.
pub(super) fn primary_key() -> impl Strategy<Value = Document> {
    prop_oneof![
        5 => Just(doc! {}),
        1 => Just(doc! { "primaryKey": { "a": 1, "_id": 1 } }),
        1 => Just(doc! { "primaryKey": { "b": -1, "_id": 1 } }),
        1 => Just(doc! { "primaryKey": { "a.c": -1, "b": 1, "_id": 1 } }),
        1 => Just(doc! { "primaryKey": { "b": 1, "a": -1, "_id": 1 } }),
        1 => Just(doc! { "primaryKey": { "a.d": 1, "_id": 1 } }),
        2 => Just(doc! { "primaryKey": { "a": 1, "_id": 1 }, "partitioned": true }),
        1 => Just(doc! { "primaryKey": { "b": -1, "_id": 1 }, "partitioned": true }),
        1 => Just(doc! { "primaryKey": { "b": 1, "a": -1, "_id": 1 }, "partitioned": true }),
        1 => Just(doc! { "partitioned": true }),
    ]
}

pub(super) fn ids(documents: &[Document]) -> Vec<i32> {
    documents.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

fn ask(room: &Room, filter: &Document, sort: &Document, natural: bool) -> Result<Vec<Document>> {
    let (filter, sort) = (raw(filter), raw(sort));
    let hint = raw(&doc! { "$natural": 1 });
    room.find_with(&FindRequest {
        filter: Some(&filter),
        sort: Some(&sort),
        hint: natural.then_some(RawBsonRef::Document(&hint)),
        ..FindRequest::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn index_plans_give_what_a_collection_scan_gives(
        documents in prop::collection::vec(document(), 1..12),
        chosen in prop::collection::vec((0..INDEXES.len(), any::<bool>()), 0..3),
        primary_key in primary_key(),
        filter in filter(),
        sort in sort(),
    ) {
        let mut sparse_of = std::collections::BTreeMap::new();
        for (at, sparse) in chosen {
            sparse_of.entry(at).or_insert(sparse);
        }
        let room = Room::of(&primary_key);
        let mut indexes = sparse_of.iter();
        // One index before the documents, the others over them.
        let build = |(at, sparse): (&usize, &bool)| {
            let key: Document = INDEXES[*at]
                .iter()
                .map(|(path, direction)| ((*path).to_owned(), Bson::Int32(*direction)))
                .collect();
            let sparse = *sparse && !key.keys().any(|path| path.ends_with("$**"));
            let mut spec = doc! { "key": key.clone(), "name": format!("{at}") };
            spec.extend(sparse.then(|| ("sparse".to_owned(), Bson::Boolean(true))));
            let spec = IndexSpec::parse(&raw(&spec)).unwrap();
            drop(room.catalog.create_indexes(&room.ns, &[spec], &|| Ok(())));
        };
        if let Some(index) = indexes.next() {
            build(index);
        }
        for (id, document) in documents.iter().enumerate() {
            let mut whole = doc! { "_id": id as i32 };
            whole.extend(document.clone());
            // Parallel arrays may be refused, and arrays in a primary key: then it is in neither result.
            room.insert(&[whole]);
            if id % 3 == 2 {
                // It ends at what is there; a collection without partitions has no end.
                drop(room.catalog.add_partition(&room.ns, None, &|| Ok(())));
            }
        }
        indexes.for_each(build);
        room.check_valid();

        let expected = ask(&room, &filter, &sort, true);
        let found = ask(&room, &filter, &sort, false);
        let (expected, found) = match (expected, found) {
            (Ok(expected), Ok(found)) => (expected, found),
            (Err(_), _) | (_, Err(_)) if !sort.is_empty() => return Ok(()),
            (expected, found) => {
                prop_assert_eq!(expected.is_err(), found.is_err());
                return Ok(());
            }
        };
        let (mut left, mut right) = (ids(&expected), ids(&found));
        left.sort_unstable();
        right.sort_unstable();
        let plan = room.explain(filter.clone(), sort.clone());
        prop_assert_eq!(&left, &right, "{} by {}: {}", filter, sort, plan);
        if !sort.is_empty() {
            let pattern = SortPattern::parse(&raw(&sort)).unwrap();
            let keys = |documents: &[Document]| -> Vec<Vec<u8>> {
                documents.iter().map(|d| pattern.key(&raw(d), None).unwrap()).collect()
            };
            prop_assert_eq!(keys(&expected), keys(&found), "order of {} by {}: {}", filter, sort, plan);
        }
        let raw_filter = raw(&filter);
        let request = CountRequest { filter: Some(&raw_filter), ..CountRequest::default() };
        let counted = count(&mut room.ctx(), &room.ns, &request).unwrap();
        prop_assert_eq!(counted, left.len() as i64, "count {} with {}", filter, plan);
    }
}
