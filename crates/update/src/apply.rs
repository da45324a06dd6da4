//! Walking a document and a tree of operations together.
//!
//! Always true: the walk recurses once per component of an update path, which parsing bounds.

use super::by_name::{Children, FieldKey};
use super::effect::Effect;
use super::tree::{ByName, Fields, Node, merge};
use super::{Operators, UpdateContext, UpdateOutcome};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::spec::ElementType;
use bsonval::path::array_index;
use bsonval::raw::{self, Element, Writer};
use bsonval::show;
use errors::{Code, Error, Result};
use keystring::Collation;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The most nulls an update may put between the end of an array and a new element.
const MAX_BACKFILL: usize = 1_500_000;

/// Where in which document an operation is applied.
#[derive(Debug)]
pub(super) struct Target<'d> {
    /// The document as it was.
    pub(super) document: &'d RawDocument,
    /// Whether an upsert is being built.
    pub(super) is_insert: bool,
    /// The collation.
    pub(super) collation: Option<&'d Collation>,
    /// Text, dotted; no component holds a dot.
    path: SmallVec<[u8; 48]>,
}

impl Target<'_> {
    /// The dotted path.
    pub(super) fn path(&self) -> &str {
        std::str::from_utf8(&self.path).expect("names are text, and dots part them")
    }

    /// The last component.
    pub(super) fn name(&self) -> &str {
        self.path().rsplit('.').next().unwrap_or_default()
    }

    /// Goes to what stands under `name` here; gives what [`Target::leave`] takes back.
    fn enter(&mut self, name: &str) -> usize {
        let before = self.path.len();
        if before > 0 {
            self.path.push(b'.');
        }
        self.path.extend_from_slice(name.as_bytes());
        before
    }

    fn leave(&mut self, before: usize) {
        self.path.truncate(before);
    }
}

/// Applies operators to a document.
pub(super) fn apply(
    operators: &Operators,
    document: &RawDocument,
    ctx: &UpdateContext,
    is_insert: bool,
) -> Result<UpdateOutcome> {
    for (source, destination) in &operators.shape.renames {
        check_rename(document, source, destination)?;
    }
    let mut walk = Walk {
        operators,
        ctx,
        target: Target {
            document,
            is_insert,
            collation: operators.collation.as_ref(),
            path: SmallVec::new(),
        },
        out: Writer::with_capacity(document.as_bytes().len() + 64),
    };
    let open = walk.out.begin();
    let modified = walk.fields_of(&operators.shape.tree.root, document)?;
    walk.out.end(open);
    Ok(UpdateOutcome { document: walk.out.finish()?, modified })
}

/// Neither end of a rename may be inside an array.
fn check_rename(
    document: &RawDocument,
    source: &bsonval::Path,
    destination: &bsonval::Path,
) -> Result<()> {
    for (path, role) in [(source, "source"), (destination, "destination")] {
        let mut current = document;
        let components = path.components();
        for (at, component) in components.iter().enumerate() {
            match current.get(component.name())? {
                Some(RawBsonRef::Document(inner)) => current = inner,
                Some(RawBsonRef::Array(_)) if at + 1 < components.len() => {
                    return Err(Error::bad_value(format!(
                        "The {role} field cannot be an array element, '{path}' in doc with {} has \
                         an array field called '{}'",
                        show::id_of(document),
                        component.name()
                    )));
                }
                _ => break,
            }
        }
        if source.get(document)?.is_none() {
            break;
        }
    }
    Ok(())
}

struct Walk<'w> {
    operators: &'w Operators,
    ctx: &'w UpdateContext,
    target: Target<'w>,
    out: Writer,
}

impl Walk<'_> {
    /// Writes the fields of a document with the operations below it; true if anything changed.
    fn fields_of(&mut self, fields: &Fields, document: &RawDocument) -> Result<bool> {
        let resolved = self.resolve(fields)?;
        let mut children = Children::of(resolved.as_ref().unwrap_or(&fields.by_name));
        let mut changed = false;
        // What no operation names is copied in pieces as long as they come: up to here it was.
        let bytes = document.as_bytes();
        let mut copied = 4;
        let mut elements = raw::elements(document);
        while !children.are_taken() {
            let mut node = None;
            let found = elements.next_wanted(|name| {
                node = children.take(name);
                node.is_some()
            });
            let (Some(element), Some(node)) = (found.transpose()?, node) else {
                if elements.left() != 1 {
                    return Err(damaged());
                }
                break;
            };
            let end = bytes.len() - elements.left();
            self.out.bytes(&bytes[copied..end - element.bytes().len()]);
            changed |= self.child(node, element.name(), Some(&element), false)?;
            copied = end;
        }
        let Some(rest) = bytes.get(copied..bytes.len() - 1) else {
            return Err(damaged());
        };
        limits::poll_work(1 + rest.len() / limits::BYTES_PER_UNIT)?;
        self.out.bytes(rest);
        for (name, node) in children.left() {
            changed |= self.child(node, name, None, false)?;
        }
        Ok(changed)
    }

    /// The children by name, with what stands under `$` merged in at the matched position.
    fn resolve(&self, fields: &Fields) -> Result<Option<ByName>> {
        let Some(positional) = &fields.positional else { return Ok(None) };
        let Some(index) = self.ctx.details.array_index else {
            return Err(Error::bad_value(
                "The positional operator did not find the match needed from the query.",
            ));
        };
        let mut children = fields.by_name.clone();
        let key = FieldKey(index.to_string().into());
        let node = match children.get(&key) {
            Some(other) => merge(other, positional, &format!("{}.{index}", self.target.path()))?,
            None => (**positional).clone(),
        };
        children.set(key, node);
        Ok(Some(children))
    }

    /// Writes one field, or leaves it out. In an array nothing is left out.
    fn child(
        &mut self,
        node: &Node,
        name: &str,
        existing: Option<&Element<'_>>,
        in_array: bool,
    ) -> Result<bool> {
        let before = self.target.enter(name);
        let changed = match node {
            Node::Operation(place) => self.operation(*place, name, existing, in_array),
            Node::Fields(fields) => self.below(fields, name, existing),
            Node::Elements(elements) => self.elements(elements, name, existing),
        }?;
        self.target.leave(before);
        Ok(changed)
    }

    fn operation(
        &mut self,
        place: usize,
        name: &str,
        existing: Option<&Element<'_>>,
        in_array: bool,
    ) -> Result<bool> {
        let value = existing.map(Element::value).transpose()?;
        let start = self.out.len();
        match self.operators.operations[place].effect(value, &self.target, self.ctx)? {
            Effect::Keep => {
                if let Some(element) = existing {
                    self.out.element(element);
                }
                return Ok(false);
            }
            Effect::Remove if in_array => self.out.value(name, RawBsonRef::Null),
            Effect::Remove => return Ok(existing.is_some()),
            Effect::Value(value) => self.out.value(name, value),
            Effect::Owned(value) => self.out.value(name, value.as_raw_bson_ref()),
            Effect::Array(body) => {
                self.out.header(ElementType::Array, name);
                self.out.bytes(&body);
            }
        }
        Ok(existing.is_none_or(|element| element.bytes() != self.out.since(start)))
    }

    /// Operations on fields or positions below `name`.
    fn below(
        &mut self,
        fields: &Fields,
        name: &str,
        existing: Option<&Element<'_>>,
    ) -> Result<bool> {
        match existing.map(Element::value).transpose()? {
            Some(RawBsonRef::Document(document)) => {
                let open = self.out.begin_document(name);
                let changed = self.fields_of(fields, document)?;
                self.out.end(open);
                Ok(changed)
            }
            Some(RawBsonRef::Array(array)) => self.positions(fields, name, array),
            Some(value) => {
                let resolved = self.resolve(fields)?;
                let children = resolved.as_ref().unwrap_or(&fields.by_name);
                for (key, node) in children.iter() {
                    if self.creates(node) {
                        return Err(not_viable(&key.0, name, value));
                    }
                }
                if let Some(element) = existing {
                    self.out.element(element);
                }
                Ok(false)
            }
            None => {
                let start = self.out.len();
                let open = self.out.begin_document(name);
                let empty = self.out.len();
                let resolved = self.resolve(fields)?;
                for (key, node) in resolved.as_ref().unwrap_or(&fields.by_name).iter() {
                    self.child(node, &key.0, None, false)?;
                }
                if self.out.len() == empty {
                    self.out.truncate(start);
                    return Ok(false);
                }
                self.out.end(open);
                Ok(true)
            }
        }
    }

    /// Whether an operation at or below a node would make a missing field.
    fn creates(&self, node: &Node) -> bool {
        match node {
            Node::Operation(place) => self.operators.operations[*place].creates(&self.target),
            Node::Fields(fields) => {
                let positional = fields.positional.as_deref();
                positional.into_iter().chain(fields.by_name.nodes()).any(|n| self.creates(n))
            }
            Node::Elements(_) => true,
        }
    }

    /// Operations on elements named by position.
    fn positions(&mut self, fields: &Fields, name: &str, array: &RawArray) -> Result<bool> {
        let resolved = self.resolve(fields)?;
        let children = resolved.as_ref().unwrap_or(&fields.by_name);
        let mut by_index = BTreeMap::new();
        for (key, node) in children.iter() {
            match array_index(&key.0) {
                Some(index) => {
                    by_index.insert(index as usize, node);
                }
                None if self.creates(node) => {
                    return Err(not_viable(&key.0, name, RawBsonRef::Array(array)));
                }
                None => {}
            }
        }
        let open = self.out.begin_array(name);
        let mut changed = false;
        let mut length = 0;
        for element in raw::array_elements(array) {
            let element = element?;
            let position = length.to_string();
            match by_index.remove(&length) {
                Some(node) => changed |= self.child(node, &position, Some(&element), true)?,
                None => self.out.element_as(&position, &element),
            }
            length += 1;
        }
        for (index, node) in by_index {
            if !self.creates(node) {
                continue;
            }
            if index - length > MAX_BACKFILL {
                return Err(Error::new(
                    Code::CANNOT_BACKFILL_ARRAY,
                    format!("can't backfill more than {MAX_BACKFILL} elements"),
                ));
            }
            for position in length..index {
                self.out.value(&position.to_string(), RawBsonRef::Null);
            }
            changed |= self.child(node, &index.to_string(), None, true)?;
            length = index + 1;
        }
        self.out.end(open);
        Ok(changed)
    }

    /// Operations on elements named by array filters.
    fn elements(
        &mut self,
        nodes: &BTreeMap<Box<str>, Box<Node>>,
        name: &str,
        existing: Option<&Element<'_>>,
    ) -> Result<bool> {
        let array = match existing.map(Element::value).transpose()? {
            Some(RawBsonRef::Array(array)) => array,
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "Cannot apply array updates to non-array element {}",
                    show::field(name, other)
                )));
            }
            None => {
                return Err(Error::bad_value(format!(
                    "The path '{}' must exist in the document in order to apply array updates.",
                    self.target.path()
                )));
            }
        };
        let open = self.out.begin_array(name);
        let mut changed = false;
        for (position, element) in raw::array_elements(array).enumerate() {
            let element = element?;
            let position = position.to_string();
            let value = element.value()?;
            let mut chosen: Vec<&Node> = Vec::new();
            for (identifier, node) in nodes {
                if self.operators.filters.matches(identifier, value)? {
                    chosen.push(node);
                }
            }
            changed |= match chosen.as_slice() {
                [] => {
                    self.out.element_as(&position, &element);
                    false
                }
                [node] => self.child(node, &position, Some(&element), true)?,
                [first, rest @ ..] => {
                    let at = format!("{}.{position}", self.target.path());
                    let mut merged = (*first).clone();
                    for node in rest {
                        merged = merge(&merged, node, &at)?;
                    }
                    self.child(&merged, &position, Some(&element), true)?
                }
            };
        }
        self.out.end(open);
        Ok(changed)
    }
}

fn damaged() -> Error {
    Error::new(Code::INVALID_BSON, "a field reaches beyond its document")
}

fn not_viable(field: &str, parent: &str, value: RawBsonRef<'_>) -> Error {
    Error::new(
        Code::PATH_NOT_VIABLE,
        format!("Cannot create field '{field}' in element {{{}}}", show::field(parent, value)),
    )
}
