//! The audit log: events as lines of JSON, or as BSON one behind the other, to a file, to standard output, or to the
//! machine's log.
//!
//! Always true: an event is with the system when [`AuditLog::record`] returns, and on the disk where it is of a
//! change of users, roles, collections or of the server itself and goes to a file; what a filter does not match is no
//! event; the file is one that only this server's user can read, and no symbolic link.

use crate::config::{AuditDestination, AuditFormat, AuditSettings};
use crate::log::{ext_json, set_aside};
use crate::startup::{ExitCode, StartError};
use crate::syslog::{self, Syslog};
use bson::{Document, RawDocumentBuf, doc};
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

/// The events of which there are many, and which change nothing: they are with the system, and the disk gets them
/// later.
const NOT_SYNCED: [&str; 5] =
    ["authCheck", "authenticate", "clientMetadata", "getClusterParameter", "logout"];

enum Sink {
    Console,
    Syslog(Syslog),
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
        let failed =
            |path: &Path, error| refuse(&format!("the audit log {}", path.display()), &error);
        let sink = match settings.destination {
            AuditDestination::Console => Sink::Console,
            AuditDestination::Syslog => {
                let path = settings.path.as_deref().unwrap_or(Path::new(syslog::SOCKET));
                Sink::Syslog(Syslog::open(path).map_err(|error| failed(path, error))?)
            }
            AuditDestination::File => {
                let path = settings.path.clone().unwrap_or_else(|| data_directory.join(FILE));
                open_file(os, path.clone()).map_err(|error| failed(&path, error))?
            }
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
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // A file whose name is lost has lost what was synced into it.
    os.vfs.sync_dir(directory.unwrap_or(Path::new(".")))?;
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
            Sink::Syslog(syslog) => match syslog.send(bytes.trim_ascii_end()) {
                Err(error) if syslog::is_too_long(&error) => {
                    // Who, what and when are told all the same.
                    let mut short = event.clone();
                    let left_out = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
                    short.insert("param", doc! { "tooLongForSyslog": left_out });
                    let short = self.encode(&short)?;
                    syslog.send(short.trim_ascii_end()).map_err(|error| error.to_string())
                }
                sent => sent.map_err(|error| error.to_string()),
            },
            Sink::File { file, end, .. } => {
                if let Err(error) = file.write_all_at(&bytes, *end) {
                    // Half an event would be none to who reads them; where it stays, it is the last one.
                    let _half = file.set_len(*end);
                    return Err(error.to_string());
                }
                *end += bytes.len() as u64;
                let kind = event.get_str("atype").unwrap_or_default();
                if NOT_SYNCED.contains(&kind) {
                    return Ok(());
                }
                // Others write meanwhile; one sync is of all that was written before it.
                let file = Arc::clone(file);
                drop(sink);
                file.sync_data().map_err(|error| error.to_string())
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
    use crate::config::{AuditDestination, AuditFormat, AuditSettings};
    use bson::{Document, doc};
    use os::Os;
    use os::sim::SimOs;
    use serverstate::AuditSink;
    use std::fs;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::time::Duration;

    fn settings(format: AuditFormat, filter: Option<Document>) -> AuditSettings {
        AuditSettings { destination: AuditDestination::File, path: None, format, filter }
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
    fn what_changes_something_is_on_the_disk_when_it_is_told() {
        let sim = SimOs::new(3);
        let os = sim.os();
        let directory = Path::new("/data");
        os.vfs.create_dir_all(directory).unwrap();
        let audit = AuditLog::open(&os, &settings(AuditFormat::Json, None), directory).unwrap();
        for kind in ["authenticate", "createUser", "dropCollection", "startup"] {
            audit.record(&doc! { "atype": kind }).unwrap();
        }
        // With the system at most.
        audit.record(&doc! { "atype": "authCheck", "param": "x".repeat(10_000) }).unwrap();
        sim.crash();
        let file =
            sim.reboot().vfs.open(&directory.join(FILE), os::OpenOptions::read_only()).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let kinds: Vec<_> = text.lines().take(4).collect();
        for (line, kind) in
            kinds.iter().zip(["authenticate", "createUser", "dropCollection", "startup"])
        {
            assert!(line.contains(kind), "{text}");
        }
        assert_eq!(kinds.len(), 4, "{text}");
    }

    #[test]
    fn the_machines_log_gets_each_event_also_after_it_was_started_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let listen = || {
            let socket = UnixDatagram::bind(&path).unwrap();
            socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
            socket
        };
        let open = || {
            let settings = AuditSettings {
                destination: AuditDestination::Syslog,
                path: Some(path.clone()),
                ..settings(AuditFormat::Json, None)
            };
            AuditLog::open(&Os::real(), &settings, directory.path())
        };
        assert!(open().err().unwrap().line.contains("log"));
        let daemon = listen();
        let audit = open().unwrap();
        let heard = |daemon: &UnixDatagram| {
            let mut bytes = vec![0; 1 << 20];
            let length = daemon.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        let events = |kind: &str| doc! { "atype": kind, "param": { "db": "d" } };
        audit.record(&events("createUser")).unwrap();
        let text = heard(&daemon);
        let head = format!("<14>fernd[{}]: {{\"atype\":\"createUser\"", std::process::id());
        assert!(text.starts_with(&head) && text.ends_with('}'), "{text}");
        // More than a datagram takes: who and what are told, and that something is left out.
        let long =
            doc! { "atype": "authCheck", "param": { "args": "x".repeat(4 << 20) }, "result": 13 };
        audit.record(&long).unwrap();
        let text = heard(&daemon);
        assert!(text.contains("tooLongForSyslog") && text.contains("authCheck"), "{text}");
        drop(daemon);
        fs::remove_file(&path).unwrap();
        assert!(audit.record(&events("dropUser")).is_err(), "nobody keeps the log");
        let daemon = listen();
        audit.record(&events("dropRole")).unwrap();
        assert!(heard(&daemon).contains("dropRole"));
        audit.rotate().unwrap();
    }

    #[test]
    fn a_filter_that_is_none_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let bad = settings(AuditFormat::Json, Some(doc! { "$nosuch": 1 }));
        let refused = AuditLog::open(&Os::real(), &bad, directory.path()).err().unwrap();
        assert!(refused.line.contains("auditFilter"), "{refused}");
    }
}
