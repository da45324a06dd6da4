//! The audit log: events as lines of JSON, or as BSON one behind the other, to a file or to standard output.
//!
//! Always true: an event is with the system when [`AuditLog::record`] returns; what a filter does not match is no event; the
//! file is one that only this server's user can read, and no symbolic link.

use crate::config::{AuditFormat, AuditSettings};
use crate::log::{ext_json, set_aside};
use crate::startup::{ExitCode, StartError};
use bson::{Document, RawDocumentBuf};
use matcher::{Filter, ParseContext};
use os::{File, OpenOptions, Os};
use parking_lot::Mutex;
use serde_json::Value;
use serverstate::AuditSink;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the file in the data directory, where no other is named.
const FILE: &str = "auditLog.json";

enum Sink {
    Console,
    File { file: Arc<dyn File>, end: u64, path: PathBuf },
}

/// The audit log.
pub(crate) struct AuditLog {
    os: Os,
    format: AuditFormat,
    filter: Option<Filter>,
    sink: Mutex<Sink>,
}

impl AuditLog {
    /// Opens it as it is asked for.
    ///
    /// # Errors
    /// The filter is none, or the file cannot be written.
    pub(crate) fn open(
        os: &Os,
        settings: &AuditSettings,
        data_directory: &Path,
    ) -> Result<Self, StartError> {
        let refuse = |what: &str, error: &dyn Display| {
            StartError::new(ExitCode::BadOptions, format!("{what}: {error}"))
        };
        let filter = match &settings.filter {
            None => None,
            Some(filter) => {
                let raw = RawDocumentBuf::try_from(filter);
                let raw = raw.map_err(|error| refuse("auditFilter", &error))?;
                let parsed = Filter::parse_query(&raw, &ParseContext::under(None));
                Some(parsed.map_err(|error| refuse("auditFilter", &error.message()))?)
            }
        };
        let sink = if settings.to_console {
            Sink::Console
        } else {
            let path = settings.path.clone().unwrap_or_else(|| data_directory.join(FILE));
            open_file(os, path.clone())
                .map_err(|error| refuse(&format!("the audit log {}", path.display()), &error))?
        };
        Ok(Self { os: os.clone(), format: settings.format, filter, sink: Mutex::new(sink) })
    }

    fn encode(&self, event: &Document) -> Result<Vec<u8>, String> {
        match self.format {
            AuditFormat::Bson => event.to_vec().map_err(|error| error.to_string()),
            AuditFormat::Json => {
                let mut line = Value::Object(ext_json::fields(event)).to_string().into_bytes();
                line.push(b'\n');
                Ok(line)
            }
        }
    }
}

fn open_file(os: &Os, path: PathBuf) -> io::Result<Sink> {
    let options = OpenOptions { no_follow: true, ..OpenOptions::create() };
    let file = os.vfs.open(&path, options)?;
    let end = file.len()?;
    Ok(Sink::File { file, end, path })
}

impl AuditSink for AuditLog {
    fn record(&self, event: &Document) -> Result<(), String> {
        if let Some(filter) = &self.filter {
            let raw = RawDocumentBuf::try_from(event).map_err(|error| error.to_string())?;
            // What a filter cannot be asked about is told rather than left out.
            if !filter.matches(&raw).unwrap_or(true) {
                return Ok(());
            }
        }
        let bytes = self.encode(event)?;
        let mut sink = self.sink.lock();
        match &mut *sink {
            Sink::Console => {
                let mut out = io::stdout().lock();
                out.write_all(&bytes).and_then(|()| out.flush()).map_err(|error| error.to_string())
            }
            Sink::File { file, end, .. } => {
                if let Err(error) = file.write_all_at(&bytes, *end) {
                    // Half an event would be none to who reads them; where it stays, it is the last one.
                    let _half = file.set_len(*end);
                    return Err(error.to_string());
                }
                *end += bytes.len() as u64;
                Ok(())
            }
        }
    }

    fn rotate(&self) -> Result<(), String> {
        let mut sink = self.sink.lock();
        let Sink::File { path, .. } = &*sink else { return Ok(()) };
        let path = path.clone();
        set_aside(&self.os, &path).map_err(|error| error.to_string())?;
        *sink = open_file(&self.os, path).map_err(|error| error.to_string())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{AuditLog, FILE};
    use crate::config::{AuditFormat, AuditSettings};
    use bson::{Document, doc};
    use os::Os;
    use serverstate::AuditSink;
    use std::fs;

    fn settings(format: AuditFormat, filter: Option<Document>) -> AuditSettings {
        AuditSettings { to_console: false, path: None, format, filter }
    }

    #[test]
    fn events_that_match_are_in_the_file_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let filter = doc! { "atype": { "$in": ["dropUser", "authenticate"] }, "param.db": "d" };
        let open = || {
            let settings = settings(AuditFormat::Json, Some(filter.clone()));
            AuditLog::open(&Os::real(), &settings, directory.path()).unwrap()
        };
        let audit = open();
        for (kind, db) in
            [("dropUser", "d"), ("dropUser", "e"), ("createUser", "d"), ("authenticate", "d")]
        {
            audit.record(&doc! { "atype": kind, "param": { "db": db } }).unwrap();
        }
        // Goes on behind what is there.
        drop(audit);
        let audit = open();
        audit.record(&doc! { "atype": "dropUser", "param": { "db": "d" }, "result": 0 }).unwrap();
        let text = fs::read_to_string(directory.path().join(FILE)).unwrap();
        let kinds: Vec<_> = text.lines().map(|line| &line[..24]).collect();
        assert_eq!(kinds.len(), 3, "{text}");
        assert!(text.lines().nth(1).unwrap().contains("authenticate"), "{text}");
        audit.rotate().unwrap();
        assert_eq!(fs::read_to_string(directory.path().join(FILE)).unwrap(), "");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn bson_is_one_document_behind_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let audit =
            AuditLog::open(&Os::real(), &settings(AuditFormat::Bson, None), directory.path())
                .unwrap();
        let events = [doc! { "atype": "a" }, doc! { "atype": "b", "result": 13 }];
        for event in &events {
            audit.record(event).unwrap();
        }
        let bytes = fs::read(directory.path().join(FILE)).unwrap();
        let mut reader = &bytes[..];
        for event in events {
            assert_eq!(Document::from_reader(&mut reader).unwrap(), event);
        }
        assert!(reader.is_empty());
    }

    #[test]
    fn a_filter_that_is_none_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let bad = settings(AuditFormat::Json, Some(doc! { "$nosuch": 1 }));
        let refused = AuditLog::open(&Os::real(), &bad, directory.path()).err().unwrap();
        assert!(refused.line.contains("auditFilter"), "{refused}");
    }
}
