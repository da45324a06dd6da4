//! `$project`, `$addFields`/`$set` and `$unset`: one document made into another, field by field.
//!
//! A [`Transform`] is a tree of field names. Walking it beside the document copies what stays as
//! bytes, leaves out what goes, and puts computed values where they belong: over the field of that
//! name, else at the end. Trees go through arrays element by element.

use crate::stage::check_depth;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::path::check_field_path;
use bsonval::raw::{self, Writer};
use bsonval::text_score;
use errors::{Error, Result};
use expr::agg::{Expression, MEASURED, ParseContext, Variables};
use limits::KeyMap;
use std::collections::BTreeSet;

/// What happens to the fields that are not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They go.
    Include,
    /// They stay; named ones go.
    Exclude,
    /// They stay; named ones are computed.
    Add,
}

/// A parsed projection.
#[derive(Clone, Debug)]
pub struct Transform {
    mode: Mode,
    root: Tree,
}

/// The named fields at one level, in the order the client wrote them.
#[derive(Clone, Debug, Default)]
struct Tree {
    fields: Vec<(String, Action)>,
    places: KeyMap<String, usize>,
    /// Some field at this level or below is computed.
    computes: bool,
}

#[derive(Clone, Debug)]
enum Action {
    Include,
    Exclude,
    Compute(Expression),
    Nested(Box<Tree>),
}

impl Tree {
    fn get(&self, name: &str) -> Option<(usize, &Action)> {
        // Few fields are compared faster than hashed.
        if self.fields.len() <= 8 {
            let at = self.fields.iter().position(|(known, _)| known == name)?;
            return Some((at, &self.fields[at].1));
        }
        self.places.get(name).map(|at| (*at, &self.fields[*at].1))
    }

    fn insert(&mut self, name: &str, action: Action) {
        self.places.insert(name.to_owned(), self.fields.len());
        self.fields.push((name.to_owned(), action));
    }
}

/// What a value in a projection asks for, before the mode is known.
enum FieldRequest<'a> {
    Yes,
    No,
    Value(RawBsonRef<'a>),
}

impl Transform {
    /// Parses a `$project` argument.
    pub fn project(spec: &RawDocument, ctx: &ParseContext) -> Result<Self> {
        if spec.is_empty() {
            return Err(Error::location(
                51272,
                "projection specification must have at least one field",
            ));
        }
        let mut asked = Vec::new();
        flatten(spec, "", 0, &mut asked)?;
        let mode = mode_of(&asked)?;
        let mut transform = Self { mode, root: Tree::default() };
        let mut has_id = false;
        for (path, value) in asked {
            has_id |= path == "_id" || path.starts_with("_id.");
            let action = match (value, mode) {
                (FieldRequest::Yes, Mode::Exclude) if path == "_id" => continue,
                (FieldRequest::Yes, _) => Action::Include,
                (FieldRequest::No, _) => Action::Exclude,
                (FieldRequest::Value(value), _) => Action::Compute(compute(value, ctx)?),
            };
            transform.put(&path, action)?;
        }
        if mode == Mode::Include && !has_id {
            transform.root.insert("_id", Action::Include);
        }
        Ok(transform)
    }

    /// Parses an `$addFields` argument.
    pub fn add_fields(spec: &RawDocument, ctx: &ParseContext) -> Result<Self> {
        let mut transform = Self { mode: Mode::Add, root: Tree::default() };
        transform.add_level(spec, "", ctx, 0)?;
        Ok(transform)
    }

    fn add_level(
        &mut self,
        spec: &RawDocument,
        prefix: &str,
        ctx: &ParseContext,
        depth: usize,
    ) -> Result<()> {
        check_depth(depth)?;
        if spec.is_empty() && depth == 0 {
            return Err(Error::location(40177, "specification must have at least one field"));
        }
        for element in spec.iter_elements() {
            let element = element?;
            let path = join(prefix, element.key().as_str())?;
            match element.value()? {
                RawBsonRef::Document(inner)
                    if !raw::starts_with_dollar(inner) && !inner.is_empty() =>
                {
                    self.add_level(inner, &path, ctx, depth + 1)?;
                }
                value => self.put(&path, Action::Compute(compute(value, ctx)?))?,
            }
        }
        Ok(())
    }

    /// Parses the fields of an `$unset`.
    pub fn unset<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self> {
        let mut transform = Self { mode: Mode::Exclude, root: Tree::default() };
        for name in names {
            transform.put(&join("", name)?, Action::Exclude)?;
        }
        Ok(transform)
    }

    /// Lays an action at a path, refusing paths that lie on each other.
    fn put(&mut self, path: &str, action: Action) -> Result<()> {
        let computes = matches!(action, Action::Compute(_));
        let names: Vec<&str> = path.split('.').collect();
        let mut tree = &mut self.root;
        let Some((last, parents)) = names.split_last() else { return Ok(()) };
        for (at, name) in parents.iter().enumerate() {
            tree.computes |= computes;
            if tree.get(name).is_none() {
                tree.insert(name, Action::Nested(Box::default()));
            }
            let place = tree.get(name).map_or(0, |(place, _)| place);
            match &mut tree.fields[place].1 {
                Action::Nested(inner) => tree = inner,
                _ => return Err(collision(path, Some(&names[at + 1..].join(".")))),
            }
        }
        tree.computes |= computes;
        if tree.get(last).is_some() {
            return Err(collision(path, None));
        }
        tree.insert(last, action);
        Ok(())
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Folds the constants of computed fields.
    #[must_use]
    pub fn optimize(mut self) -> Self {
        optimize_tree(&mut self.root);
        self
    }

    /// The paths the output does not have, or has with another value than the input.
    pub fn changed_paths(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        walk(&self.root, "", &mut |path, action| {
            if matches!(action, Action::Exclude | Action::Compute(_)) {
                found.insert(path.to_owned());
            }
        });
        found
    }

    /// The paths copied as they are; for [`Mode::Include`] nothing else is.
    pub fn kept_paths(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        walk(&self.root, "", &mut |path, action| {
            if matches!(action, Action::Include) {
                found.insert(path.to_owned());
            }
        });
        found
    }

    /// The expressions of the computed fields.
    pub fn expressions(&self) -> Vec<&Expression> {
        let mut found = Vec::new();
        collect(&self.root, &mut found);
        found
    }

    /// Makes the new document.
    pub fn apply(&self, document: &RawDocument, variables: &Variables) -> Result<RawDocumentBuf> {
        self.apply_with_room(document, variables, 0)
    }

    /// The same where the values that it computes take `more` bytes, so that the result does not grow by
    /// being copied.
    pub(crate) fn apply_with_room(
        &self,
        document: &RawDocument,
        variables: &Variables,
        more: usize,
    ) -> Result<RawDocumentBuf> {
        let job = Job { mode: self.mode, root: document, variables };
        let mut out = Writer::with_capacity(document.as_bytes().len() + 32 + more);
        let open = out.begin();
        job.document(&self.root, Some(document), &mut out)?;
        out.end(open);
        crate::stage::check_document_size(out.len())?;
        out.finish()
    }
}

fn walk(tree: &Tree, prefix: &str, visit: &mut dyn FnMut(&str, &Action)) {
    for (name, action) in &tree.fields {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match action {
            Action::Nested(inner) => walk(inner, &path, visit),
            action => visit(&path, action),
        }
    }
}

fn collect<'t>(tree: &'t Tree, found: &mut Vec<&'t Expression>) {
    for (_, action) in &tree.fields {
        match action {
            Action::Compute(expression) => found.push(expression),
            Action::Nested(inner) => collect(inner, found),
            Action::Include | Action::Exclude => {}
        }
    }
}

fn optimize_tree(tree: &mut Tree) {
    for (_, action) in &mut tree.fields {
        match action {
            Action::Nested(inner) => optimize_tree(inner),
            Action::Compute(expression) => *expression = expression.clone().optimize(),
            Action::Include | Action::Exclude => {}
        }
    }
}

/// One document being made.
struct Job<'a> {
    mode: Mode,
    /// Expressions always see the whole input.
    root: &'a RawDocument,
    variables: &'a Variables,
}

impl Job<'_> {
    /// Writes the fields of one level; `None` where the input has no document there.
    fn document(
        &self,
        tree: &Tree,
        document: Option<&RawDocument>,
        out: &mut Writer,
    ) -> Result<()> {
        let mut done = vec![false; tree.fields.len()];
        for element in document.into_iter().flat_map(raw::elements) {
            let element = element?;
            match tree.get(element.name()) {
                // What carries a score or a distance is no field, and goes with the document.
                None if text_score::is_hidden(element.name())
                    || MEASURED.contains(&element.name()) =>
                {
                    out.element(&element);
                }
                // With inclusion a computed field comes after what was copied.
                None | Some((_, Action::Compute(_))) if self.mode == Mode::Include => {}
                None | Some((_, Action::Include)) => out.element(&element),
                Some((_, Action::Exclude)) => {}
                Some((at, Action::Nested(inner))) => {
                    done[at] = true;
                    self.nested(element.name(), inner, element.value()?, 0, out)?;
                }
                Some((at, Action::Compute(expression))) => {
                    if !std::mem::replace(&mut done[at], true) {
                        self.compute(element.name(), expression, out)?;
                    }
                }
            }
        }
        if !tree.computes {
            return Ok(());
        }
        for (at, (name, action)) in tree.fields.iter().enumerate() {
            match action {
                _ if done[at] => {}
                Action::Compute(expression) => self.compute(name, expression, out)?,
                Action::Nested(inner) if inner.computes => {
                    let open = out.begin_document(name);
                    self.document(inner, None, out)?;
                    out.end(open);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn compute(&self, name: &str, expression: &Expression, out: &mut Writer) -> Result<()> {
        if let Some(value) = expression.evaluate(self.root, self.variables)?.get() {
            out.value(name, value);
        }
        Ok(())
    }

    /// A field whose inside is transformed.
    fn nested(
        &self,
        name: &str,
        tree: &Tree,
        value: RawBsonRef<'_>,
        depth: usize,
        out: &mut Writer,
    ) -> Result<()> {
        check_depth(depth)?;
        match value {
            RawBsonRef::Document(document) => {
                let open = out.begin_document(name);
                self.document(tree, Some(document), out)?;
                out.end(open);
            }
            RawBsonRef::Array(array) => {
                let open = out.begin_array(name);
                let mut at = 0_usize;
                for element in raw::values(array) {
                    let before = out.len();
                    self.nested(&at.to_string(), tree, element?, depth + 1, out)?;
                    at += usize::from(out.len() > before);
                }
                out.end(open);
            }
            _ if tree.computes => {
                let open = out.begin_document(name);
                self.document(tree, None, out)?;
                out.end(open);
            }
            // Nothing inside a scalar to include; nothing to exclude either.
            _ if self.mode == Mode::Include => {}
            scalar => out.value(name, scalar),
        }
        Ok(())
    }
}

/// Writes every leaf of a projection down as a dotted path.
fn flatten<'a>(
    spec: &'a RawDocument,
    prefix: &str,
    depth: usize,
    asked: &mut Vec<(String, FieldRequest<'a>)>,
) -> Result<()> {
    check_depth(depth)?;
    for element in spec.iter_elements() {
        let element = element?;
        let path = join(prefix, element.key().as_str())?;
        let value = element.value()?;
        match value {
            RawBsonRef::Document(inner) if inner.is_empty() => {
                return Err(Error::location(
                    51270,
                    format!(
                        "An empty sub-projection is not a valid value. Found empty object at path \
                         {path}"
                    ),
                ));
            }
            RawBsonRef::Document(inner) if !raw::starts_with_dollar(inner) => {
                flatten(inner, &path, depth + 1, asked)?;
            }
            RawBsonRef::Boolean(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::Decimal128(_) => {
                let yes = bsonval::types::is_true(value);
                asked.push((path, if yes { FieldRequest::Yes } else { FieldRequest::No }));
            }
            _ => asked.push((path, FieldRequest::Value(value))),
        }
    }
    Ok(())
}

/// Inclusion or exclusion: the first field other than `_id` that says so decides.
fn mode_of(asked: &[(String, FieldRequest<'_>)]) -> Result<Mode> {
    let mut mode = None;
    for (path, value) in asked.iter().filter(|(path, _)| path != "_id") {
        let wanted = match value {
            FieldRequest::Yes | FieldRequest::Value(_) => Mode::Include,
            FieldRequest::No => Mode::Exclude,
        };
        match (mode, value) {
            (None, _) => mode = Some(wanted),
            (Some(Mode::Exclude), FieldRequest::Yes) => {
                return Err(Error::location(
                    31253,
                    format!("Cannot do inclusion on field {path} in exclusion projection"),
                ));
            }
            (Some(Mode::Exclude), FieldRequest::Value(_)) => {
                return Err(Error::location(
                    31252,
                    "Cannot use expression other than $meta in exclusion projection",
                ));
            }
            (Some(_), FieldRequest::No) if mode != Some(Mode::Exclude) => {
                return Err(Error::location(
                    31254,
                    format!("Cannot do exclusion on field {path} in inclusion projection"),
                ));
            }
            _ => {}
        }
    }
    let id = asked.iter().find(|(path, _)| path == "_id").map(|(_, value)| value);
    Ok(match (mode, id) {
        (Some(mode), _) => mode,
        (None, Some(FieldRequest::No)) => Mode::Exclude,
        (None, _) => Mode::Include,
    })
}

fn compute(value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Expression> {
    Expression::parse(value, ctx)
}

fn join(prefix: &str, name: &str) -> Result<String> {
    check_field_path(name)?;
    let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
    check_depth(path.split('.').count())?;
    Ok(path)
}

fn collision(path: &str, remaining: Option<&str>) -> Error {
    match remaining {
        Some(rest) => {
            Error::location(31249, format!("Path collision at {path} remaining portion {rest}"))
        }
        None => Error::location(31250, format!("Path collision at {path}")),
    }
}
