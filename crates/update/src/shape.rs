//! What updates have in common that name the same fields: the tree of their paths, and what follows from it.
//!
//! A thread remembers the shapes of its last updates. One that names the same fields for the same operators in the
//! same order is bound: its operands are read, and the rest is there ([`bind`]).
//!
//! Always true: an update that is bound is what it is when it is parsed, or fails with the same error. What is
//! remembered is bounded: [`MOST_SHAPES`] of [`MOST_FIELDS`] fields and [`MOST_NAME_BYTES`] each.

use super::Operators;
use super::array_filter::ArrayFilters;
use super::operation::Operation;
use super::parse::{OPERATORS, Reader, depth_at, dots};
use super::tree::Tree;
use bson::raw::{RawBsonRef, RawDocument};
use bsonval::path::Path;
use bsonval::raw;
use errors::Result;
use keystring::Collation;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// So many shapes a thread remembers.
const MOST_SHAPES: usize = 8;
/// An update of more fields is not remembered.
const MOST_FIELDS: usize = 8;
/// An update whose names are longer together is not remembered.
const MOST_NAME_BYTES: usize = 512;

/// What an update's operators do, one after the other.
pub(super) type Operations = SmallVec<[Operation; 1]>;

/// The paths of an update's operators.
#[derive(Debug, Default)]
pub(super) struct Shape {
    pub(super) tree: Tree,
    /// The paths that may change.
    pub(super) touched: SmallVec<[Path; 1]>,
    /// Source and destination of each `$rename`.
    pub(super) renames: Vec<(Path, Path)>,
    /// The positional operator `$` occurs.
    pub(super) is_positional: bool,
    /// A path begins with `_id`.
    pub(super) touches_id: bool,
}

impl Shape {
    /// The same, once all paths are there.
    pub(super) fn settled(mut self) -> Self {
        self.is_positional = self.tree.is_positional();
        self.touches_id = self.touched.iter().any(|path| path.first() == "_id");
        self
    }
}

/// A field of a shape that is remembered.
#[derive(PartialEq, Eq)]
struct Field {
    /// The place of its operator among all.
    operator: usize,
    /// It is the first of its operator's.
    is_first: bool,
    path: Box<[u8]>,
    dots: usize,
}

/// A shape that is remembered.
struct Known {
    fields: Vec<Field>,
    shape: Arc<Shape>,
}

/// The shapes that a thread remembers.
struct Shapes {
    known: Vec<Known>,
    /// The one that was bound last: the first to be tried.
    last: usize,
    /// The one that goes next.
    oldest: usize,
}

thread_local! {
    static SHAPES: RefCell<Shapes> =
        const { RefCell::new(Shapes { known: Vec::new(), last: 0, oldest: 0 }) };
}

/// What the operators come to where their shape is remembered.
pub(super) fn bind(
    update: &RawDocument,
    collation: Option<&Collation>,
) -> Result<Option<Operators>> {
    SHAPES.with_borrow_mut(|shapes| {
        let count = shapes.known.len();
        for tried in 0..count {
            let at = (shapes.last + tried) % count;
            let known = &shapes.known[at];
            if let Some((operations, depth)) = known.bind(update)? {
                let shape = Arc::clone(&known.shape);
                shapes.last = at;
                return Ok(Some(Operators {
                    shape,
                    operations,
                    filters: ArrayFilters::default(),
                    depth,
                    collation: collation.cloned(),
                }));
            }
        }
        Ok(None)
    })
}

/// Remembers the shape of an update that was parsed, in the place of another where there are too many. It is left out
/// where more than each field alone decides what its operation is.
pub(super) fn remember(update: &RawDocument, shape: &Arc<Shape>) {
    let Ok(Some(fields)) = fields_of(update) else { return };
    let known = Known { fields, shape: Arc::clone(shape) };
    SHAPES.with_borrow_mut(|shapes| {
        if shapes.known.iter().any(|other| other.fields == known.fields) {
            return;
        }
        if shapes.known.len() < MOST_SHAPES {
            shapes.last = shapes.known.len();
            shapes.known.push(known);
        } else {
            shapes.last = shapes.oldest;
            shapes.oldest = (shapes.oldest + 1) % MOST_SHAPES;
            shapes.known[shapes.last] = known;
        }
    });
}

/// The fields by which a shape is known again; `None` where it is not to be remembered.
fn fields_of(update: &RawDocument) -> Result<Option<Vec<Field>>> {
    let (mut fields, mut bytes) = (Vec::new(), 0);
    for element in raw::elements(update) {
        let element = element?;
        let named = |(name, _): &(&str, Reader)| name.as_bytes() == element.name_bytes();
        let Some(operator) = OPERATORS.iter().position(named) else { return Ok(None) };
        let RawBsonRef::Document(inner) = element.value()? else { return Ok(None) };
        let before = fields.len();
        for field in raw::elements(inner) {
            let field = field?;
            let path = field.name();
            bytes += path.len();
            if fields.len() == MOST_FIELDS || bytes > MOST_NAME_BYTES {
                return Ok(None);
            }
            let (is_first, dots) = (fields.len() == before, dots(path));
            fields.push(Field { operator, is_first, path: path.as_bytes().into(), dots });
        }
        if matches!(OPERATORS[operator].1, Reader::Within(_)) || fields.len() == before {
            return Ok(None);
        }
    }
    Ok(Some(fields))
}

impl Known {
    /// The operations of an update of this shape, and how deep it reaches. An error is that of parsing it: up to
    /// there its names are those of an update that was parsed.
    fn bind(&self, update: &RawDocument) -> Result<Option<(Operations, usize)>> {
        let mut left = &self.fields[..];
        let (mut operations, mut depth) = (Operations::new(), 0);
        for element in raw::elements(update) {
            let element = element?;
            let Some(first) = left.first() else { return Ok(None) };
            let (name, reader) = &OPERATORS[first.operator];
            let Reader::Alone(read) = reader else { return Ok(None) };
            if !first.is_first || name.as_bytes() != element.name_bytes() {
                return Ok(None);
            }
            let RawBsonRef::Document(fields) = element.value()? else { return Ok(None) };
            let mut is_first = true;
            for field in raw::elements(fields) {
                let field = field?;
                let Some((known, behind)) = left.split_first() else { return Ok(None) };
                if known.is_first != is_first || *known.path != *field.name_bytes() {
                    return Ok(None);
                }
                operations.push(read(&field)?);
                depth = depth.max(depth_at(known.dots, &field)?);
                (left, is_first) = (behind, false);
            }
            if is_first {
                return Ok(None);
            }
        }
        Ok(left.is_empty().then_some((operations, depth)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PipelineUpdate, Update, UpdateContext};
    use bson::raw::{RawArray, RawDocumentBuf};
    use bson::{Bson, DateTime, Document, Timestamp, bson, doc};
    use matcher::{MatchDetails, ParseContext};
    use proptest::prelude::*;

    fn raw_doc(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    fn forget() {
        SHAPES.set(Shapes { known: Vec::new(), last: 0, oldest: 0 });
    }

    fn parse(update: &RawDocument) -> Result<Update> {
        let none = |_: &RawArray| -> Result<Box<dyn PipelineUpdate>> {
            Err(errors::Error::bad_value("no update here is a pipeline"))
        };
        Update::parse(RawBsonRef::Document(update), None, &ParseContext::default(), &none)
    }

    fn bound(update: &RawDocument) -> Result<Option<Update>> {
        Update::bind(RawBsonRef::Document(update), None)
    }

    /// What an update does to a document: the bytes, or the error's text; and what it touches.
    fn told(update: Result<Update>) -> std::result::Result<(Vec<u8>, bool, Vec<String>), String> {
        let text = |error: errors::Error| format!("{:?} {}", error.code(), error.message());
        let update = update.map_err(text)?;
        let document = raw_doc(&doc! { "_id": 1, "a": 1, "b": { "c": 2, "d": [1, 2] }, "e": "x" });
        let ctx = UpdateContext {
            details: MatchDetails::default(),
            now: DateTime::from_millis(5),
            timestamp: Timestamp { time: 1, increment: 2 },
            keep_empty_timestamps: false,
        };
        let touched = update.touched().unwrap().iter().map(|path| path.as_str().to_owned());
        let touched = touched.collect();
        let outcome = update.apply(&document, &ctx).map_err(text)?;
        Ok((outcome.document.into_bytes(), outcome.modified, touched))
    }

    fn operand() -> impl Strategy<Value = Bson> {
        prop_oneof![
            (0..3_i32).prop_map(Bson::Int32),
            Just(Bson::Int64(i64::MAX)),
            Just(Bson::String("x".to_owned())),
            Just(bson!({ "c": 1 })),
            Just(bson!({ "$each": [1, 2] })),
            Just(bson!([1, 2])),
            Just(bson!({ "$type": "date" })),
            Just(Bson::Boolean(true)),
        ]
    }

    fn update() -> impl Strategy<Value = Document> {
        let name =
            prop::sample::select(vec!["a", "b", "b.c", "b.d", "b.d.0", "e", "f", "_id", "", "a.$"]);
        let operators: Vec<_> = OPERATORS.iter().map(|(name, _)| *name).chain(["$none"]).collect();
        let fields = prop::collection::vec((name, operand()), 0..3);
        let one = (prop::sample::select(operators), fields);
        prop::collection::vec(one, 0..3).prop_map(|all| {
            let fields = |fields: Vec<(&str, Bson)>| -> Document {
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            };
            all.into_iter().map(|(name, of)| (name.to_owned(), fields(of).into())).collect()
        })
    }

    proptest! {
        /// Updates come one after the other on one thread; each that can be bound is what parsing makes of it.
        #[test]
        fn what_is_bound_is_what_is_parsed(updates in prop::collection::vec(update(), 1..30)) {
            forget();
            for update in &updates {
                let update = raw_doc(update);
                let bound = bound(&update).transpose();
                if let Some(bound) = bound {
                    prop_assert_eq!(told(bound), told(parse(&update)));
                } else {
                    drop(parse(&update));
                }
            }
        }
    }

    #[test]
    fn an_update_of_known_names_is_bound_and_others_are_not() {
        forget();
        let is_bound = |update: Document| bound(&raw_doc(&update)).unwrap().is_some();
        let known = doc! { "$inc": { "a": 1, "b.c": 2 }, "$set": { "e": "text" } };
        assert!(!is_bound(known.clone()));
        assert!(parse(&raw_doc(&known)).is_ok());
        assert!(is_bound(known));
        assert!(is_bound(doc! { "$inc": { "a": 7.5, "b.c": 2 }, "$set": { "e": { "f": 1 } } }));
        for other in [
            doc! { "$inc": { "a": 1, "b.c": 2 } },
            doc! { "$inc": { "a": 1 }, "$set": { "e": 1 } },
            doc! { "$inc": { "b.c": 1, "a": 2 }, "$set": { "e": 1 } },
            doc! { "$inc": { "a": 1, "b.c": 2, "e": 1 } },
            doc! { "$mul": { "a": 1, "b.c": 2 }, "$set": { "e": 1 } },
            doc! { "$inc": { "a": 1, "b.c": 2 }, "$set": { "e": 1, "f": 1 } },
            doc! { "$inc": { "a": 1, "b.c": 2 }, "$set": { "e": 1 }, "$unset": { "f": 1 } },
            doc! { "$inc": { "a": 1, "b.c": 2 }, "$set": {} },
            doc! { "a": 1 },
            doc! {},
        ] {
            assert!(!is_bound(other.clone()), "{other}");
        }
        let wrong = raw_doc(&doc! { "$inc": { "a": "x", "b.c": 2 }, "$set": { "e": 1 } });
        let (bound, parsed) = (bound(&wrong).unwrap_err(), parse(&wrong).unwrap_err());
        assert_eq!((bound.code(), bound.message()), (parsed.code(), parsed.message()));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_goes() {
        forget();
        let update = |n: usize| raw_doc(&doc! { "$set": { format!("f{n}"): 1 } });
        for n in 0..3 * MOST_SHAPES {
            assert!(parse(&update(n)).is_ok());
            assert!(SHAPES.with_borrow(|shapes| shapes.known.len()) <= MOST_SHAPES);
        }
        let known = (0..3 * MOST_SHAPES).filter(|n| bound(&update(*n)).unwrap().is_some());
        assert!(known.eq(2 * MOST_SHAPES..3 * MOST_SHAPES));
        let many: Document = (0..=MOST_FIELDS).map(|n| (format!("f{n}"), Bson::Int32(1))).collect();
        let long = doc! { "x".repeat(MOST_NAME_BYTES + 1): 1 };
        let [pull, rename] = [doc! { "$pull": { "a": 1 } }, doc! { "$rename": { "a": "z" } }];
        for update in [doc! { "$set": many }, doc! { "$set": long }, pull, rename] {
            let update = raw_doc(&update);
            assert!(parse(&update).is_ok());
            assert!(bound(&update).unwrap().is_none(), "{update:?}");
        }
    }
}
