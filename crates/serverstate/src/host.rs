//! What commands need from the program around them: its log, its sockets' figures, its end.
//!
//! The server implements [`Host`]; tests use [`SilentHost`].

use crate::log_levels::LogSettings;
use bson::Document;
use crypt::MasterKey;
use history::History;
use std::sync::Arc;
use std::time::Duration;

/// Once it is dropped the program ends and starts again: whoever asked for it is answered before.
pub struct StartAgain(Option<Box<dyn FnOnce() + Send>>);

impl StartAgain {
    /// Begins it by this.
    pub fn by(begin: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(begin)))
    }
}

impl Drop for StartAgain {
    fn drop(&mut self) {
        if let Some(begin) = self.0.take() {
            begin();
        }
    }
}

/// How much a log line matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// `I`
    Info,
    /// `W`
    Warning,
    /// `E`
    Error,
}

/// One log line.
#[derive(Debug)]
pub struct LogEvent<'a> {
    /// How much it matters.
    pub severity: Severity,
    /// `COMMAND`, `NETWORK`, …
    pub component: &'static str,
    /// The line's number, MongoDB's where it has one.
    pub id: i32,
    /// `conn12`.
    pub context: &'a str,
    /// The text, as the code has it: what is of a client stands in the details, which may have to be hidden.
    pub message: &'static str,
    /// Its details.
    pub attributes: Document,
}

/// The sockets' figures.
#[derive(Clone, Copy, Default, Debug)]
pub struct Network {
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes received before decompression.
    pub physical_bytes_in: u64,
    /// Bytes sent after compression.
    pub physical_bytes_out: u64,
    /// Messages received.
    pub requests: u64,
    /// Connections open now.
    pub connections: u64,
    /// Connections that may still be opened.
    pub available: u64,
    /// Connections made since the start.
    pub total_created: u64,
    /// Connections refused because of the limit.
    pub rejected: u64,
    /// Connections that run a request now.
    pub active: u64,
    /// Threads that serve connections, or are ready to.
    pub threads: u64,
    /// Connections whose `hello` waits for a change.
    pub awaiting: u64,
    /// Connections closed because nobody logged in on them.
    pub closed_before_login: u64,
    /// Handshakes of TLS 1.2.
    pub tls12: u64,
    /// Handshakes of TLS 1.3.
    pub tls13: u64,
}

/// The allocator's figures, in bytes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Allocator {
    /// In objects.
    pub allocated: u64,
    /// In pages that hold objects.
    pub active: u64,
    /// In memory, free pages that were not given back included.
    pub resident: u64,
}

/// Where the audit log's events go.
pub trait AuditSink: Send + Sync {
    /// Takes an event; it is with the system when this returns. The text says why it is not.
    fn record(&self, event: &Document) -> Result<(), String>;

    /// Starts a new file.
    fn rotate(&self) -> Result<(), String>;
}

/// The certificate that the server shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Its subject.
    pub subject: String,
    /// Until when it is valid, in milliseconds since 1970.
    pub not_after_ms: i64,
    /// Whether those of clients are looked at.
    pub has_authority: bool,
}

/// The program around the commands.
pub trait Host: Send + Sync {
    /// Writes a log line.
    fn log(&self, event: &LogEvent<'_>);

    /// The newest log lines under a name of `getLog` (`global`, `startupWarnings`), and how many
    /// there were in all; `None` for a name there is not.
    fn recent_log(&self, name: &str) -> Option<(Vec<String>, u64)>;

    /// The master key that the operator keeps now; `None` where the data directory is not encrypted. The text says
    /// why it cannot be read.
    fn read_master_key(&self) -> Option<Result<MasterKey, String>> {
        None
    }

    /// Starts a new log file, as `logRotate` asks. The text is the client's error message.
    fn rotate_log(&self) -> Result<(), String>;

    /// The certificate that the server shows; none where it does not speak TLS.
    fn certificate(&self) -> Option<Certificate> {
        None
    }

    /// Loads the files of TLS again. The text is the client's error message; what was loaded stays then.
    fn rotate_certificates(&self) -> Result<(), String> {
        Err("TLS is off".to_owned())
    }

    /// How much the log was told to hold when the program started.
    fn log_settings(&self) -> LogSettings {
        LogSettings::default()
    }

    /// From now on the log holds this much.
    fn set_log_settings(&self, _settings: &LogSettings) {}

    /// Begins the clean end of the program; returns at once.
    fn shut_down(&self, timeout: Duration);

    /// The clean end of the program, and its start with the same options, as the same process, which begin when what this
    /// gives is dropped. What stands in the data directory by then counts. A host that cannot says so.
    fn start_again(&self) -> Result<StartAgain, String> {
        Err("this program cannot start itself again".to_owned())
    }

    /// The audit log, where one is kept.
    fn audit(&self) -> Option<&dyn AuditSink> {
        None
    }

    /// Begins the end of the program, which tells its caller that it failed, and why.
    fn fail(&self, _why: &'static str) {
        self.shut_down(Duration::ZERO);
    }

    /// The sockets' figures.
    fn network(&self) -> Network;

    /// The allocator's figures, where it tells.
    fn allocator(&self) -> Option<Allocator> {
        None
    }

    /// What the figures were, second by second, where somebody keeps them.
    fn history(&self) -> Option<Arc<History>> {
        None
    }
}

/// A host without sockets or log, for tests and embedded use.
#[derive(Debug, Default)]
pub struct SilentHost;

impl Host for SilentHost {
    fn log(&self, _event: &LogEvent<'_>) {}

    fn recent_log(&self, name: &str) -> Option<(Vec<String>, u64)> {
        matches!(name, "global" | "startupWarnings").then(|| (Vec::new(), 0))
    }

    fn rotate_log(&self) -> Result<(), String> {
        Err("the log is not a file".to_owned())
    }

    fn shut_down(&self, _timeout: Duration) {}

    fn network(&self) -> Network {
        Network::default()
    }
}
