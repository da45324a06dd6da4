//! Who may reach this server, its files and its figures, as far as the start can see it.
//!
//! What is always true: a configuration that leaves something open starts all the same, as `mongod`
//! does, with a warning at each start that `getLog: "startupWarnings"` and the status page show; only
//! the parameter `refuseOpenBind` makes a server that anybody can reach a refused start.

use crate::config::{AuditDestination, Settings, parse_switch};
use crate::startup::{ExitCode, StartError};
use net::Endpoint;
use serverstate::security::AuthMode;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use tls::Mode;

/// The parameter that refuses to listen where others than this machine's users reach it.
const REFUSE_OPEN_BIND: &str = "refuseOpenBind";

/// The endpoints that other machines reach.
pub(crate) fn open(endpoints: &[Endpoint]) -> Vec<&Endpoint> {
    let reached = |endpoint: &&Endpoint| match endpoint {
        Endpoint::Tcp(address) => !address.ip().to_canonical().is_loopback(),
        Endpoint::Unix(..) => false,
    };
    endpoints.iter().filter(reached).collect()
}

/// Refuses endpoints that other machines reach, where the operator wants that.
///
/// # Errors
/// With the parameter `refuseOpenBind`, and one such endpoint.
pub(crate) fn check_bind(settings: &Settings, endpoints: &[Endpoint]) -> Result<(), StartError> {
    if settings.auth == AuthMode::On {
        return Ok(());
    }
    let refuse = settings.parameters.get(REFUSE_OPEN_BIND).and_then(|text| parse_switch(text));
    match open(endpoints).first() {
        Some(first) if refuse == Some(true) => Err(StartError::new(
            ExitCode::BadOptions,
            format!(
                "{REFUSE_OPEN_BIND} is set, and {first} can be reached from other machines, where \
                 nobody is asked who he is"
            ),
        )),
        _ => Ok(()),
    }
}

/// What the warnings are drawn from.
#[derive(Debug, Default)]
pub(crate) struct Exposure {
    /// Where clients of other machines connect.
    pub(crate) clients: Vec<String>,
    /// Where the status page is asked from other machines.
    pub(crate) status: Vec<String>,
    /// The process may do everything on this machine.
    pub(crate) is_root: bool,
    /// Directories of data with their permissions.
    pub(crate) directories: Vec<(PathBuf, u32)>,
    /// Whether clients are asked who they are.
    pub(crate) auth: AuthMode,
    /// Commands for tests are on.
    pub(crate) test_commands: bool,
    /// Logs that are written plain beside encrypted data.
    pub(crate) plain_logs: Vec<PathBuf>,
    /// TLS is spoken, and clients may do without; how it is said.
    pub(crate) optional_tls: Option<&'static str>,
    /// Code of clients is run.
    pub(crate) scripts: bool,
}

impl Exposure {
    /// Looks at the settings, the process and the directories.
    pub(crate) fn of<'a>(
        settings: &Settings,
        clients: impl Iterator<Item = &'a Endpoint>,
        status: impl Iterator<Item = std::net::SocketAddr>,
    ) -> Self {
        let clients: Vec<Endpoint> = clients.cloned().collect();
        let status: Vec<Endpoint> = status.map(Endpoint::Tcp).collect();
        let shown =
            |endpoints: &[Endpoint]| open(endpoints).into_iter().map(ToString::to_string).collect();
        let directories =
            [Some(&settings.dbpath), settings.log_dir.as_ref(), settings.tmp_dir.as_ref()];
        Self {
            clients: shown(&clients),
            status: shown(&status),
            auth: settings.auth,
            is_root: rustix::process::geteuid().is_root(),
            directories: directories
                .into_iter()
                .flatten()
                .filter_map(|path| Some((path.clone(), permissions(path)?)))
                .collect(),
            plain_logs: plain_logs(settings),
            optional_tls: matches!(settings.tls.mode, Mode::Allow | Mode::Prefer)
                .then(|| settings.tls.mode.name()),
            scripts: settings
                .parameters
                .get("javascriptEnabled")
                .is_none_or(|text| parse_switch(text) != Some(false)),
            test_commands: settings
                .parameters
                .get("enableTestCommands")
                .is_some_and(|text| matches!(text.as_str(), "1" | "true")),
        }
    }

    /// The lines to warn with, each with the number that tools look for.
    pub(crate) fn warnings(&self) -> Vec<(u32, String)> {
        let mut all = Vec::new();
        let asks = self.auth == AuthMode::On;
        if self.auth == AuthMode::Transition {
            all.push((
                20250,
                "transitionToAuth is set: who logs in is checked, and everybody may do everything still"
                    .to_owned(),
            ));
        } else if !asks {
            all.push((
                22120,
                "Access control is not enabled for the database: whoever can connect can read and write everything"
                    .to_owned(),
            ));
        }
        if !self.clients.is_empty() && !asks {
            all.push((
                5_123_305,
                format!(
                    "This server can be reached from other machines at {}, and nobody is asked who he \
                     is. Name the addresses that may with --bind_ip, or let such a start be refused: \
                     --setParameter {REFUSE_OPEN_BIND}=true",
                    listed(&self.clients)
                ),
            ));
        }
        if !self.status.is_empty() && !asks {
            all.push((
                5_123_306,
                format!(
                    "The status page can be reached from other machines at {}: it shows names, sizes \
                     and load. Values of clients are shown as --statusShowValues says",
                    listed(&self.status)
                ),
            ));
        }
        if !self.status.is_empty() && asks {
            all.push((
                5_123_309,
                format!(
                    "The status page can be reached from other machines at {}: users with the role clusterMonitor \
                     log in there, from other machines by https alone. --statusBindIp names the addresses that it \
                     needs",
                    listed(&self.status)
                ),
            ));
        }
        if let Some(mode) = self.optional_tls {
            all.push((
                5_123_310,
                format!(
                    "TLS is spoken and not required (tlsMode {mode}): clients that do not ask for it send everything in \
                     the clear. Once all of them use it, set tlsMode to requireTLS"
                ),
            ));
        }
        if asks && self.scripts && !self.clients.is_empty() {
            all.push((
                5_123_311,
                format!(
                    "JavaScript of clients is run, and this server can be reached from other machines at {}: where no \
                     client needs $where, $function or mapReduce, switch it off with --noscripting",
                    listed(&self.clients)
                ),
            ));
        }
        if self.is_root {
            all.push((
                22138,
                "You are running this process as the root user, which is not recommended"
                    .to_owned(),
            ));
        }
        for (path, mode) in &self.directories {
            if mode & 0o077 != 0 {
                all.push((
                    5_123_307,
                    format!(
                        "The directory {} is open to other users of this machine (permissions {:04o}); \
                         0700 is enough",
                        path.display(),
                        mode & 0o7777
                    ),
                ));
            }
        }
        if !self.plain_logs.is_empty() {
            let logs = self.plain_logs.iter().map(|path| path.display());
            all.push((
                5_123_308,
                format!(
                    "The data is encrypted, and what is written to {} is not: parts of documents may stand in it",
                    listed(&logs.collect::<Vec<_>>())
                ),
            ));
        }
        if self.test_commands {
            all.push((
                22139,
                "Commands for tests are enabled (enableTestCommands): clients can make the server fail"
                    .to_owned(),
            ));
        }
        all
    }

    /// The line to warn with where whoever is on this machine may make the first user, and others may seem to be on it.
    fn first_user_warning(&self) -> Option<String> {
        (self.auth == AuthMode::On && !self.clients.is_empty()).then(|| {
            format!(
                "There is no user yet, so that whoever connects from this machine may make the first one (the localhost \
                 exception), and this server can be reached from other machines at {}: who comes through a proxy on this \
                 machine seems to be on it. Make the first user before others can connect, or switch the exception off \
                 with --setParameter enableLocalhostAuthBypass=false",
                listed(&self.clients)
            )
        })
    }

    /// Writes the warnings to the log.
    pub(crate) fn tell(&self) {
        for (id, warning) in self.warnings() {
            tracing::warn!(target: "CONTROL", id, startupWarning = true, "{warning}");
        }
    }

    /// The same, of what is known once the data is open.
    pub(crate) fn tell_of_first_user(&self, service: &commands::Service) {
        // A member that has no data yet cannot tell, and its set has users.
        let nobody = service.user_tables().is_ok_and(|tables| tables.is_empty);
        let bypass = service.security.localhost_bypass.load(Ordering::Relaxed);
        if let Some(warning) = self.first_user_warning().filter(|_| nobody && bypass) {
            tracing::warn!(target: "CONTROL", id = 5_123_312, startupWarning = true, "{warning}");
        }
    }
}

/// The server's log and the audit log, where the data is encrypted and they are files.
fn plain_logs(settings: &Settings) -> Vec<PathBuf> {
    if settings.encryption.is_none() {
        return Vec::new();
    }
    let audit = settings.audit.as_ref();
    let audit = audit.filter(|audit| audit.destination == AuditDestination::File);
    let audit = audit
        .map(|audit| audit.path.clone().unwrap_or_else(|| settings.dbpath.join("auditLog.json")));
    settings.log_path.iter().cloned().chain(audit).collect()
}

fn listed(places: &[impl Display]) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The permissions of a directory that is there.
fn permissions(path: &Path) -> Option<u32> {
    rustix::fs::stat(path).ok().map(|stat| stat.st_mode & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(text: &str) -> Endpoint {
        Endpoint::Tcp(text.parse().unwrap())
    }

    #[test]
    fn only_addresses_of_other_machines_are_open() {
        for (endpoint, expected) in [
            (tcp("127.0.0.1:1"), false),
            (tcp("127.9.9.9:1"), false),
            (tcp("[::1]:1"), false),
            (tcp("[::ffff:127.0.0.1]:1"), false),
            (Endpoint::Unix("/tmp/x.sock".into(), 0o777), false),
            (tcp("0.0.0.0:1"), true),
            (tcp("[::]:1"), true),
            (tcp("10.0.0.1:1"), true),
        ] {
            assert_eq!(!open(std::slice::from_ref(&endpoint)).is_empty(), expected, "{endpoint}");
        }
    }

    #[test]
    fn each_opening_has_its_warning() {
        let closed = Exposure { directories: vec![("/d".into(), 0o700)], ..Exposure::default() };
        assert_eq!(closed.warnings().len(), 1, "that nobody is asked is always said");
        let asking = Exposure { auth: AuthMode::On, ..Exposure::default() };
        assert!(asking.warnings().is_empty(), "who asks is not open");
        let wide = Exposure {
            clients: vec!["0.0.0.0:27017".to_owned()],
            status: vec!["0.0.0.0:28017".to_owned()],
            is_root: true,
            directories: vec![("/d".into(), 0o40755), ("/l".into(), 0o700), ("/t".into(), 0o770)],
            test_commands: true,
            plain_logs: vec!["/var/log/fernd.log".into()],
            auth: AuthMode::Off,
            optional_tls: Some("allowTLS"),
            scripts: true,
        };
        let text = format!("{:?}", wide.warnings());
        assert_eq!(wide.warnings().len(), 9, "{text}");
        for word in [
            "0.0.0.0:27017",
            "0.0.0.0:28017",
            "root user",
            "/d is open",
            "0755",
            "/t is",
            "tests",
            "fernd.log is not",
            "tlsMode allowTLS",
        ] {
            assert!(text.contains(word), "{word} in {text}");
        }
        assert_eq!(wide.first_user_warning(), None, "nobody is asked who he is");
        // Who asks is told of what stays open then.
        let asking = Exposure { auth: AuthMode::On, directories: Vec::new(), ..wide };
        let text = format!("{:?}", asking.warnings());
        for word in ["clusterMonitor", "noscripting", "tlsMode allowTLS"] {
            assert!(text.contains(word), "{word} in {text}");
        }
        let first = asking.first_user_warning().unwrap();
        assert!(
            first.contains("0.0.0.0:27017") && first.contains("localhost exception"),
            "{first}"
        );
        let near = Exposure { clients: Vec::new(), ..asking };
        assert_eq!(near.first_user_warning(), None);
    }
}
