//! The one table of error codes, names and labels that a client can see.
//!
//! Every layer from `bsonval` up returns [`Error`]; its number and name are MongoDB's, chosen here
//! once, so that drivers, tests and `docs/COMPAT.md` read the same list.
//!
//! Invariants, held by the tests below:
//! 1. No two rows of the table share a number or a name.
//! 2. A code outside the table is a "Location" code: its name is `Location<number>`.
#![forbid(unsafe_code)]

use bson::Document;
use std::borrow::Cow;
use std::fmt;

mod table;
pub use table::TABLE;

/// What a fallible step of `bsonval` and the layers above it returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A MongoDB error number. The named ones are constants (`Code::BAD_VALUE`); the nameless ones
/// MongoDB calls locations are made with [`Code::location`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub i32);

impl Code {
    /// A code that has a number but no name of its own; clients see `Location<number>`.
    pub const fn location(number: i32) -> Self {
        Self(number)
    }

    /// The `codeName` a client sees.
    pub fn name(self) -> Cow<'static, str> {
        match TABLE.iter().find(|(code, _)| *code == self) {
            Some((_, name)) => Cow::Borrowed(name),
            None => Cow::Owned(format!("Location{}", self.0)),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// An error as the client will see it. Boxed inside, so that a `Result` stays small.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    message: String,
    labels: Vec<&'static str>,
    /// Extra fields laid beside `code` in the reply or the write error (`keyPattern`, `keyValue`).
    extra: Option<Document>,
    /// The `errInfo` of a write error (document validation details).
    info: Option<Document>,
}

impl Error {
    /// An error with a code and the text the client reads.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            labels: Vec::new(),
            extra: None,
            info: None,
        }))
    }

    /// `BadValue`, the commonest answer to a malformed argument.
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(Code::BAD_VALUE, message)
    }

    /// `FailedToParse`.
    pub fn failed_to_parse(message: impl Into<String>) -> Self {
        Self::new(Code::FAILED_TO_PARSE, message)
    }

    /// `TypeMismatch`.
    pub fn type_mismatch(message: impl Into<String>) -> Self {
        Self::new(Code::TYPE_MISMATCH, message)
    }

    /// An error MongoDB numbers without naming.
    pub fn location(number: i32, message: impl Into<String>) -> Self {
        Self::new(Code::location(number), message)
    }

    /// Adds an error label (`TransientTransactionError` and its kin).
    #[must_use]
    pub fn with_label(mut self, label: &'static str) -> Self {
        if !self.0.labels.contains(&label) {
            self.0.labels.push(label);
        }
        self
    }

    /// Lays extra fields beside the code (`keyPattern`, `keyValue`).
    #[must_use]
    pub fn with_extra(mut self, extra: Document) -> Self {
        self.0.extra = Some(extra);
        self
    }

    /// Sets `errInfo`.
    #[must_use]
    pub fn with_info(mut self, info: Document) -> Self {
        self.0.info = Some(info);
        self
    }

    /// The same error, its message led by `context` and `": "`, as MongoDB nests causes.
    #[must_use]
    pub fn context(mut self, context: &str) -> Self {
        self.0.message = format!("{context} :: caused by :: {}", self.0.message);
        self
    }

    /// The number.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The text.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The labels.
    pub fn labels(&self) -> &[&'static str] {
        &self.0.labels
    }

    /// Fields laid beside the code.
    pub fn extra(&self) -> Option<&Document> {
        self.0.extra.as_ref()
    }

    /// The `errInfo`.
    pub fn info(&self) -> Option<&Document> {
        self.0.info.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.code, self.0.message)
    }
}

impl std::error::Error for Error {}

impl From<bson::error::Error> for Error {
    fn from(error: bson::error::Error) -> Self {
        Self::new(Code::INVALID_BSON, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn table_numbers_and_names_are_unique() {
        let numbers: BTreeSet<_> = TABLE.iter().map(|(code, _)| code.0).collect();
        let names: BTreeSet<_> = TABLE.iter().map(|(_, name)| *name).collect();
        assert_eq!((numbers.len(), names.len()), (TABLE.len(), TABLE.len()));
    }

    #[test]
    fn a_code_outside_the_table_is_a_location() {
        assert_eq!(Code::location(40324).name(), "Location40324");
        assert_eq!(Code::NAMESPACE_NOT_FOUND.name(), "NamespaceNotFound");
    }
}
