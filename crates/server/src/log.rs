//! The log: one JSON line per event, in the shape `mongod` has written since 4.4.
//!
//! ```text
//! {"t":{"$date":"2026-01-02T03:04:05.678+00:00"},"s":"I","c":"NETWORK","id":22943,
//!  "ctx":"listener","msg":"Connection accepted","attr":{"remote":"127.0.0.1:4711"}}
//! ```
//!
//! Every crate logs through `tracing`; [`Log::install`] makes this the receiver of all of it. The
//! target of an event is its component (`NETWORK`, `STORAGE`, ...), its field `id` the number
//! that tools look for, everything else goes under `attr`.
//!
//! What is always true:
//! 1. A line is written whole and in order; lines of different threads do not mix.
//! 2. A log that cannot be written loses lines, never the server.
//! 3. The newest lines stay in memory, bounded in number and length, for `getLog`.

pub(crate) mod ext_json;
mod redaction;

use os::{Clock, File, OpenOptions, Os};
use parking_lot::{Mutex, RwLock};
use rustix::fs::FileType;
use serde_json::{Map, Value, json};
use serverstate::LogSettings;
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use telemetry::Context;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines `getLog: "global"` can give back.
const RECENT_LINES: usize = 1024;

/// Longest text of one attribute; the rest of it is not logged.
const MAX_ATTRIBUTE: usize = 10 * 1024;

/// The component of lines that name none.
const NO_COMPONENT: &str = "-";

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// A file; appended to, or the old one renamed first.
    File {
        /// The file.
        path: PathBuf,
        /// Go on at its end.
        append: bool,
    },
}

/// The log of this process.
pub struct Log {
    os: Os,
    /// Guards how much is logged of what.
    settings: RwLock<LogSettings>,
    state: Mutex<State>,
}

struct State {
    sink: Sink,
    recent: VecDeque<Arc<str>>,
    total: u64,
    startup_warnings: Vec<Arc<str>>,
}

enum Sink {
    Stdout,
    File { file: Arc<dyn File>, end: u64, path: PathBuf },
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl Log {
    /// Opens the log. Verbosity 0 is informational, 1 to 5 more and more.
    ///
    /// # Errors
    /// Where the file cannot be opened or renamed.
    pub fn open(os: &Os, destination: Destination, verbosity: u8) -> io::Result<Arc<Self>> {
        let sink = match destination {
            Destination::Stdout => Sink::Stdout,
            Destination::File { path, append } => {
                refuse_link(&path)?;
                if !append && os.vfs.exists(&path)? {
                    set_aside(os, &path)?;
                }
                open_file(os, path)?
            }
        };
        Ok(Arc::new(Self {
            os: os.clone(),
            settings: RwLock::new(LogSettings::at(verbosity)),
            state: Mutex::new(State {
                sink,
                recent: VecDeque::new(),
                total: 0,
                startup_warnings: Vec::new(),
            }),
        }))
    }

    /// Makes this log the receiver of every event in the process. The first one installed stays.
    pub fn install(self: &Arc<Self>) -> bool {
        tracing::subscriber::set_global_default(Receiver(Arc::clone(self))).is_ok()
    }

    /// Renames the file (with the time behind its name) and starts a new one; `SIGUSR1` and the
    /// `logRotate` command. Standard output is left as it is.
    ///
    /// # Errors
    /// Where the file cannot be renamed or made; lines then go on into the old one.
    pub fn rotate(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let Sink::File { path, .. } = &state.sink else { return Ok(()) };
        let path = path.clone();
        set_aside(&self.os, &path)?;
        state.sink = open_file(&self.os, path)?;
        Ok(())
    }

    /// The newest lines, oldest first, and how many there ever were.
    pub fn recent(&self) -> (Vec<Arc<str>>, u64) {
        let state = self.state.lock();
        (state.recent.iter().cloned().collect(), state.total)
    }

    /// The lines marked as warnings about how the server was started.
    pub fn startup_warnings(&self) -> Vec<Arc<str>> {
        self.state.lock().startup_warnings.clone()
    }

    /// How much is logged.
    pub(crate) fn settings(&self) -> LogSettings {
        self.settings.read().clone()
    }

    /// From now on logs this much.
    pub(crate) fn set_settings(&self, settings: &LogSettings) {
        self.settings.write().clone_from(settings);
        tracing::callsite::rebuild_interest_cache();
    }

    /// Writes one line whose every part the caller chooses; `commands` logs this way.
    pub fn tell(
        &self,
        severity: &str,
        component: &str,
        id: i32,
        context: &str,
        message: &str,
        attributes: &bson::Document,
    ) {
        let line = Line {
            severity,
            component,
            id: u64::try_from(id).unwrap_or_default(),
            context,
            message,
            attributes: ext_json::fields(attributes),
            startup_warning: false,
            written_by: "commands",
        };
        self.write(line);
    }

    fn wants(&self, level: Level, target: &str) -> bool {
        let verbosity = || self.settings.read().level_of(component(target));
        match level {
            Level::ERROR | Level::WARN | Level::INFO => true,
            Level::DEBUG => verbosity() >= 1,
            Level::TRACE => verbosity() >= 3,
        }
    }

    fn write(&self, mut line: Line<'_>) {
        if self.settings.read().redacts {
            redaction::redact(&mut line.attributes, line.written_by);
        }
        let startup_warning = line.startup_warning;
        let line = line.render(&*self.os.clock);
        let mut state = self.state.lock();
        state.total += 1;
        let kept: Arc<str> = line.trim_end().into();
        if startup_warning {
            state.startup_warnings.push(Arc::clone(&kept));
        }
        if state.recent.len() == RECENT_LINES {
            state.recent.pop_front();
        }
        state.recent.push_back(kept);
        // Rule 2: there is no better place to tell of a log that cannot be written.
        match &mut state.sink {
            Sink::Stdout => {
                let _lost = io::stdout().lock().write_all(line.as_bytes());
            }
            Sink::File { file, end, .. } => {
                if file.write_all_at(line.as_bytes(), *end).is_ok() {
                    *end += line.len() as u64;
                }
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

/// What follows a link here writes where somebody else pointed to, and what renames it moves a link
/// and not a log.
fn refuse_link(path: &Path) -> io::Result<()> {
    match rustix::fs::lstat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
            Err(io::Error::other("it is a symbolic link; name the file itself"))
        }
        _ => Ok(()),
    }
}

/// Whether a path is a file that keeps what is written: no device, pipe, link or directory.
pub(crate) fn is_regular(path: &Path) -> io::Result<bool> {
    let mode = rustix::fs::lstat(path)?.st_mode;
    Ok(FileType::from_raw_mode(mode) == FileType::RegularFile)
}

/// Renames the log to its name and the time, as `mongod` does. What is no regular file, such as `/dev/null`, stays:
/// it keeps nothing, and others use it.
pub(crate) fn set_aside(os: &Os, path: &Path) -> io::Result<()> {
    if !is_regular(path)? {
        return Ok(());
    }
    let now = date(&*os.clock, "%Y-%m-%dT%H-%M-%S");
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(&now);
    os.vfs.rename(path, Path::new(&name))
}

fn date(clock: &dyn Clock, format: &str) -> String {
    let now = jiff::Timestamp::from_millisecond(clock.wall_ms()).unwrap_or_default();
    now.strftime(format).to_string()
}

/// What `tracing` talks to. Spans are not used: `ctx` says who speaks.
struct Receiver(Arc<Log>);

impl Subscriber for Receiver {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.0.wants(*metadata.level(), metadata.target())
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let context = Context::current();
        let context = if context.is_empty() {
            std::thread::current().name().unwrap_or(NO_COMPONENT).to_owned()
        } else {
            context.to_string()
        };
        self.0.write(Line {
            severity: severity(*event.metadata().level()),
            component: component(event.metadata().target()),
            id: fields.id,
            context: &context,
            message: &fields.message,
            attributes: fields.attributes,
            startup_warning: fields.startup_warning,
            written_by: written_by(event.metadata()),
        });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The parts of a line.
struct Line<'a> {
    severity: &'a str,
    component: &'a str,
    id: u64,
    context: &'a str,
    message: &'a str,
    attributes: Map<String, Value>,
    startup_warning: bool,
    /// The crate that says it.
    written_by: &'a str,
}

impl Line<'_> {
    /// Written by hand for the order of the fields, which people read from the left.
    fn render(self, clock: &dyn Clock) -> String {
        let now = date(clock, "%Y-%m-%dT%H:%M:%S%.3f+00:00");
        let Self { severity, component, id, .. } = self;
        let (context, message) = (json!(self.context), json!(self.message));
        let mut line = format!(
            r#"{{"t":{{"$date":"{now}"}},"s":"{severity}","c":"{component}","id":{id},"ctx":{context},"msg":{message}"#
        );
        if !self.attributes.is_empty() {
            let _never_fails = write!(line, r#","attr":{}"#, Value::Object(self.attributes));
        }
        if self.startup_warning {
            line.push_str(r#","tags":["startupWarnings"]"#);
        }
        line.push_str("}\n");
        line
    }
}

fn severity(level: Level) -> &'static str {
    match level {
        Level::ERROR => "E",
        Level::WARN => "W",
        Level::INFO => "I",
        Level::DEBUG => "D1",
        Level::TRACE => "D3",
    }
}

/// The crate that a line is of.
fn written_by<'a>(metadata: &Metadata<'a>) -> &'a str {
    let module = metadata.module_path().unwrap_or_default();
    module.split("::").next().unwrap_or_default()
}

/// Targets in capitals are components; the others are module paths, whose crate decides.
fn component(target: &str) -> &str {
    let krate = target.split("::").next().unwrap_or(target);
    match krate {
        "engine" | "ftree" | "cachetable" | "blockfile" | "catalog" | "indexkeys" => "STORAGE",
        "wal" => "JOURNAL",
        "commands" | "dispatch" | "serverstate" | "session" => "COMMAND",
        "query" | "pipeline" | "bounds" | "bsonval" | "expr" | "matcher" | "update" => "QUERY",
        "server" | "wire" => "NETWORK",
        "os" | "fernd" => "CONTROL",
        _ if krate.chars().all(|c| c.is_ascii_uppercase() || c == '_') => krate,
        _ => NO_COMPONENT,
    }
}

/// The fields of one event, sorted into their places.
#[derive(Default)]
struct Fields {
    id: u64,
    message: String,
    attributes: Map<String, Value>,
    startup_warning: bool,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.attributes.insert(field.name().to_owned(), value);
    }

    fn put_text(&mut self, field: &Field, mut text: String) {
        if text.len() > MAX_ATTRIBUTE {
            text.truncate(text.floor_char_boundary(MAX_ATTRIBUTE));
            text.push_str("...");
        }
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field, text.into());
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        // A field named `json` is a document that is already written down: kept as it is.
        match (field.name(), serde_json::from_str(value)) {
            ("json", Ok(Value::Object(object))) => self.attributes.extend(object),
            _ => self.put_text(field, value.to_owned()),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "id" => self.id = value,
            _ => self.put(field, value.into()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match (field.name(), u64::try_from(value)) {
            ("id", Ok(id)) => self.id = id,
            _ => self.put(field, value.into()),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        match field.name() {
            "startupWarning" => self.startup_warning = value,
            _ => self.put(field, value.into()),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_file(verbosity: u8, tell: impl FnOnce(&Log)) -> (tempfile::TempDir, Vec<Value>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fernd.log");
        let log = Log::open(
            &Os::real(),
            Destination::File { path: path.clone(), append: false },
            verbosity,
        )
        .unwrap();
        let receiver = Receiver(Arc::clone(&log));
        tracing::subscriber::with_default(receiver, || tell(&log));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (directory, lines)
    }

    #[test]
    fn a_line_has_mongods_shape() {
        let (_directory, lines) = in_file(0, |_| {
            Context::numbered("conn", 17).enter();
            tracing::info!(target: "NETWORK", id = 22943, remote = "1.2.3.4:5", n = 3, "Hi");
        });
        let line = &lines[0];
        assert_eq!(line["s"], "I");
        assert_eq!(line["c"], "NETWORK");
        assert_eq!(line["id"], 22943);
        assert_eq!(line["ctx"], "conn17");
        assert_eq!(line["msg"], "Hi");
        assert_eq!(line["attr"], json!({ "remote": "1.2.3.4:5", "n": 3 }));
        let when = line["t"]["$date"].as_str().unwrap();
        assert!(when.parse::<jiff::Timestamp>().is_ok() && when.len() == 29, "{when}");
    }

    #[test]
    fn security_finding_18_a_link_in_the_place_of_the_log_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("log"));
        std::fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for append in [true, false] {
            let destination = Destination::File { path: link.clone(), append };
            let refused = Log::open(&Os::real(), destination, 0).err().unwrap();
            assert!(refused.to_string().contains("symbolic link"), "{refused}");
        }
        assert_eq!(std::fs::read(&target).unwrap(), b"kept");
        assert!(link.symlink_metadata().unwrap().is_symlink(), "it was not renamed either");
    }

    #[test]
    fn what_is_no_regular_file_is_not_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        set_aside(&Os::real(), &pipe).unwrap();
        let names = || std::fs::read_dir(directory.path()).unwrap().count();
        assert!(pipe.exists() && names() == 1);
        let file = directory.path().join("log");
        std::fs::write(&file, "kept").unwrap();
        set_aside(&Os::real(), &file).unwrap();
        assert!(!file.exists() && names() == 2);
    }

    #[test]
    fn debug_lines_come_with_verbosity() {
        let tell = |_: &Log| {
            tracing::debug!("one");
            tracing::trace!("three");
        };
        assert_eq!(in_file(0, tell).1.len(), 0);
        assert_eq!(in_file(1, tell).1.len(), 1);
        assert_eq!(in_file(3, tell).1.len(), 2);
    }

    #[test]
    fn rotation_sets_the_old_file_aside() {
        let (directory, lines) = in_file(0, |log| {
            tracing::info!("before");
            log.rotate().unwrap();
            tracing::info!("after");
            assert_eq!(log.recent().1, 2);
        });
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["msg"], "after");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn recent_lines_are_bounded_and_startup_warnings_kept() {
        in_file(0, |log| {
            tracing::warn!(startupWarning = true, "careful");
            for n in 0..RECENT_LINES {
                tracing::info!(n, "line");
            }
            let (recent, total) = log.recent();
            assert_eq!((recent.len(), total), (RECENT_LINES, RECENT_LINES as u64 + 1));
            assert!(log.startup_warnings()[0].contains("startupWarnings"));
        });
    }

    #[test]
    fn a_long_attribute_is_cut_at_a_character() {
        let (_directory, lines) = in_file(0, |_| {
            tracing::info!(text = "ü".repeat(MAX_ATTRIBUTE).as_str(), "long");
        });
        let text = lines[0]["attr"]["text"].as_str().unwrap();
        assert!(text.len() <= MAX_ATTRIBUTE + 3 && text.ends_with("..."));
    }
}
