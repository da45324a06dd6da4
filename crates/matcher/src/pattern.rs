//! Regular expressions: PCRE with MongoDB's options.
//!
//! Always true: a match that is over a limit of `pcre` is an error, and one that takes long ends with
//! its operation.

use bson::raw::RawRegexRef;
use errors::{Code, Error, Result};
use pcre::{CompileError, MatchError, Regex, read_options};
use std::fmt;

/// A compiled pattern with its source.
#[derive(Clone)]
pub struct Pattern {
    source: String,
    options: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern; `options` are letters of `imsxu`.
    pub fn new(source: &str, options: &str) -> Result<Self> {
        if source.contains('\0') {
            return Err(Error::location(
                51109,
                "Regular expression cannot contain an embedded null byte",
            ));
        }
        if options.contains('\0') {
            return Err(Error::location(
                51110,
                "Regular expression options string cannot contain an embedded null byte",
            ));
        }
        let given = read_options(options).map_err(|other| {
            Error::location(51108, format!("invalid flag in regex options: {other}"))
        })?;
        let regex = Regex::new(source, given).map_err(|error| match error {
            CompileError::Pattern(reason) => invalid(&reason),
            CompileError::Operation(error) => error,
        })?;
        Ok(Self { source: source.to_owned(), options: options.to_owned(), regex })
    }

    /// Compiles a BSON regular expression.
    pub fn from_bson(regex: RawRegexRef<'_>) -> Result<Self> {
        Self::new(regex.pattern.as_str(), regex.options.as_str())
    }

    /// The pattern's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The options as given.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Whether the text matches. A match that exceeds PCRE's limits is an error.
    pub fn is_match(&self, text: &str) -> Result<bool> {
        self.regex.is_match(text).map_err(|failure| match failure {
            MatchError::Operation(error) => error,
            MatchError::Match(reason) => Error::location(
                51156,
                format!("Error occurred while executing regular expression. {reason}"),
            ),
        })
    }

    /// Whether a stored regular expression is this very one.
    pub fn is_same(&self, regex: RawRegexRef<'_>) -> bool {
        regex.pattern.as_str() == self.source && regex.options.as_str() == self.options
    }

    /// What every matching text begins with, where the pattern is anchored at the start and begins
    /// with plain characters; and whether that is all the pattern says. An index can use it.
    pub fn literal_prefix(&self) -> Option<(String, bool)> {
        if self.options.contains(['i', 'm', 'x']) || self.source.contains('|') {
            return None;
        }
        let rest = self.source.strip_prefix('^').or_else(|| self.source.strip_prefix("\\A"))?;
        let mut prefix = String::new();
        let mut chars = rest.chars().peekable();
        let mut complete = true;
        while let Some(c) = chars.next() {
            let literal = match c {
                '\\' => match chars.next() {
                    Some(escaped) if !escaped.is_ascii_alphanumeric() => escaped,
                    _ => {
                        complete = false;
                        break;
                    }
                },
                '.' | '[' | '(' | ')' | '^' | '$' | '*' | '+' | '?' | '{' => {
                    // ".*" at the very end changes nothing.
                    complete = c == '.' && chars.next() == Some('*') && chars.next().is_none();
                    complete = complete && self.options.contains('s');
                    break;
                }
                plain => plain,
            };
            if matches!(chars.peek(), Some('*' | '?' | '{')) {
                complete = false;
                break;
            }
            prefix.push(literal);
            if chars.peek() == Some(&'+') {
                complete = false;
                break;
            }
        }
        (!prefix.is_empty()).then_some((prefix, complete))
    }
}

fn invalid(reason: &str) -> Error {
    Error::new(Code::location(51091), format!("Regular expression is invalid: {reason}"))
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        (&self.source, &self.options) == (&other.source, &other.options)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/{}", self.source, self.options)
    }
}
