//! Collations: whatever the collations of collection, indexes and query are, plans give what a
//! walk over the collection gives, and an index serves strings only in its own order.

use super::model::{INDEXES, document, filter, ids, primary_key, sort};
use super::*;
use bsonval::SortPattern;

/// What a client may say about strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Unsaid,
    Simple,
    IgnoringCase,
    IgnoringAccents,
    UpperFirst,
}

impl Order {
    fn document(self) -> Option<Document> {
        Some(match self {
            Self::Unsaid => return None,
            Self::Simple => doc! { "locale": "simple" },
            Self::IgnoringCase => doc! { "locale": "en", "strength": 2 },
            Self::IgnoringAccents => doc! { "locale": "fr_CA", "strength": 1, "backwards": false },
            Self::UpperFirst => doc! { "locale": "de", "caseFirst": "upper" },
        })
    }

    fn any() -> impl Strategy<Value = Self> {
        prop::sample::select(vec![
            Self::Unsaid,
            Self::Simple,
            Self::IgnoringCase,
            Self::IgnoringAccents,
            Self::UpperFirst,
        ])
    }
}

fn room_of(order: Order) -> Room {
    room_under(order, Document::new())
}

fn room_under(order: Order, mut options: Document) -> Room {
    options.extend(order.document().map(|c| ("collation".to_owned(), Bson::Document(c))));
    Room::of(&options)
}

fn index_of(room: &Room, key: &Document, order: Order, more: Document) {
    let name = format!("{}-{order:?}", indexkeys::default_index_name(&raw(key)));
    let mut spec = doc! { "key": key, "name": name };
    spec.extend(order.document().map(|c| ("collation".to_owned(), Bson::Document(c))));
    spec.extend(more);
    room.index(spec);
}

/// What is asked, and in which collation.
struct Question {
    filter: RawDocumentBuf,
    sort: RawDocumentBuf,
    collation: Option<RawDocumentBuf>,
}

impl Question {
    fn new(filter: &Document, sort: &Document, order: Order) -> Self {
        let collation = order.document().map(|c| raw(&c));
        Self { filter: raw(filter), sort: raw(sort), collation }
    }

    fn request(&self) -> FindRequest<'_> {
        FindRequest {
            filter: Some(&self.filter),
            sort: Some(&self.sort),
            collation: self.collation.as_deref(),
            ..FindRequest::default()
        }
    }

    fn explain(&self, room: &Room) -> Document {
        let explained =
            explain_find(&mut room.ctx(), &room.ns, &self.request(), Verbosity::ExecutionStats);
        Document::try_from(&*explained.unwrap()).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn plans_give_what_a_collection_scan_gives(
        documents in prop::collection::vec(document(), 1..12),
        chosen in prop::collection::vec((0..INDEXES.len(), Order::any(), any::<bool>()), 0..4),
        (of_collection, of_query) in (Order::any(), Order::any()),
        primary_key in primary_key(),
        filter in filter(),
        sort in sort(),
    ) {
        let room = room_under(of_collection, primary_key);
        for (id, document) in documents.iter().enumerate() {
            let mut whole = doc! { "_id": id as i32 };
            whole.extend(document.clone());
            room.insert(&[whole]);
        }
        for (at, (key, order, sparse)) in chosen.into_iter().enumerate() {
            let key: Document = INDEXES[key]
                .iter()
                .map(|(path, direction)| ((*path).to_owned(), Bson::Int32(*direction)))
                .collect();
            let sparse = sparse && !key.keys().any(|path| path.ends_with("$**"));
            let mut spec = doc! { "key": key, "name": format!("{at}") };
            spec.extend(sparse.then(|| ("sparse".to_owned(), Bson::Boolean(true))));
            spec.extend(order.document().map(|c| ("collation".to_owned(), Bson::Document(c))));
            let spec = IndexSpec::parse(&raw(&spec)).unwrap();
            // Two of the same are refused, and documents with parallel arrays.
            drop(room.catalog.create_indexes(&room.ns, &[spec], &|| Ok(())));
        }
        room.check_valid();

        let question = Question::new(&filter, &sort, of_query);
        let natural = raw(&doc! { "$natural": 1 });
        let hint = Some(RawBsonRef::Document(&natural));
        let expected = room.find_with(&FindRequest { hint, ..question.request() });
        let found = room.find_with(&question.request());
        let (Ok(expected), Ok(found)) = (expected, found) else { return Ok(()) };
        let (mut left, mut right) = (ids(&expected), ids(&found));
        left.sort_unstable();
        right.sort_unstable();
        let plan = question.explain(&room);
        prop_assert_eq!(&left, &right, "{} by {}: {}", filter, sort, plan);
        if !sort.is_empty() {
            let said = match of_query {
                Order::Unsaid => of_collection,
                said => said,
            };
            let under =
                said.document().and_then(|c| bsonval::collation::parse(&raw(&c)).unwrap());
            let pattern = SortPattern::parse(&raw(&sort)).unwrap();
            let keys = |documents: &[Document]| -> Vec<Vec<u8>> {
                documents.iter().map(|d| pattern.key(&raw(d), under.as_ref()).unwrap()).collect()
            };
            prop_assert_eq!(keys(&expected), keys(&found), "order of {} by {}: {}", filter, sort, plan);
        }
    }
}

fn words() -> Vec<Document> {
    ["b", "A", "a", "C", "B", "ä"]
        .iter()
        .enumerate()
        .map(|(id, word)| doc! { "_id": id as i32, "w": *word, "n": id as i32 % 3 })
        .collect()
}

fn check(
    room: &Room,
    (filter, sort): (Document, Document),
    order: Order,
    expected: &[i32],
    plan: &[&str],
) {
    let question = Question::new(&filter, &sort, order);
    let found = room.find_with(&question.request()).unwrap();
    assert_eq!(ids(&found), expected, "{filter} by {sort}, {order:?}");
    let explained = question.explain(room);
    assert_eq!(stages(&explained), plan, "{filter} by {sort}, {order:?}: {explained}");
}

#[test]
fn an_index_serves_texts_only_in_its_own_order() {
    use Order::{IgnoringCase, Simple, Unsaid};
    const SCAN: &[&str] = &["COLLSCAN"];
    const INDEX: &[&str] = &["FETCH", "IXSCAN"];
    let room = Room::with(&words());
    index_of(&room, &doc! { "w": 1, "n": 1 }, IgnoringCase, doc! {});
    check(&room, (doc! { "w": "B" }, doc! {}), IgnoringCase, &[0, 4], INDEX);
    check(&room, (doc! { "w": "B" }, doc! {}), Unsaid, &[4], SCAN);
    check(&room, (doc! { "w": "B" }, doc! {}), Simple, &[4], SCAN);
    check(
        &room,
        (doc! { "w": { "$gt": "a", "$lt": "C" } }, doc! {}),
        IgnoringCase,
        &[5, 0, 4],
        INDEX,
    );
    check(&room, (doc! { "w": { "$in": ["B", "c"] } }, doc! {}), IgnoringCase, &[0, 4, 3], INDEX);
    check(&room, (doc! { "w": { "$ne": "b" } }, doc! {}), IgnoringCase, &[1, 2, 5, 3], INDEX);
    check(&room, (doc! {}, doc! { "w": 1, "n": 1 }), IgnoringCase, &[1, 2, 5, 0, 4, 3], INDEX);
    check(&room, (doc! {}, doc! { "w": -1, "n": -1 }), IgnoringCase, &[3, 4, 0, 5, 2, 1], INDEX);
    check(&room, (doc! {}, doc! { "w": 1 }), Unsaid, &[1, 4, 3, 2, 0, 5], &["SORT", "COLLSCAN"]);
    // Where no text can lie, the collation does not matter.
    check(&room, (doc! { "w": { "$gt": 5 } }, doc! { "w": 1 }), Unsaid, &[], INDEX);
    check(&room, (doc! { "w": null }, doc! {}), Unsaid, &[], INDEX);
    // A pattern is about the bytes, and looks at all strings.
    check(&room, (doc! { "w": { "$regex": "^[aä]" } }, doc! {}), IgnoringCase, &[2, 5], INDEX);
    check(&room, (doc! { "w": { "$regex": "^A" } }, doc! {}), Unsaid, &[1], INDEX);
}

#[test]
fn entries_of_sort_keys_cover_nothing() {
    let room = Room::with(&words());
    index_of(&room, &doc! { "w": 1 }, Order::IgnoringCase, doc! {});
    index_of(&room, &doc! { "n": 1 }, Order::Unsaid, doc! {});
    let projection = raw(&doc! { "_id": 0, "w": 1 });
    let question = Question::new(&doc! { "w": "A" }, &doc! {}, Order::IgnoringCase);
    let request = FindRequest { projection: Some(&projection), ..question.request() };
    let found = room.find_with(&request).unwrap();
    assert_eq!(found, [doc! { "w": "A" }, doc! { "w": "a" }]);
    let count = CountRequest {
        filter: Some(&question.filter),
        collation: question.collation.as_deref(),
        ..CountRequest::default()
    };
    assert_eq!(super::count(&mut room.ctx(), &room.ns, &count).unwrap(), 2);
}

#[test]
fn a_collections_order_is_that_of_its_ids() {
    let room = room_of(Order::IgnoringCase);
    index_of(&room, &doc! { "w": 1 }, Order::Unsaid, doc! { "unique": true });
    index_of(&room, &doc! { "w": 1 }, Order::Simple, doc! {});
    assert!(room.insert(&[doc! { "_id": "a", "w": "x" }]).errors.is_empty());
    for clashing in [doc! { "_id": "A", "w": "y" }, doc! { "_id": "b", "w": "X" }] {
        let error = &room.insert(&[clashing]).errors[0].error;
        assert_eq!(error.code(), Code::DUPLICATE_KEY);
        assert!(error.message().contains(" collation: { locale: \"en\""), "{error}");
        assert!(error.message().contains(": \"0x"), "{error}");
    }
    assert_eq!(room.find(doc! { "_id": "A" }), [doc! { "_id": "a", "w": "x" }]);
    assert_eq!(stages(&room.explain(doc! { "_id": "A" }, doc! {})), ["IDHACK"]);
    let simple = Question::new(&doc! { "_id": "A" }, &doc! {}, Order::Simple);
    assert!(room.find_with(&simple.request()).unwrap().is_empty());
    assert_eq!(stages(&simple.explain(&room)), ["COLLSCAN"]);
    let others = [("B".into(), 1), ("c".into(), 2), (Bson::from(7), 3)];
    let others = others.map(|(id, w)| doc! { "_id": id, "w": w });
    assert!(room.insert(&others).errors.is_empty());
    let by_id = Question::new(&doc! {}, &doc! { "_id": 1 }, Order::Unsaid);
    let found = room.find_with(&by_id.request()).unwrap();
    let found: Vec<&Bson> = found.iter().map(|d| d.get("_id").unwrap()).collect();
    assert_eq!(found, [&Bson::from(7), &"a".into(), &"B".into(), &"c".into()]);
    room.check_valid();
}

#[test]
fn partial_indexes_mean_what_their_own_order_says() {
    let room = Room::with(&words());
    let partial = doc! { "partialFilterExpression": { "w": { "$gte": "b" } } };
    index_of(&room, &doc! { "w": 1 }, Order::IgnoringCase, partial);
    let plan = &["FETCH", "IXSCAN"];
    check(&room, (doc! { "w": "B" }, doc! {}), Order::IgnoringCase, &[0, 4], plan);
    check(&room, (doc! { "w": "A" }, doc! {}), Order::IgnoringCase, &[1, 2], &["COLLSCAN"]);
    check(&room, (doc! { "w": "b" }, doc! {}), Order::Unsaid, &[0], &["COLLSCAN"]);
    room.check_valid();
}

#[test]
fn hashed_indexes_hash_sort_keys() {
    let room = Room::with(&words());
    let collation = Order::IgnoringCase.document().unwrap();
    room.index(doc! { "key": { "w": "hashed" }, "collation": collation });
    check(&room, (doc! { "w": "B" }, doc! {}), Order::IgnoringCase, &[0, 4], &["FETCH", "IXSCAN"]);
    check(&room, (doc! { "w": "B" }, doc! {}), Order::Unsaid, &[4], &["COLLSCAN"]);
    room.check_valid();
}

#[test]
fn limits_of_keys_are_in_the_order_of_the_index() {
    let room = Room::with(&words());
    index_of(&room, &doc! { "w": 1 }, Order::IgnoringCase, doc! {});
    let (min, max, hint) = (doc! { "w": "B" }, doc! { "w": "c" }, "w_1-IgnoringCase");
    let (min, max) = (raw(&min), raw(&max));
    let ask = |order| {
        let question = Question::new(&doc! {}, &doc! {}, order);
        room.find_with(&FindRequest {
            min: Some(&min),
            max: Some(&max),
            hint: Some(RawBsonRef::String(hint)),
            ..question.request()
        })
    };
    assert_eq!(ids(&ask(Order::IgnoringCase).unwrap()), [0, 4]);
    assert_eq!(ask(Order::Unsaid).unwrap_err().code().0, 51174);
}
