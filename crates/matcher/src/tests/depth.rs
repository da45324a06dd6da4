//! Filters nested deeper than the wire lets through: an answer or an error, whoever calls the parser.

use super::*;

/// A field whose value holds the next level: its name, and whether the value is an array.
type Level = (&'static str, bool);

/// Levels around an empty document: `first` once, `then` again and again.
fn nested(first: &[Level], then: &[Level], levels: usize) -> RawDocumentBuf {
    let path: Vec<Level> = first.iter().chain(then.iter().cycle()).take(levels).copied().collect();
    let mut left = 5 + path.iter().map(|(name, _)| name.len() + 7).sum::<usize>();
    let mut bytes = Vec::with_capacity(left);
    for (name, is_array) in &path {
        bytes.extend((left as i32).to_le_bytes());
        bytes.push(if *is_array { 4 } else { 3 });
        bytes.extend(name.as_bytes());
        bytes.push(0);
        left -= name.len() + 7;
    }
    bytes.extend(5_i32.to_le_bytes());
    bytes.resize(bytes.len() + 1 + path.len(), 0);
    RawDocumentBuf::from_bytes(bytes).unwrap()
}

const SHAPES: &[(&[Level], &[Level])] = &[
    (&[], &[("a", false)]),
    (&[], &[("a", true), ("0", true)]),
    (&[], &[("$and", true), ("0", false)]),
    (&[], &[("$or", true), ("0", false)]),
    (&[], &[("$nor", true), ("0", false)]),
    (&[("a", false)], &[("$not", false)]),
    (&[("a", false)], &[("$elemMatch", false)]),
    (&[], &[("a", false), ("$elemMatch", false)]),
    (&[], &[("a", false), ("$all", true), ("0", false), ("$elemMatch", false)]),
    (&[("a", false), ("$in", true)], &[("0", true)]),
    (&[("a", false), ("$in", true)], &[("0", false)]),
    (&[("a", false), ("$gt", false)], &[("a", false)]),
    (&[("a", false), ("$eq", true)], &[("0", true)]),
    (&[("a", false), ("$not", false), ("$eq", false)], &[("a", false)]),
    (&[("$expr", false)], &[("$and", true), ("0", false)]),
    (&[("$expr", false)], &[("a", false)]),
    (&[("$jsonSchema", false)], &[("not", false)]),
    (&[("$jsonSchema", false)], &[("properties", false), ("a", false)]),
    (&[("$jsonSchema", false)], &[("allOf", true), ("0", false)]),
    (&[("$jsonSchema", false)], &[("items", false)]),
    (&[("$jsonSchema", false), ("enum", true)], &[("0", true)]),
    (
        &[("a", false), ("$geoWithin", false), ("$geometry", false), ("coordinates", true)],
        &[("0", true)],
    ),
    (&[("a", false), ("$type", true)], &[("0", true)]),
    (&[("a", false), ("$bitsAllSet", true)], &[("0", true)]),
    (&[("$text", false)], &[("$search", false)]),
    (&[("$comment", false)], &[("a", false)]),
    (&[("$where", false)], &[("a", false)]),
];

#[test]
fn no_depth_of_a_filter_ends_the_stack() {
    for (first, then) in SHAPES {
        for levels in [90, 120, 199, 255, 20_000] {
            // As much as the server's threads have.
            let name = format!("{levels}: {then:?}");
            let small =
                std::thread::Builder::new().name(name).stack_size(2 << 20).spawn(move || {
                    let filter = nested(first, then, levels);
                    let context = ParseContext { text: true, ..ParseContext::default() };
                    let parsed = Filter::parse(&filter, &context);
                    assert!(levels < 256 || parsed.is_err());
                    if let Ok(parsed) = parsed {
                        drop(parsed.matches(&filter));
                        drop(parsed.to_document());
                    }
                });
            small.unwrap().join().unwrap();
        }
    }
}
