//! `$text`: a search over a collection's text index.
//!
//! From → to: the client's document is read [`TextNode::parse`]; once the collection's text index is
//! known, the search is understood in its language and over its fields [`TextNode::bind`]. Only then
//! it can say what matches.
//!
//! Always true: a filter has at most one, outside every `$nor` and `$elemMatch`.

use super::Node;
use bson::Document;
use bson::raw::{RawBsonRef, RawDocument};
use bsonval::{raw, types};
use errors::{Code, Error, Result};
use fulltext::{Fields, Language, Query, Search, Sensitivity};
use std::sync::Arc;

/// A text search.
#[derive(Clone, Debug)]
pub struct TextNode {
    search: String,
    language: Option<String>,
    sensitivity: Sensitivity,
    bound: Option<Search>,
}

impl TextNode {
    /// Reads the argument of `$text`.
    pub(super) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let RawBsonRef::Document(given) = value else {
            return Err(Error::bad_value("$text expects an object"));
        };
        let mut node = Self {
            search: String::new(),
            language: None,
            sensitivity: Sensitivity::default(),
            bound: None,
        };
        let mut searches = false;
        for element in raw::elements(given) {
            let element = element?;
            let (name, value) = (element.name(), element.value()?);
            match name {
                "$search" => {
                    node.search = text(name, value)?;
                    searches = true;
                }
                "$language" => node.language = Some(text(name, value)?),
                "$caseSensitive" => node.sensitivity.case = flag(name, value)?,
                "$diacriticSensitive" => node.sensitivity.diacritics = flag(name, value)?,
                _ => return Err(Error::bad_value("extra fields in $text")),
            }
        }
        if !searches {
            return Err(Error::new(Code::NO_SUCH_KEY, "Missing expected field \"$search\""));
        }
        Ok(node)
    }

    /// The search over the fields of a text index.
    fn bind(&self, fields: &Arc<Fields>) -> Result<Self> {
        let language = match &self.language {
            Some(name) => Language::parse(name, fields.version())?,
            None => fields.default_language(),
        };
        let query = Query::parse(&self.search, language, fields.version(), self.sensitivity);
        Ok(Self { bound: Some(Search::new(query, Arc::clone(fields))), ..self.clone() })
    }

    /// The search, once the index is known.
    pub fn search(&self) -> Option<&Search> {
        self.bound.as_ref()
    }

    /// Whether a document matches.
    pub fn matches(&self, document: &RawDocument) -> Result<bool> {
        self.bound.as_ref().ok_or_else(no_index)?.matches(document)
    }

    /// Whether a document matches that the index has one of the terms for.
    pub fn verifies(&self, document: &RawDocument) -> Result<bool> {
        self.bound.as_ref().ok_or_else(no_index)?.matches_indexed(document)
    }

    pub(super) fn to_document(&self) -> Document {
        let known = self.bound.as_ref().map(|search| search.query().language().name());
        let mut inside = bson::doc! { "$search": &self.search };
        if let Some(language) = known.or(self.language.as_deref()) {
            inside.insert("$language", language);
        }
        inside.insert("$caseSensitive", self.sensitivity.case);
        inside.insert("$diacriticSensitive", self.sensitivity.diacritics);
        bson::doc! { "$text": inside }
    }
}

fn text(name: &str, value: RawBsonRef<'_>) -> Result<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong_type(name, "string", value))
}

fn flag(name: &str, value: RawBsonRef<'_>) -> Result<bool> {
    value.as_bool().ok_or_else(|| wrong_type(name, "bool", value))
}

fn wrong_type(name: &str, wanted: &str, value: RawBsonRef<'_>) -> Error {
    Error::type_mismatch(format!(
        "\"{name}\" had the wrong type. Expected {wanted}, found {}",
        types::name_of(value)
    ))
}

/// The error where the collection has no text index.
pub fn no_index() -> Error {
    Error::new(Code::INDEX_NOT_FOUND, "text index required for $text query")
}

/// Refuses a search where none may stand, and a second one.
pub(super) fn check_places(root: &Node) -> Result<()> {
    let mut count = 0;
    visit(root, false, &mut |in_nor| {
        count += 1;
        match (count, in_nor) {
            (_, true) => Err(Error::bad_value("text expression not allowed in nor")),
            (1, false) => Ok(()),
            _ => Err(Error::bad_value("Too many text expressions")),
        }
    })
}

fn visit(node: &Node, in_nor: bool, found: &mut impl FnMut(bool) -> Result<()>) -> Result<()> {
    match node {
        Node::Text(_) => found(in_nor),
        Node::And(parts) | Node::Or(parts) => {
            parts.iter().try_for_each(|part| visit(part, in_nor, found))
        }
        Node::Nor(parts) => parts.iter().try_for_each(|part| visit(part, true, found)),
        Node::Not(part) => visit(part, true, found),
        _ => Ok(()),
    }
}

/// The search in a tree.
pub(super) fn find(node: &Node) -> Option<&Arc<TextNode>> {
    match node {
        Node::Text(text) => Some(text),
        Node::And(parts) | Node::Or(parts) => parts.iter().find_map(find),
        _ => None,
    }
}

/// The tree with its search bound to the fields of a text index.
pub(super) fn bind(node: &Node, fields: &Arc<Fields>) -> Result<Node> {
    let all = |parts: &[Node]| -> Result<Vec<Node>> {
        parts.iter().map(|part| bind(part, fields)).collect()
    };
    Ok(match node {
        Node::Text(text) => Node::Text(Arc::new(text.bind(fields)?)),
        Node::And(parts) => Node::And(all(parts)?),
        Node::Or(parts) => Node::Or(all(parts)?),
        other => other.clone(),
    })
}
