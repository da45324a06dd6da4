//! What a collection demands of its documents: `validator`, `validationLevel`,
//! `validationAction`.
//!
//! Always true: a validator that is kept was parsed; a document that it refuses fails with
//! `DocumentValidationFailure`, its `errInfo` telling why, or under `warn` is logged and kept.

use crate::metadata::namespace::Namespace;
use bson::raw::{CStr, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Bson, Document, RawBson};
use bsonval::show::value as value_text;
use errors::{Code, Error, Result};
use keystring::Collation;
use matcher::{ParseContext, Validator};

/// Which writes are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Off,
    /// All.
    Strict,
    /// All but updates of documents that do not comply already.
    Moderate,
}

/// What happens to a document that does not comply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Error,
    Warn,
}

#[derive(Clone, Debug)]
struct Rule {
    document: RawDocumentBuf,
    validator: Validator,
}

/// The demands of one collection; none by default. What was not said is not shown.
#[derive(Clone, Debug, Default)]
pub struct Validation {
    rule: Option<Rule>,
    level: Option<Level>,
    action: Option<Action>,
}

impl PartialEq for Validation {
    fn eq(&self, other: &Self) -> bool {
        let document = |v: &Self| v.rule.as_ref().map(|rule| rule.document.as_bytes().to_vec());
        document(self) == document(other)
            && (self.level, self.action) == (other.level, other.action)
    }
}

impl Validation {
    /// Whether documents are looked at at all.
    pub(crate) fn has_rule(&self) -> bool {
        self.rule.is_some()
    }

    /// Whether `name` is one of the three options.
    pub fn is_option(name: &str) -> bool {
        matches!(name, "validator" | "validationLevel" | "validationAction")
    }

    /// Takes one of the three options of `command`; an empty validator removes the one there is.
    pub(crate) fn take(&mut self, command: &str, name: &str, value: RawBsonRef<'_>) -> Result<()> {
        match name {
            "validator" => self.rule = parse_rule(command, value)?,
            "validationLevel" => {
                self.level = Some(match value.as_str() {
                    Some("off") => Level::Off,
                    Some("strict") => Level::Strict,
                    Some("moderate") => Level::Moderate,
                    _ => return Err(no_such_value(command, name, value)),
                });
            }
            _ => {
                self.action = Some(match value.as_str() {
                    Some("error") => Action::Error,
                    Some("warn") => Action::Warn,
                    _ => return Err(no_such_value(command, name, value)),
                });
            }
        }
        Ok(())
    }

    /// Reads the validator under the collection's collation, once that is known.
    pub(crate) fn settle(&mut self, collation: Option<&Collation>) -> Result<()> {
        if let (Some(rule), Some(collation)) = (&mut self.rule, collation) {
            let ctx = ParseContext::under(Some(collation.clone()));
            rule.validator = Validator::parse(&rule.document, &ctx)?;
        }
        Ok(())
    }

    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.rule.is_none() && self.level.is_none() && self.action.is_none()
    }

    /// Shows what was said, as `listCollections` does.
    pub(crate) fn show(&self, shown: &mut RawDocumentBuf) {
        if let Some(rule) = &self.rule {
            shown.append(cstr!("validator"), &rule.document);
        }
        let level = self.level.map(|level| match level {
            Level::Off => "off",
            Level::Strict => "strict",
            Level::Moderate => "moderate",
        });
        let action = self.action.map(|action| match action {
            Action::Error => "error",
            Action::Warn => "warn",
        });
        let mut text = |name: &CStr, value: Option<&str>| {
            if let Some(value) = value {
                shown.append(name, value);
            }
        };
        text(cstr!("validationLevel"), level);
        text(cstr!("validationAction"), action);
    }

    /// Refuses a validator where there may be none.
    pub(crate) fn check_place(&self, namespace: &Namespace) -> Result<()> {
        let database = namespace.database();
        if self.rule.is_none() {
            return Ok(());
        }
        let refusal = if namespace.is_system() {
            format!("Document validators not allowed on system collection {namespace}")
        } else if matches!(database, "admin" | "config" | "local") {
            format!(
                "Document validators are not allowed on collection {namespace} in the {database} \
                 internal database"
            )
        } else {
            return Ok(());
        };
        Err(Error::new(Code::INVALID_OPTIONS, refusal))
    }

    /// Whether a document is as it should be.
    pub(crate) fn complies(&self, document: &RawDocument) -> bool {
        match &self.rule {
            // A rule that cannot be evaluated is not kept, as MongoDB has it.
            Some(rule) if self.level != Some(Level::Off) => {
                rule.validator.passes(document).unwrap_or(false)
            }
            _ => true,
        }
    }

    /// Checks a new document.
    pub(crate) fn check_insert(&self, namespace: &Namespace, document: &RawDocument) -> Result<()> {
        if self.complies(document) { Ok(()) } else { self.fail(namespace, document) }
    }

    /// Checks the new version of a document.
    pub(crate) fn check_update(
        &self,
        namespace: &Namespace,
        old: &RawDocument,
        new: &RawDocument,
    ) -> Result<()> {
        if self.complies(new) || self.level == Some(Level::Moderate) && !self.complies(old) {
            return Ok(());
        }
        self.fail(namespace, new)
    }

    fn fail(&self, namespace: &Namespace, document: &RawDocument) -> Result<()> {
        let Some(rule) = &self.rule else { return Ok(()) };
        let info = rule.validator.error_info(document).unwrap_or_else(|_| only_id(document));
        if self.action == Some(Action::Warn) {
            tracing::warn!(
                target: "STORAGE",
                id = 20294,
                %namespace,
                errInfo = %info,
                "Document would fail validation"
            );
            return Ok(());
        }
        let error = Error::new(Code::DOCUMENT_VALIDATION_FAILURE, "Document failed validation");
        Err(error.with_info(info))
    }
}

/// The `errInfo` where the reason cannot be told.
fn only_id(document: &RawDocument) -> Document {
    let mut info = Document::new();
    if let Ok(Some(id)) = document.get("_id")
        && let Ok(id) = Bson::try_from(RawBson::from(id))
    {
        info.insert("failingDocumentId", id);
    }
    info
}

fn parse_rule(command: &str, value: RawBsonRef<'_>) -> Result<Option<Rule>> {
    let document = value.as_document().ok_or_else(|| {
        Error::type_mismatch(format!(
            "BSON field '{command}.validator' is the wrong type, expected type 'object'"
        ))
    })?;
    if document.is_empty() {
        return Ok(None);
    }
    let validator = Validator::parse(document, &ParseContext::default())
        .map_err(|error| error.context("Parsing of collection validator failed"))?;
    Ok(Some(Rule { document: document.to_owned(), validator }))
}

fn no_such_value(command: &str, name: &str, value: RawBsonRef<'_>) -> Error {
    match value {
        RawBsonRef::String(text) => Error::bad_value(format!(
            "Enumeration value '{text}' for field '{command}.{name}' is not a valid value."
        )),
        other => Error::type_mismatch(format!(
            "BSON field '{command}.{name}' is the wrong type, expected type 'string', got {}",
            value_text(other)
        )),
    }
}
