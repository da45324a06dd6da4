//! The options of the audit log, by MongoDB's and Percona's spelling.

use crate::config::ConfigError;
use crate::config::settings::GivenOptions;
use bson::{Bson, Document};
use serde_yaml_ng::Value;
use std::path::PathBuf;

/// How an event is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditFormat {
    /// A line of extended JSON.
    Json,
    /// A document.
    Bson,
}

/// Where the audit log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditDestination {
    /// To a file.
    File,
    /// To standard output.
    Console,
    /// To the machine's log, through its socket.
    Syslog,
}

/// Where the audit log goes, and what of it.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditSettings {
    /// To what.
    pub destination: AuditDestination,
    /// The file, or the socket of the machine's log; none where it has its usual name.
    pub path: Option<PathBuf>,
    /// Its form.
    pub format: AuditFormat,
    /// The query that an event must match.
    pub filter: Option<Document>,
}

impl GivenOptions {
    pub(super) fn audit(&self) -> Result<Option<AuditSettings>, ConfigError> {
        let refuse = |option: &str, text: &str, known: &str| {
            Err(ConfigError::new(format!(
                "option {option}: '{text}' is not supported, only {known}"
            )))
        };
        let destination = match self.text("auditDestination") {
            Some("file") => AuditDestination::File,
            Some("console") => AuditDestination::Console,
            Some("syslog") => AuditDestination::Syslog,
            Some(other) => return refuse("auditDestination", other, "file, console and syslog"),
            None => {
                let others = ["auditFormat", "auditPath", "auditFilter"];
                return match others.iter().find(|flag| self.text(flag).is_some()) {
                    Some(flag) => {
                        Err(ConfigError::new(format!("option {flag} needs --auditDestination")))
                    }
                    None => Ok(None),
                };
            }
        };
        let format = match self.text("auditFormat") {
            None | Some("JSON") => AuditFormat::Json,
            Some("BSON") if destination == AuditDestination::File => AuditFormat::Bson,
            Some(other) => return refuse("auditFormat", other, "JSON, and BSON in a file"),
        };
        let filter = self.text("auditFilter").map(filter).transpose()?;
        Ok(Some(AuditSettings { destination, path: self.path("auditPath"), format, filter }))
    }
}

/// A query as the shell writes it: JSON, whose keys may stand without quotes.
fn filter(text: &str) -> Result<Document, ConfigError> {
    let refuse = |why: &str| ConfigError::new(format!("option auditFilter: {why}"));
    let value: Value = serde_yaml_ng::from_str(text)
        .map_err(|error| refuse(&error.to_string().replace('\n', " ")))?;
    match bson_of(&value) {
        Some(Bson::Document(filter)) => Ok(filter),
        _ => Err(refuse("it is no query document")),
    }
}

fn bson_of(value: &Value) -> Option<Bson> {
    Some(match value {
        Value::Null => Bson::Null,
        Value::Bool(value) => Bson::Boolean(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => i32::try_from(whole).map_or(Bson::Int64(whole), Bson::Int32),
            None => Bson::Double(number.as_f64()?),
        },
        Value::String(text) => Bson::String(text.clone()),
        Value::Sequence(items) => Bson::Array(items.iter().map(bson_of).collect::<Option<_>>()?),
        Value::Mapping(fields) => {
            let field = |(name, value): (&Value, &Value)| {
                Some((name.as_str()?.to_owned(), bson_of(value)?))
            };
            Bson::Document(fields.iter().map(field).collect::<Option<_>>()?)
        }
        Value::Tagged(_) => return None,
    })
}
