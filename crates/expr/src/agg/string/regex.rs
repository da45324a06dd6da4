//! `$regexMatch $regexFind $regexFindAll`, on PCRE2 as MongoDB.
//!
//! A pattern that is a constant is compiled once.

use crate::agg::eval::{Scope, optional};
use crate::agg::parse::{Node, expression, fields};
use crate::agg::value::List;
use crate::agg::{ParseContext, Value};
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf, cstr};
use bsonval::types::name_of;
use errors::{Error, Result};
use pcre::read_options;
use pcre::{Captures, CompileError, MatchError, Regex};

/// Which result an operator gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchResult {
    Match,
    First,
    All,
}

/// A parsed call.
#[derive(Clone, Debug)]
pub(crate) struct RegexCall {
    name: &'static str,
    wanted: MatchResult,
    input: Node,
    regex: Node,
    options: Option<Node>,
    compiled: Option<Regex>,
}

impl RegexCall {
    pub(crate) fn parse(
        name: &str,
        value: RawBsonRef<'_>,
        ctx: &ParseContext,
        depth: usize,
    ) -> Result<Self> {
        let (name, wanted) = match name {
            "$regexMatch" => ("$regexMatch", MatchResult::Match),
            "$regexFind" => ("$regexFind", MatchResult::First),
            _ => ("$regexFindAll", MatchResult::All),
        };
        let RawBsonRef::Document(document) = value else {
            return Err(Error::location(
                51103,
                format!(
                    "{name} expects an object of named arguments but found: {}",
                    name_of(value)
                ),
            ));
        };
        let [input, regex, options] = fields(document, ["input", "regex", "options"], |other| {
            Error::location(31024, format!("{name} found an unknown argument: {other}"))
        })?;
        let need = |value: Option<_>, code, what| {
            value
                .ok_or_else(|| Error::location(code, format!("{name} requires '{what}' parameter")))
        };
        let mut call = Self {
            name,
            wanted,
            input: expression(need(input, 31022, "input")?, ctx, depth)?,
            regex: expression(need(regex, 31023, "regex")?, ctx, depth)?,
            options: options.map(|value| expression(value, ctx, depth)).transpose()?,
            compiled: None,
        };
        call.compile_constant()?;
        Ok(call)
    }

    fn compile_constant(&mut self) -> Result<()> {
        let Node::Constant(Some(regex)) = &self.regex else { return Ok(()) };
        let options = match &self.options {
            None => Value::Missing,
            Some(Node::Constant(Some(options))) => Value::Ref(options.as_raw_bson_ref()),
            Some(_) => return Ok(()),
        };
        self.compiled = self.compile(&Value::Ref(regex.as_raw_bson_ref()), &options)?;
        Ok(())
    }

    pub(crate) fn children(&self) -> Vec<&Node> {
        [&self.input, &self.regex].into_iter().chain(&self.options).collect()
    }

    pub(crate) fn children_mut(&mut self) -> Vec<&mut Node> {
        [&mut self.input, &mut self.regex].into_iter().chain(&mut self.options).collect()
    }

    /// `None` for a null pattern.
    fn compile(&self, regex: &Value<'_>, options: &Value<'_>) -> Result<Option<Regex>> {
        let name = self.name;
        let (pattern, own_options) = match regex.bson() {
            RawBsonRef::Null | RawBsonRef::Undefined => return Ok(None),
            RawBsonRef::String(pattern) => (pattern, ""),
            RawBsonRef::RegularExpression(regex) => {
                (regex.pattern.as_str(), regex.options.as_str())
            }
            _ => {
                return Err(Error::location(
                    51105,
                    format!("{name} needs 'regex' to be of type string or regex"),
                ));
            }
        };
        let given = match options.bson() {
            RawBsonRef::Null | RawBsonRef::Undefined => "",
            RawBsonRef::String(options) => options,
            _ => {
                return Err(Error::location(
                    51106,
                    format!("{name} needs 'options' to be of type string"),
                ));
            }
        };
        if !given.is_empty() && !own_options.is_empty() {
            return Err(Error::location(
                51107,
                format!(
                    "{name}: found regex option(s) specified in both 'regex' and 'option' fields"
                ),
            ));
        }
        if pattern.contains('\0') {
            return Err(Error::location(
                51109,
                format!("{name}: regular expression cannot contain an embedded null byte"),
            ));
        }
        let flags = if given.is_empty() { own_options } else { given };
        let options = read_options(flags).map_err(|bad| {
            Error::location(51108, format!("{name}: invalid flag in regex options: {bad}"))
        })?;
        Regex::new(pattern, options).map(Some).map_err(|error| match error {
            CompileError::Operation(error) => error,
            CompileError::Pattern(reason) => {
                Error::location(51111, format!("Invalid Regex in {name}: {reason}"))
            }
        })
    }

    pub(crate) fn evaluate<'a>(&'a self, scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        let fresh;
        let compiled = if self.compiled.is_some() {
            self.compiled.as_ref()
        } else {
            let regex = self.regex.evaluate(scope)?;
            let options = optional(self.options.as_ref(), scope)?;
            fresh = self.compile(&regex, &options)?;
            fresh.as_ref()
        };
        if !input.is_nullish() && input.as_str().is_none() {
            return Err(Error::location(
                51104,
                format!("{} needs 'input' to be of type string", self.name),
            ));
        }
        let (Some(subject), Some(regex)) = (input.as_str(), compiled) else {
            return Ok(match self.wanted {
                MatchResult::Match => Value::bool(false),
                MatchResult::First => Value::NULL,
                MatchResult::All => List::default().finish(),
            });
        };
        match self.wanted {
            MatchResult::Match => {
                Ok(Value::bool(regex.is_match(subject).map_err(|e| self.failed(e))?))
            }
            MatchResult::First => self.first(regex, subject),
            MatchResult::All => self.all(regex, subject),
        }
    }

    fn failed(&self, failure: MatchError) -> Error {
        match failure {
            MatchError::Operation(error) => error,
            MatchError::Match(reason) => Error::location(
                51156,
                format!(
                    "Error occurred while executing the regular expression in {}. Result code: \
                     {reason}",
                    self.name
                ),
            ),
        }
    }

    fn first<'a>(&self, regex: &Regex, subject: &str) -> Result<Value<'a>> {
        let mut places = regex.captures();
        if !regex.captures_at(subject, 0, &mut places).map_err(|e| self.failed(e))? {
            return Ok(Value::NULL);
        }
        let start = places.get(0).map_or(0, |(start, _)| start);
        Ok(describe(subject, &places, code_points(subject, 0, start)).into())
    }

    fn all<'a>(&self, regex: &Regex, subject: &str) -> Result<Value<'a>> {
        let mut built = List::default();
        let mut places = regex.captures();
        let (mut at, mut counted_to, mut cp) = (0, 0, 0);
        while at <= subject.len() {
            if !regex.captures_at(subject, at, &mut places).map_err(|e| self.failed(e))? {
                break;
            }
            let (start, end) = places.get(0).unwrap_or((at, at));
            cp += code_points(subject, counted_to, start);
            counted_to = counted_to.max(start);
            built.push(RawBsonRef::Document(&describe(subject, &places, cp)))?;
            // After an empty match, go on behind the next character.
            at = end.max(at + usize::from(end <= start));
            while at < subject.len() && !subject.is_char_boundary(at) {
                at += 1;
            }
        }
        Ok(built.finish())
    }
}

/// Code points that begin in a range of bytes. `\C` and `\K` can make ranges that cut characters
/// or run backwards, so this counts bytes and never slices text.
fn code_points(subject: &str, from: usize, to: usize) -> usize {
    let bytes = subject.as_bytes().get(from..to).unwrap_or_default();
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// `{match, idx, captures}`.
fn describe(subject: &str, places: &Captures, cp: usize) -> RawDocumentBuf {
    let text = |group| places.get(group).and_then(|(from, to)| subject.get(from..to));
    let mut captures = RawArrayBuf::new();
    for group in 1..places.len() {
        captures.push(text(group).map_or(RawBsonRef::Null, RawBsonRef::String));
    }
    let mut built = RawDocumentBuf::new();
    built.append(cstr!("match"), text(0).unwrap_or(""));
    built.append(cstr!("idx"), cp as i32);
    built.append(cstr!("captures"), captures);
    built
}
