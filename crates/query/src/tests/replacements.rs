//! A document that is replaced: only indexes over fields that differ are looked at, and every index stays exact.

use super::model::{INDEXES, primary_key, scalar};
use super::writes::ask;
use super::*;

/// Fields in any order, of names that paths of indexes may lead to, or seem to.
fn document() -> impl Strategy<Value = Document> {
    let name = prop_oneof![
        3 => Just("a"), 3 => Just("b"), 1 => Just("a.c"), 1 => Just("0"), 1 => Just("c"), 1 => Just("d"),
        1 => Just("e"), 1 => Just("f"),
    ];
    let value = prop_oneof![
        4 => scalar(),
        1 => prop::collection::vec(scalar(), 0..3).prop_map(Bson::Array),
        1 => (scalar(), scalar()).prop_map(|(c, d)| Bson::Document(doc! { "c": c, "d": d })),
        1 => prop::collection::vec(scalar().prop_map(|c| Bson::Document(doc! { "c": c })), 0..3)
            .prop_map(Bson::Array),
    ];
    prop::collection::vec((name, value), 0..7).prop_map(|fields| {
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    })
}

/// The specification of an index of this number.
fn index(at: usize) -> Document {
    let key = |parts: &[(&str, i32)]| -> Document {
        parts.iter().map(|(path, way)| ((*path).to_owned(), Bson::Int32(*way))).collect()
    };
    let mut spec = match at - at.min(INDEXES.len()) {
        0 if at < INDEXES.len() => doc! { "key": key(INDEXES[at]) },
        0 => doc! { "key": { "a": 1 }, "partialFilterExpression": { "b": { "$gt": 0 } } },
        1 => doc! { "key": { "b": "hashed" } },
        2 => doc! { "key": { "b": 1 }, "clustering": true },
        3 => doc! { "key": { "b": 1, "c": 1 }, "unique": true },
        4 => doc! { "key": { "c": "text" } },
        _ => doc! { "key": { "d": 1 }, "sparse": true },
    };
    spec.insert("name", format!("{at}"));
    spec
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_index_stays_exact_when_documents_are_replaced(
        documents in prop::collection::vec(document(), 1..5),
        chosen in prop::collection::btree_set(0..INDEXES.len() + 6, 0..4),
        primary_key in primary_key(),
        replacements in prop::collection::vec((0..5_i32, document(), any::<bool>()), 1..8),
    ) {
        let room = Room::of(&primary_key);
        for at in chosen {
            let spec = IndexSpec::parse(&raw(&index(at))).unwrap();
            drop(room.catalog.create_indexes(&room.ns, &[spec], &|| Ok(())));
        }
        for (id, document) in documents.iter().enumerate() {
            let mut whole = doc! { "_id": id as i32 };
            whole.extend(document.clone());
            room.insert(&[whole]);
        }
        for (id, mut document, is_like_before) in replacements {
            if is_like_before
                && let Some(before) = room.find(doc! { "_id": id }).first()
            {
                // The same fields in the same order, one of them with another value.
                let other = document.values().next().cloned().unwrap_or(Bson::Null);
                document = before.clone();
                document.remove("_id");
                let at = id as usize % document.len().max(1);
                if let Some((_, value)) = document.iter_mut().nth(at) {
                    *value = other;
                }
            }
            ask(doc! { "_id": id }, document).run(&room);
            room.check_valid();
        }
    }
}
