//! The client's projection, with MongoDB's errors.

use super::{Computed, Cuts, Field, How, Level, Meta, Mode, Projection};
use bson::raw::{RawBsonRef, RawDocument};
use bsonval::path::Path;
use bsonval::{raw, text_score, types};
use errors::{Code, Error, Result};
use expr::agg::Expression;
use matcher::{Filter, ParseContext, is_operator_document};
use std::sync::Arc;

pub(super) fn projection(specification: &RawDocument, ctx: &ParseContext) -> Result<Projection> {
    let mut parser = Parser::new(ctx);
    parser.fields(specification, "", 0)?;
    parser.finish()
}

/// Operators that only a projection has, or has in another sense.
pub(super) const OPERATORS: &[&str] = &["$elemMatch", "$meta", "$slice"];

struct Parser<'p> {
    ctx: &'p ParseContext,
    /// What the fields so far demand, and the first of them.
    mode: Option<Mode>,
    /// What the client said about the whole `_id`.
    id: Option<Mode>,
    has_elem_match: bool,
    has_positional: bool,
    root: Level,
    cuts: Cuts,
    /// Where `$slice` stands: in an inclusion these are included too.
    sliced: Vec<String>,
}

impl<'p> Parser<'p> {
    fn new(ctx: &'p ParseContext) -> Self {
        Self {
            ctx,
            mode: None,
            id: None,
            has_elem_match: false,
            has_positional: false,
            root: Level::default(),
            cuts: Cuts::default(),
            sliced: Vec::new(),
        }
    }

    fn finish(mut self) -> Result<Projection> {
        if self.has_positional && self.has_elem_match {
            return Err(Error::location(
                31255,
                "Cannot specify positional operator and $elemMatch.",
            ));
        }
        let mode = self.mode.unwrap_or(match self.id {
            _ if self.has_elem_match => Mode::Include,
            Some(Mode::Include) => Mode::Include,
            _ => Mode::Exclude,
        });
        match (mode, self.id) {
            (Mode::Include, None) if self.root.get("_id").is_none() => {
                self.root.insert_leaf("_id", &["_id"], Field::Included)?;
            }
            (Mode::Include, Some(Mode::Include)) => {
                self.root.insert_leaf("_id", &["_id"], Field::Included)?;
            }
            (Mode::Exclude, Some(Mode::Exclude)) => {
                self.root.insert_leaf("_id", &["_id"], Field::Excluded)?;
            }
            _ => {}
        }
        if mode == Mode::Include {
            // A sliced field is an included one.
            for path in &self.sliced {
                let parts: Vec<&str> = path.split('.').collect();
                self.root.insert_leaf(path, &parts, Field::Included)?;
            }
        }
        Ok(Projection {
            mode,
            root: self.root,
            cuts: self.cuts,
            variables: Arc::clone(&self.ctx.variables),
        })
    }

    fn fields(&mut self, fields: &RawDocument, prefix: &str, depth: usize) -> Result<()> {
        if depth > bsonval::MAX_PATH_DEPTH {
            return Err(Error::new(Code::OVERFLOW, "the projection is nested too deep"));
        }
        for element in raw::elements(fields) {
            let element = element?;
            let path = if prefix.is_empty() {
                element.name().to_owned()
            } else {
                format!("{prefix}.{}", element.name())
            };
            self.field(&path, element.value()?, !prefix.is_empty(), depth)?;
        }
        Ok(())
    }

    fn field(
        &mut self,
        path: &str,
        value: RawBsonRef<'_>,
        nested: bool,
        depth: usize,
    ) -> Result<()> {
        if path.ends_with(".$") && !nested {
            return self.positional(path, value);
        }
        check_path(path)?;
        match value {
            RawBsonRef::Boolean(_) => self.flag(path, types::is_true(value)),
            value if types::is_number(value) => self.flag(path, types::is_true(value)),
            RawBsonRef::Document(document) if document.is_empty() => Err(Error::location(
                51270,
                format!(
                    "An empty sub-projection is not a valid value. Found empty object at path {path}"
                ),
            )),
            RawBsonRef::Document(document) if is_operator_document(document) => {
                self.operator(path, document, nested)
            }
            RawBsonRef::Document(document) => self.fields(document, path, depth + 1),
            value => self.expression(path, value),
        }
    }

    fn flag(&mut self, path: &str, include: bool) -> Result<()> {
        let mode = if include { Mode::Include } else { Mode::Exclude };
        if path == "_id" {
            if self.id.is_some() {
                return Err(collision("_id"));
            }
            self.id = Some(mode);
            return Ok(());
        }
        self.demand(mode, path)?;
        let field = if include { Field::Included } else { Field::Excluded };
        self.insert(path, field)
    }

    fn demand(&mut self, mode: Mode, path: &str) -> Result<()> {
        match (self.mode, mode) {
            (Some(Mode::Exclude), Mode::Include) => Err(Error::location(
                31253,
                format!("Cannot do inclusion on field {path} in exclusion projection"),
            )),
            (Some(Mode::Include), Mode::Exclude) => Err(Error::location(
                31254,
                format!("Cannot do exclusion on field {path} in inclusion projection"),
            )),
            _ => {
                self.mode = Some(mode);
                Ok(())
            }
        }
    }

    fn insert(&mut self, path: &str, field: Field) -> Result<()> {
        let parts: Vec<&str> = path.split('.').collect();
        self.root.insert_leaf(path, &parts, field)
    }

    fn cut(&mut self, path: &str, how: How) -> Result<()> {
        let mut cuts = &mut self.cuts;
        for component in path.split('.') {
            if cuts.how.is_some() {
                return Err(collision(path));
            }
            cuts = cuts.below.entry(component.into()).or_default();
        }
        if !cuts.is_empty() {
            return Err(collision(path));
        }
        cuts.how = Some(how);
        Ok(())
    }

    fn expression(&mut self, path: &str, value: RawBsonRef<'_>) -> Result<()> {
        if self.mode == Some(Mode::Exclude) {
            return Err(Error::location(
                31252,
                "Cannot use expression other than $meta in exclusion projection",
            ));
        }
        self.mode = Some(Mode::Include);
        let expression = Expression::parse(value, &self.ctx.names)?.optimize();
        self.insert(path, Field::Computed(Box::new(Computed::Expression(expression))))
    }

    fn operator(&mut self, path: &str, document: &RawDocument, nested: bool) -> Result<()> {
        let mut operators = raw::elements(document);
        let Some(operator) = operators.next().transpose()? else { return Ok(()) };
        let alone = operators.next().is_none();
        let value = operator.value()?;
        match operator.name() {
            name if !OPERATORS.contains(&name) => {
                // An operator nobody knows has a code of its own here.
                self.expression(path, RawBsonRef::Document(document)).map_err(|error| {
                    if error.message() == format!("Unrecognized expression '{name}'") {
                        return Error::location(31325, format!("Unknown expression {name}"));
                    }
                    error
                })
            }
            "$elemMatch" if alone => self.elem_match(path, value, nested),
            "$meta" if alone => self.meta(path, value),
            "$slice" if alone => match find_slice(value)? {
                Some(how) => {
                    self.sliced.push(path.to_owned());
                    self.cut(path, how)
                }
                None => self.expression(path, RawBsonRef::Document(document)).map_err(|error| {
                    Error::location(
                        28667,
                        format!(
                            "Invalid $slice syntax. The given syntax {} did not match the find() \
                             syntax because :: Location31272: $slice array argument should be of \
                             form [skip, limit] :: The given syntax did not match the expression \
                             $slice syntax. :: caused by :: {}",
                            bsonval::show::document(document),
                            error.message()
                        ),
                    )
                }),
            },
            _ => self.expression(path, RawBsonRef::Document(document)),
        }
    }

    fn elem_match(&mut self, path: &str, value: RawBsonRef<'_>, nested: bool) -> Result<()> {
        let RawBsonRef::Document(condition) = value else {
            return Err(Error::location(
                31274,
                format!(
                    "elemMatch: Invalid argument, object required, but got {}",
                    types::name_of(value)
                ),
            ));
        };
        if nested || path.contains('.') {
            return Err(Error::location(
                31275,
                "Cannot use $elemMatch projection on a nested field",
            ));
        }
        self.has_elem_match = true;
        let filter = Filter::parse_element(condition, self.ctx)?;
        let computed = Computed::ElemMatch(Path::new(path), filter);
        self.insert(path, Field::Computed(Box::new(computed)))
    }

    fn meta(&mut self, path: &str, value: RawBsonRef<'_>) -> Result<()> {
        let RawBsonRef::String(name) = value else {
            return Err(Error::location(17307, "$meta only supports string arguments"));
        };
        let meta = match name {
            "recordId" => Meta::RecordId,
            "sortKey" => Meta::SortKey,
            "indexKey" => Meta::IndexKey,
            text_score::META if !self.ctx.text => return Err(text_score::unavailable()),
            text_score::META => Meta::TextScore,
            "geoNearDistance" => Meta::GeoDistance,
            "geoNearPoint" => Meta::GeoPoint,
            other => {
                return Err(Error::location(
                    17308,
                    format!("Unsupported argument to $meta: {other}"),
                ));
            }
        };
        self.insert(path, Field::Computed(Box::new(Computed::Meta(meta))))
    }

    fn positional(&mut self, path: &str, value: RawBsonRef<'_>) -> Result<()> {
        let Some(path) = path.strip_suffix(".$") else { return Ok(()) };
        if path.split('.').any(|component| component == "$") {
            return Err(misplaced_positional());
        }
        check_path(path)?;
        let literal = !matches!(value, RawBsonRef::Boolean(_)) && !types::is_number(value);
        if literal {
            return Err(Error::location(
                31271,
                "positional projection cannot be used with a literal",
            ));
        }
        if !types::is_true(value) {
            return Err(Error::location(
                31395,
                "positional projection cannot be used with exclusion",
            ));
        }
        if self.has_positional {
            return Err(Error::location(
                31276,
                "Cannot specify more than one positional projection per query.",
            ));
        }
        self.has_positional = true;
        self.demand(Mode::Include, path)?;
        self.cut(path, How::Positional)?;
        self.insert(path, Field::Included)
    }
}

impl Level {
    /// Adds what happens to a field; `parts` is what is left of `path` below this level.
    fn insert_leaf(&mut self, path: &str, parts: &[&str], field: Field) -> Result<()> {
        let Some((first, rest)) = parts.split_first() else { return Ok(()) };
        let existing = self.by_name.get(*first).map(|at| &mut self.fields[*at].1);
        match existing {
            None => {
                let field = if rest.is_empty() {
                    field
                } else {
                    let mut level = Self::default();
                    level.insert_leaf(path, rest, field)?;
                    Field::Below(level)
                };
                self.by_name.insert((*first).into(), self.fields.len());
                self.fields.push(((*first).into(), field));
                Ok(())
            }
            Some(Field::Below(level)) if !rest.is_empty() => level.insert_leaf(path, rest, field),
            Some(_) if rest.is_empty() => Err(collision(path)),
            Some(_) => Err(Error::location(
                31249,
                format!("Path collision at {path} remaining portion {}", rest.join(".")),
            )),
        }
    }
}

fn collision(path: &str) -> Error {
    Error::location(31250, format!("Path collision at {path}"))
}

fn misplaced_positional() -> Error {
    Error::location(
        31394,
        "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional \
         projection may only be used at the end, for example: a.b.$. If the query previously used a \
         form like a.b.$.d, remove the parts following the '$' and the results will be equivalent.",
    )
}

fn check_path(path: &str) -> Result<()> {
    if path.split('.').any(|component| component == "$") {
        return Err(misplaced_positional());
    }
    bsonval::path::check_field_path(path)
}

/// `$slice` as `find` means it: a number, or `[skip, limit]` of numbers. `None`: it may be the
/// expression of that name.
fn find_slice(value: RawBsonRef<'_>) -> Result<Option<How>> {
    let clamp = |value| {
        let number = types::truncated_integer(value)?;
        Some(number.clamp(i64::from(i32::MIN), i64::from(i32::MAX)))
    };
    match value {
        value if types::is_number(value) => {
            Ok(Some(How::Slice { skip: None, limit: clamp(value).unwrap_or(0) }))
        }
        RawBsonRef::Array(array) => {
            let parts = raw::values(array).take(3).collect::<Result<Vec<_>>>()?;
            let &[skip, limit] = parts.as_slice() else { return Ok(None) };
            if !types::is_number(skip) || !types::is_number(limit) {
                return Ok(None);
            }
            match (clamp(skip), clamp(limit)) {
                (Some(skip), Some(limit)) if limit > 0 => {
                    Ok(Some(How::Slice { skip: Some(skip), limit }))
                }
                _ => Err(Error::location(
                    28724,
                    format!(
                        "First argument to $slice must be an array, but is of type: {}",
                        types::name_of(skip)
                    ),
                )),
            }
        }
        _ => Ok(None),
    }
}
