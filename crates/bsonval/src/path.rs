//! Dotted paths and how a filter walks them through documents and arrays.
//!
//! A path names a field; an array on the way stands for each of its elements, and a numeric
//! component also for the element at that position. At the end of the path an array stands for its
//! elements and then for itself.
//!
//! Always true: the walk recurses once per nesting level of the document, which is bounded when the
//! document is accepted.

use crate::raw;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use errors::{Code, Error, Result};
use smallvec::{SmallVec, smallvec};
use std::fmt;

/// One component of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Component {
    name: Box<str>,
    index: Option<u32>,
}

impl Component {
    fn new(name: &str) -> Self {
        Self { name: name.into(), index: array_index(name) }
    }

    /// The field name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The array position it may also mean.
    pub fn index(&self) -> Option<u32> {
        self.index
    }
}

/// The position a name stands for: digits without leading zeros.
pub fn array_index(name: &str) -> Option<u32> {
    // Most names begin with a letter.
    if !name.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let canonical = name == "0" || !name.starts_with('0');
    (canonical && name.bytes().all(|b| b.is_ascii_digit())).then(|| name.parse().ok()).flatten()
}

/// A dotted path, split once.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Path {
    /// Where it has several components; else it is the one's name.
    text: Option<Box<str>>,
    /// Most paths have one.
    components: SmallVec<[Component; 1]>,
}

impl Path {
    /// Splits a path at its dots. Empty components are kept: a filter may name an empty field.
    pub fn new(text: &str) -> Self {
        if text.bytes().any(|byte| byte == b'.') {
            let components = text.split('.').map(Component::new).collect();
            Self { text: Some(text.into()), components }
        } else {
            Self { text: None, components: smallvec![Component::new(text)] }
        }
    }

    /// The path without components: the value itself, as inside a value `$elemMatch`.
    pub fn root() -> Self {
        Self { text: None, components: SmallVec::new() }
    }

    /// The dotted text.
    pub fn as_str(&self) -> &str {
        self.text.as_deref().unwrap_or_else(|| self.first())
    }

    /// The components.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// The first component's name.
    pub fn first(&self) -> &str {
        self.components.first().map_or("", |component| &component.name)
    }

    /// Whether this path is `other` or leads into it.
    pub fn starts_with(&self, other: &Path) -> bool {
        self.components.starts_with(&other.components)
    }

    /// Whether one of the two paths is the other or leads into it.
    pub fn overlaps(&self, other: &Path) -> bool {
        self.starts_with(other) || other.starts_with(self)
    }

    /// Walks the path through a document and asks `visit` about everything it stands for, until it
    /// says true. `visit` gets `None` where the field is missing.
    pub fn any<'a>(
        &self,
        document: &'a RawDocument,
        leaf: LeafArrays,
        visit: &mut Visit<'_, 'a>,
    ) -> Result<bool> {
        Walk { leaf, visit }.document(document, &self.components, None)
    }

    /// The first value the path stands for when every component is a plain field name: no array
    /// is entered.
    pub fn get<'a>(&self, document: &'a RawDocument) -> Result<Option<RawBsonRef<'a>>> {
        let Some((last, parents)) = self.components.split_last() else { return Ok(None) };
        let mut current = document;
        for component in parents {
            match raw::field(current, &component.name)? {
                Some(RawBsonRef::Document(inner)) => current = inner,
                _ => return Ok(None),
            }
        }
        raw::field(current, &last.name)
    }
}

/// The `$`-prefixed names that paths may hold: the fields of a `DBRef`.
const DBREF_FIELDS: [&str; 3] = ["$ref", "$id", "$db"];

/// Whether a name starts with `$` and is none of a `DBRef`'s fields, so that no path may hold it.
pub fn is_reserved_name(name: &str) -> bool {
    name.starts_with('$') && !DBREF_FIELDS.contains(&name)
}

/// Checks one name of a path, as sorts, projections and aggregation name fields.
pub fn check_field_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::location(15998, "FieldPath field names may not be empty strings."));
    }
    if is_reserved_name(name) {
        return Err(Error::location(
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ));
    }
    if name.contains('\0') {
        return Err(Error::location(16411, "FieldPath field names may not contain '\\0'."));
    }
    Ok(())
}

/// Checks a dotted path as a whole and each of its names.
pub fn check_field_path(path: &str) -> Result<()> {
    if path.is_empty() {
        return Err(Error::location(40352, "FieldPath cannot be constructed with empty string"));
    }
    if path.ends_with('.') {
        return Err(Error::location(40353, "FieldPath must not end with a '.'."));
    }
    path.split('.').try_for_each(check_field_name)?;
    if path.split('.').count() > crate::MAX_PATH_DEPTH {
        return Err(Error::new(Code::OVERFLOW, "FieldPath is too long"));
    }
    Ok(())
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an array at the end of a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafArrays {
    /// Each element, then the array itself.
    Expand,
    /// The array itself.
    Whole,
}

/// Asked about each value (or `None` for a missing field) with the position of the outermost array
/// element it was found in; true ends the walk.
pub type Visit<'v, 'a> = dyn FnMut(Option<RawBsonRef<'a>>, Option<usize>) -> Result<bool> + 'v;

struct Walk<'w, 'v, 'a> {
    leaf: LeafArrays,
    visit: &'w mut Visit<'v, 'a>,
}

impl<'a> Walk<'_, '_, 'a> {
    fn document(
        &mut self,
        document: &'a RawDocument,
        components: &[Component],
        outer: Option<usize>,
    ) -> Result<bool> {
        let Some((first, rest)) = components.split_first() else {
            return (self.visit)(Some(RawBsonRef::Document(document)), outer);
        };
        match raw::field(document, &first.name)? {
            Some(value) if rest.is_empty() => self.leaf(value, outer),
            Some(RawBsonRef::Document(inner)) => self.document(inner, rest, outer),
            Some(RawBsonRef::Array(array)) => self.array(array, rest, outer),
            None | Some(_) => (self.visit)(None, outer),
        }
    }

    fn leaf(&mut self, value: RawBsonRef<'a>, outer: Option<usize>) -> Result<bool> {
        if let (RawBsonRef::Array(array), LeafArrays::Expand) = (value, self.leaf) {
            for (position, element) in raw::values(array).enumerate() {
                if (self.visit)(Some(element?), outer.or(Some(position)))? {
                    return Ok(true);
                }
            }
        }
        (self.visit)(Some(value), outer)
    }

    /// `components` is not empty. Elements that are neither documents nor named by position stand
    /// for nothing, not even for a missing field.
    fn array(
        &mut self,
        array: &'a RawArray,
        components: &[Component],
        outer: Option<usize>,
    ) -> Result<bool> {
        let wanted = components[0].index;
        for (position, element) in raw::values(array).enumerate() {
            let element = element?;
            let outer = outer.or(Some(position));
            if let RawBsonRef::Document(inner) = element
                && self.document(inner, components, outer)?
            {
                return Ok(true);
            }
            if wanted.is_some_and(|wanted| wanted as usize == position)
                && self.position(element, &components[1..], outer)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn position(
        &mut self,
        element: RawBsonRef<'a>,
        rest: &[Component],
        outer: Option<usize>,
    ) -> Result<bool> {
        match element {
            _ if rest.is_empty() => (self.visit)(Some(element), outer),
            RawBsonRef::Document(inner) => self.document(inner, rest, outer),
            RawBsonRef::Array(inner) => self.array(inner, rest, outer),
            _ => Ok(false),
        }
    }
}
