//! The document an upsert begins with.

use super::check;
use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use bsonval::path::{Component, Path};
use bsonval::raw::{self, Writer};
use errors::Result;
use std::collections::BTreeMap;

/// Fields in order of appearance.
#[derive(Default)]
struct Level<'v> {
    fields: Vec<(&'v str, Field<'v>)>,
    by_name: BTreeMap<&'v str, usize>,
}

enum Field<'v> {
    Value(RawBsonRef<'v>),
    Below(Level<'v>),
}

impl<'v> Level<'v> {
    /// No two paths overlap: the filter was checked.
    fn insert(&mut self, components: &'v [Component], value: RawBsonRef<'v>) {
        let Some((first, rest)) = components.split_first() else { return };
        let at = *self.by_name.entry(first.name()).or_insert_with(|| {
            let empty = Field::Below(Level::default());
            self.fields.push((first.name(), empty));
            self.fields.len() - 1
        });
        let field = &mut self.fields[at].1;
        match field {
            Field::Below(level) if !rest.is_empty() => level.insert(rest, value),
            field => *field = Field::Value(value),
        }
    }

    fn write(&self, out: &mut Writer) {
        for (name, field) in &self.fields {
            match field {
                Field::Value(value) => out.value(name, *value),
                Field::Below(level) => {
                    let open = out.begin_document(name);
                    level.write(out);
                    out.end(open);
                }
            }
        }
    }
}

/// The filter's equalities as a document.
pub(super) fn base(equalities: &[(Path, RawBson)]) -> Result<RawDocumentBuf> {
    let mut top = Level::default();
    for (path, value) in equalities {
        if path.components().len() > check::MAX_STORED_DEPTH {
            return Err(check::too_deep());
        }
        top.insert(path.components(), value.as_raw_bson_ref());
    }
    let mut out = Writer::default();
    let open = out.begin();
    top.write(&mut out);
    out.end(open);
    out.finish()
}

/// The document with its `_id`, or this one, in front. Where it is there already nothing is copied:
/// documents may be large.
pub(super) fn with_id_first(document: RawDocumentBuf, new_id: ObjectId) -> Result<RawDocumentBuf> {
    let id = document.get("_id")?;
    if let Some(id) = id {
        check::check_stored_id(id)?;
    }
    let (mut ids, mut leads) = (0, false);
    for (at, element) in raw::elements(&document).enumerate() {
        if element?.name() == "_id" {
            ids += 1;
            leads |= at == 0;
        }
    }
    if leads && ids == 1 {
        return Ok(document);
    }
    let mut out = Writer::with_capacity(document.as_bytes().len() + 32);
    let open = out.begin();
    out.value("_id", id.unwrap_or(RawBsonRef::ObjectId(new_id)));
    for element in raw::elements(&document) {
        let element = element?;
        if element.name() != "_id" {
            out.element(&element);
        }
    }
    out.end(open);
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_with_its_id_in_front_is_not_copied() {
        let id = ObjectId::from_bytes([1; 12]);
        let made = |fields: &[(&str, i32)]| {
            let mut out = Writer::default();
            let open = out.begin();
            for (name, value) in fields {
                out.value(name, RawBsonRef::Int32(*value));
            }
            out.end(open);
            out.finish().unwrap()
        };
        let document = made(&[("_id", 1), ("a", 2)]);
        let place = document.as_bytes().as_ptr();
        assert_eq!(with_id_first(document, id).unwrap().as_bytes().as_ptr(), place);
        let moved = with_id_first(made(&[("a", 2), ("_id", 1)]), id).unwrap();
        assert_eq!(moved, made(&[("_id", 1), ("a", 2)]));
        let twice = with_id_first(made(&[("_id", 1), ("a", 2), ("_id", 3)]), id).unwrap();
        assert_eq!(twice, made(&[("_id", 1), ("a", 2)]), "one of them");
        let given = with_id_first(made(&[("a", 2)]), id).unwrap();
        assert_eq!(given.get_object_id("_id").unwrap(), id);
    }
}
