//! The checks before anything is touched, and the words of a start that fails.
//!
//! Every refusal is one line on standard error and one of `mongod`'s exit codes; nothing was
//! written when a check refuses.

use crate::config::{ConfigError, Settings};
use crate::exposure::check_bind;
use net::{BindError, Endpoint, Listener};
use os::{Memory, Os};
use std::fmt;
use std::io;
use std::path::Path;

/// Descriptors kept for data files, logs and the rest, out of every ten.
const FILES_SHARE: u64 = 2;

/// The number of connections when none is asked for, as `mongod`.
const DEFAULT_CONNECTIONS: usize = 65_536;

/// `mongod`'s exit codes, as far as they apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCode {
    /// An option cannot be honoured.
    BadOptions = 2,
    /// Something that should not happen happened.
    Abrupt = 14,
    /// The network cannot be listened to.
    NetError = 48,
    /// The data directory cannot be used.
    DataDirectory = 100,
}

/// A start that failed.
#[derive(Debug, PartialEq, Eq)]
pub struct StartError {
    /// What the operator reads.
    pub line: String,
    /// What the process ends with.
    pub code: ExitCode,
}

impl StartError {
    /// A refusal; what has several lines becomes one.
    pub fn new(code: ExitCode, line: impl fmt::Display) -> Self {
        let line = line.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { line, code }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for StartError {}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> Self {
        Self::new(ExitCode::BadOptions, error)
    }
}

impl From<BindError> for StartError {
    fn from(error: BindError) -> Self {
        Self::new(ExitCode::NetError, error)
    }
}

/// Bytes for the engine: what was asked for if the machine has it, otherwise half of it.
///
/// # Errors
/// `cacheSize` above what the machine or the control group has.
pub fn cache_size(asked: Option<u64>, memory: Memory) -> Result<u64, StartError> {
    let usable = memory.usable();
    match asked {
        None => Ok(usable / 2),
        Some(asked) if asked <= usable => Ok(asked),
        Some(asked) => {
            let whose = match memory.cgroup {
                Some(limit) if limit < memory.machine => "the control group allows",
                _ => "the machine has",
            };
            Err(StartError::new(
                ExitCode::BadOptions,
                format!(
                    "cacheSize of {} is more than the {} of memory {whose}",
                    Bytes(asked),
                    Bytes(usable)
                ),
            ))
        }
    }
}

/// Connections at most: what was asked for, or the default, as far as open files allow.
pub fn max_connections(asked: Option<usize>, open_files: u64) -> usize {
    asked.unwrap_or(DEFAULT_CONNECTIONS).min(supported_connections(open_files))
}

/// Connections that open files allow.
pub fn supported_connections(open_files: u64) -> usize {
    usize::try_from(open_files / 10 * (10 - FILES_SHARE)).unwrap_or(usize::MAX).max(1)
}

/// Whether the process reads a key: of its data, of its set, or of its certificate.
pub fn holds_keys(settings: &Settings) -> bool {
    settings.encryption.is_some()
        || settings.key_file.is_some()
        || settings.tls.mode != tls::Mode::Disabled
}

/// Makes the data directory where it is missing and shows that it can be written.
///
/// # Errors
/// Where it cannot.
pub fn prepare_directory(os: &Os, path: &Path) -> Result<(), StartError> {
    let refuse = |what: &str, error: &io::Error| {
        let path = path.display();
        StartError::new(ExitCode::DataDirectory, format!("{what} {path}: {error}"))
    };
    os.vfs
        .create_dir_all(path)
        .map_err(|error| refuse("cannot make the data directory", &error))?;
    let probe = path.join(".fernd-write-test");
    os.vfs
        .open(&probe, os::OpenOptions::create())
        .and_then(|_| os.vfs.remove_file(&probe))
        .map_err(|error| refuse("cannot write to the data directory", &error))
}

/// Opens every listening socket that was asked for.
///
/// # Errors
/// A name that is nobody's, a port in use.
pub fn listen(os: &Os, settings: &Settings) -> Result<Vec<Listener>, StartError> {
    let mut endpoints = Vec::new();
    for word in &settings.bind_ip {
        for endpoint in Endpoint::resolve(word, settings.port, settings.ipv6)? {
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
    }
    let mut reached = endpoints.clone();
    if settings.status_port != 0 {
        // Names that are nobody's are told of where the page is opened.
        let resolve =
            |word: &String| Endpoint::resolve(word, settings.status_port, settings.ipv6).ok();
        reached.extend(settings.status_bind_ip.iter().filter_map(resolve).flatten());
    }
    check_bind(settings, &reached)?;
    let mut listeners = Vec::new();
    for endpoint in &endpoints {
        listeners.push(Listener::bind(endpoint, &*os.vfs)?);
    }
    if listeners.is_empty() {
        return Err(StartError::new(ExitCode::BadOptions, "bind_ip names nothing to listen at"));
    }
    if let Some(prefix) = &settings.unix_socket_prefix {
        let port = port_of(&listeners).unwrap_or(settings.port);
        let path = prefix.join(format!("mongodb-{port}.sock"));
        let endpoint = Endpoint::Unix(path, settings.unix_socket_mode);
        match Listener::bind(&endpoint, &*os.vfs) {
            Ok(listener) => listeners.push(listener),
            // Nobody asked for it by name, and TCP works.
            Err(error) => {
                tracing::warn!(target: "NETWORK", %error, startupWarning = true,
                    "No Unix domain socket");
            }
        }
    }
    Ok(listeners)
}

/// The TCP port, which the kernel may have chosen.
pub fn port_of(listeners: &[Listener]) -> Option<u16> {
    listeners.iter().find_map(|listener| match listener.endpoint() {
        Endpoint::Tcp(address) => Some(address.port()),
        Endpoint::Unix(..) => None,
    })
}

/// A number of bytes as people say it.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TB"), (30, "GB"), (20, "MB"), (10, "KB")];
        match units.iter().find(|(shift, _)| self.0 >= 1 << shift) {
            Some((shift, unit)) => {
                write!(f, "{:.1} {unit}", self.0 as f64 / (1_u64 << shift) as f64)
            }
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn cache_is_half_of_what_there_is_and_never_more_than_all() {
        let machine = Memory { machine: 8 * GIB, cgroup: None };
        assert_eq!(cache_size(None, machine), Ok(4 * GIB));
        assert_eq!(cache_size(Some(8 * GIB), machine), Ok(8 * GIB));
        let refused = cache_size(Some(64 << 40), machine).unwrap_err();
        assert_eq!(refused.code, ExitCode::BadOptions);
        assert_eq!(
            refused.line,
            "cacheSize of 64.0 TB is more than the 8.0 GB of memory the machine has"
        );
        let group = Memory { machine: 8 * GIB, cgroup: Some(GIB) };
        assert_eq!(cache_size(None, group), Ok(GIB / 2));
        assert!(cache_size(Some(2 * GIB), group).unwrap_err().line.contains("control group"));
    }

    #[test]
    fn connections_leave_descriptors_for_files() {
        assert_eq!(max_connections(None, 1_000_000), 65_536);
        assert_eq!(max_connections(None, 1000), 800);
        assert_eq!(max_connections(Some(100), 1000), 100);
        assert_eq!(max_connections(Some(100_000), 1000), 800);
        assert_eq!(max_connections(Some(100), 3), 1);
    }

    #[test]
    fn data_directory_is_made_and_a_file_in_its_place_is_one_line() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let (os, path) = (Os::real(), directory.path().join("a/b"));
        prepare_directory(&os, &path).unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        for made in [&path, &directory.path().join("a")] {
            let mode = std::fs::metadata(made).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "security finding 18");
        }
        let file = directory.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let refused = prepare_directory(&os, &file).unwrap_err();
        assert_eq!(refused.code, ExitCode::DataDirectory);
        assert!(refused.line.contains("file") && !refused.line.contains('\n'));
    }

    #[test]
    fn an_open_bind_is_refused_only_where_that_is_asked() {
        let settings = |more: &[&str]| {
            let words = ["fernd", "--nounixsocket", "--port", "0"].iter().chain(more);
            let argv: Vec<String> = words.map(|word| (*word).to_owned()).collect();
            match crate::config::parse(&Os::real(), &argv, "1").unwrap() {
                crate::config::CommandLine::Start(settings) => *settings,
                crate::config::CommandLine::Print(text) => panic!("{text}"),
            }
        };
        let os = Os::real();
        let refuse = "refuseOpenBind=true";
        assert!(listen(&os, &settings(&["--bind_ip", "0.0.0.0"])).is_ok());
        assert!(listen(&os, &settings(&["--setParameter", refuse])).is_ok());
        for open in [["--bind_ip", "0.0.0.0"], ["--statusBindIp", "0.0.0.0"]] {
            let refused = listen(&os, &settings(&[open[0], open[1], "--setParameter", refuse]));
            let refused = refused.err().unwrap();
            assert_eq!(refused.code, ExitCode::BadOptions);
            assert!(refused.line.contains("0.0.0.0"), "{}", refused.line);
        }
    }

    #[test]
    fn a_refusal_is_one_line() {
        assert_eq!(StartError::new(ExitCode::Abrupt, "a\n  b\n").line, "a b");
    }
}
