//! Operations by path: a tree in which no two operations meet.
//!
//! A node is an operation, or names fields (and array positions) below, or names elements by array
//! filters; never two of these at once. The positional `$` stands beside field names until a
//! document says which position it is.

use super::by_name::{self, FieldKey};
use errors::{Code, Error, Result};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Nodes by field name.
pub(super) type ByName = by_name::ByName<Node>;

#[derive(Clone, Debug)]
pub(super) enum Node {
    /// The one at this place of the update's operations.
    Operation(usize),
    Fields(Fields),
    /// By identifier; the empty one is `$[]`.
    Elements(BTreeMap<Box<str>, Box<Node>>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    pub(super) by_name: ByName,
    /// What stands under `$`.
    pub(super) positional: Option<Box<Node>>,
}

/// One component of an update path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'p> {
    Field(&'p str),
    /// `$`
    Positional,
    /// `$[]` or `$[identifier]`
    Elements(&'p str),
}

impl<'p> Step<'p> {
    pub(super) fn of(component: &'p str) -> Self {
        if component == "$" {
            return Self::Positional;
        }
        match component.strip_prefix("$[").and_then(|rest| rest.strip_suffix(']')) {
            Some(identifier) => Self::Elements(identifier),
            None => Self::Field(component),
        }
    }
}

/// Whether a path is a name alone: no parts, nothing positional.
pub(super) fn is_one_name(path: &str) -> bool {
    !path.bytes().any(|byte| matches!(byte, b'.' | b'$'))
}

/// Where an update's operations stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) root: Fields,
}

impl Tree {
    /// Adds an operation at a path; refuses what meets another operation.
    pub(super) fn insert(&mut self, path: &str, operation: usize) -> Result<()> {
        if is_one_name(path) {
            let slot = Slot::Name(&mut self.root.by_name, FieldKey(path.into()));
            return slot.fill(Node::Operation(operation)).map_err(|()| conflict_at(path, path));
        }
        let mut fields = &mut self.root;
        let components: SmallVec<[&str; 4]> = path.split('.').collect();
        let mut at = 0;
        loop {
            let last = at + 1 == components.len();
            let conflict = || conflict(path, &components[..=at]);
            let slot = match Step::of(components[at]) {
                Step::Field(name) => Slot::Name(&mut fields.by_name, FieldKey(name.into())),
                Step::Positional => Slot::Positional(&mut fields.positional),
                // The first component is checked to be a field, later ones are taken below.
                Step::Elements(_) => return Err(conflict()),
            };
            if last {
                return slot.fill(Node::Operation(operation)).map_err(|()| conflict());
            }
            let mut child = slot.get_or_insert(next_kind(components[at + 1]));
            at += 1;
            // Array filters may follow each other directly.
            while let Step::Elements(identifier) = Step::of(components[at]) {
                let Node::Elements(elements) = child else {
                    return Err(self::conflict(path, &components[..at]));
                };
                let slot = Slot::Element(elements, identifier.into());
                if at + 1 == components.len() {
                    let conflict = || self::conflict(path, &components[..=at]);
                    return slot.fill(Node::Operation(operation)).map_err(|()| conflict());
                }
                child = slot.get_or_insert(next_kind(components[at + 1]));
                at += 1;
            }
            match child {
                Node::Fields(next) => fields = next,
                _ => return Err(self::conflict(path, &components[..at])),
            }
        }
    }

    pub(super) fn is_positional(&self) -> bool {
        fn fields(fields: &Fields) -> bool {
            fields.positional.is_some() || fields.by_name.nodes().any(node)
        }
        fn node(node_: &Node) -> bool {
            match node_ {
                Node::Operation(_) => false,
                Node::Fields(inner) => fields(inner),
                Node::Elements(elements) => elements.values().any(|below| node(below)),
            }
        }
        fields(&self.root)
    }
}

enum Slot<'t> {
    Name(&'t mut ByName, FieldKey),
    Positional(&'t mut Option<Box<Node>>),
    Element(&'t mut BTreeMap<Box<str>, Box<Node>>, Box<str>),
}

impl<'t> Slot<'t> {
    fn fill(self, node: Node) -> Result<(), ()> {
        match self {
            Self::Name(nodes, key) => nodes.add(key, node),
            Self::Positional(slot) if slot.is_none() => {
                *slot = Some(Box::new(node));
                Ok(())
            }
            Self::Positional(_) => Err(()),
            Self::Element(map, key) => match map.entry(key) {
                std::collections::btree_map::Entry::Vacant(slot) => {
                    slot.insert(Box::new(node));
                    Ok(())
                }
                std::collections::btree_map::Entry::Occupied(_) => Err(()),
            },
        }
    }

    fn get_or_insert(self, empty: Node) -> &'t mut Node {
        match self {
            Self::Name(nodes, key) => nodes.get_or_insert(key, empty),
            Self::Positional(slot) => slot.get_or_insert_with(|| Box::new(empty)),
            Self::Element(map, key) => map.entry(key).or_insert_with(|| Box::new(empty)),
        }
    }
}

/// What a node must be for this component to stand below it.
fn next_kind(component: &str) -> Node {
    match Step::of(component) {
        Step::Elements(_) => Node::Elements(BTreeMap::new()),
        Step::Field(_) | Step::Positional => Node::Fields(Fields::default()),
    }
}

fn conflict(path: &str, at: &[&str]) -> Error {
    conflict_at(path, &at.join("."))
}

pub(super) fn conflict_at(path: &str, at: &str) -> Error {
    Error::new(
        Code::CONFLICTING_UPDATE_OPERATORS,
        format!("Updating the path '{path}' would create a conflict at '{at}'"),
    )
}

/// Both nodes' operations at one place, `at`.
pub(super) fn merge(a: &Node, b: &Node, at: &str) -> Result<Node> {
    match (a, b) {
        (Node::Fields(a), Node::Fields(b)) => {
            let mut merged = a.clone();
            for (key, node) in b.by_name.iter() {
                let below = format!("{at}.{}", key.0);
                let node = match a.by_name.get(key) {
                    Some(other) => merge(other, node, &below)?,
                    None => node.clone(),
                };
                merged.by_name.set(key.clone(), node);
            }
            merged.positional = match (&a.positional, &b.positional) {
                (Some(a), Some(b)) => Some(Box::new(merge(a, b, &format!("{at}.$"))?)),
                (a, b) => a.clone().or_else(|| b.clone()),
            };
            Ok(Node::Fields(merged))
        }
        (Node::Elements(a), Node::Elements(b)) => {
            let mut merged = a.clone();
            for (key, node) in b {
                let node = match a.get(key) {
                    Some(other) => Box::new(merge(other, node, &format!("{at}.$[{key}]"))?),
                    None => node.clone(),
                };
                merged.insert(key.clone(), node);
            }
            Ok(Node::Elements(merged))
        }
        _ => Err(conflict_at(at, at)),
    }
}
