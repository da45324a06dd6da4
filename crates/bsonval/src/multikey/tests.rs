//! Tuples under several paths: `check(document, paths, tuples)`.
#![allow(clippy::needless_pass_by_value, reason = "tables of literals read better")]

use super::*;
use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, bson, doc};

fn tuples(document: &Document, paths: &[&str]) -> Result<(Vec<Vec<Bson>>, Vec<bool>)> {
    let document = RawDocumentBuf::try_from(document)?;
    let paths: Vec<Path> = paths.iter().map(|path| Path::new(path)).collect();
    let mut found = Vec::new();
    let expansion = expand(&document, &paths, &mut |tuple| {
        let values = tuple.iter().map(|value| match value {
            Some(value) => Bson::try_from(*value),
            None => Ok(Bson::String("missing".to_owned())),
        });
        found.push(values.collect::<std::result::Result<Vec<_>, _>>()?);
        Ok(())
    })?;
    Ok((found, expansion.multikey.to_vec()))
}

fn check(document: Document, paths: &[&str], expected: Bson, multikey: &[bool]) {
    let (found, flags) = tuples(&document, paths).unwrap();
    let found = Bson::Array(found.into_iter().map(Bson::Array).collect());
    assert_eq!((found, flags.as_slice()), (expected, multikey), "{document} {paths:?}");
}

#[test]
fn plain_fields_give_one_tuple() {
    check(doc! {"a": 1, "b": {"c": 2}}, &["a", "b.c"], bson!([[1, 2]]), &[false, false]);
    check(doc! {"a": 1}, &["b", "a.x"], bson!([["missing", "missing"]]), &[false, false]);
    check(doc! {"b": {"c": {"d": 1}}}, &["b.c"], bson!([[{"d": 1}]]), &[false]);
}

#[test]
fn an_array_gives_a_tuple_per_element() {
    check(doc! {"a": [1, 2], "b": 3}, &["a", "b"], bson!([[1, 3], [2, 3]]), &[true, false]);
    check(doc! {"a": []}, &["a"], bson!([[Bson::Undefined]]), &[true]);
    check(doc! {"a": []}, &["a.b"], bson!([["missing"]]), &[true]);
    check(doc! {"a": [[1, 2], 3]}, &["a"], bson!([[[1, 2]], [3]]), &[true]);
    check(
        doc! {"a": [{"b": [1, 2]}, {"b": 3}, 4]},
        &["a.b"],
        bson!([[1], [2], [3], ["missing"]]),
        &[true],
    );
}

#[test]
fn paths_through_one_array_share_its_elements() {
    let document = doc! {"a": [{"b": 1, "c": 2}, {"b": 3}]};
    check(document, &["a.b", "a.c"], bson!([[1, 2], [3, "missing"]]), &[true, true]);
}

#[test]
fn positions_choose_one_element() {
    check(doc! {"a": [5, 6]}, &["a.1"], bson!([[6]]), &[false]);
    check(doc! {"a": [{"b": 1}, {"b": 2}]}, &["a.1.b"], bson!([[2]]), &[false]);
    check(doc! {"a": [{"1": 7}]}, &["a.1"], bson!([[7]]), &[true]);
    check(doc! {"a": [5]}, &["a.3"], bson!([["missing"]]), &[false]);
}

#[test]
fn parallel_arrays_are_refused() {
    let error = tuples(&doc! {"a": [1], "b": [2]}, &["a", "b"]).unwrap_err();
    assert_eq!(error.code(), Code::CANNOT_INDEX_PARALLEL_ARRAYS);
    assert_eq!(error.message(), "cannot index parallel arrays [b] [a]");
    assert!(tuples(&doc! {"a": [{"b": [1], "c": [2]}]}, &["a.b", "a.c"]).is_err());
}
