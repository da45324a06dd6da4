//! What the server is to do, with every default filled in.

use crate::config::ConfigError;
use crate::config::options::{Kind, Opt};
use crate::config::parse::Given;
use crate::config::size::{parse_size, parse_switch};
use bson::{Bson, Document};
use dashboard::ShowValues;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The data directory when none is named: in the current directory, made when missing.
const DEFAULT_DBPATH: &str = "./fern-data";

/// The settings of a server.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent switches of the operator")]
pub struct Settings {
    /// The data directory.
    pub dbpath: PathBuf,
    /// Nobody named the data directory.
    pub dbpath_is_default: bool,
    /// The port; 0 lets the kernel choose.
    pub port: u16,
    /// Addresses and names to listen at.
    pub bind_ip: Vec<String>,
    /// Listen at IPv6 addresses too.
    pub ipv6: bool,
    /// The connections asked for, if any number was.
    pub max_connections: Option<usize>,
    /// The directory of the Unix domain socket, if there is to be one.
    pub unix_socket_prefix: Option<PathBuf>,
    /// Permissions of its file.
    pub unix_socket_mode: u32,
    /// The port of the status page; 0: there is none.
    pub status_port: u16,
    /// Addresses and names the status page listens at.
    pub status_bind_ip: Vec<String>,
    /// Whom the status page shows what clients sent.
    pub status_show_values: ShowValues,
    /// The log file; standard output without.
    pub log_path: Option<PathBuf>,
    /// Go on at the end of an old log file.
    pub log_append: bool,
    /// Do not log connections.
    pub quiet: bool,
    /// 0: informational; 5: everything.
    pub verbosity: u8,
    /// Operations slower than this are logged; negative: all.
    pub slow_ms: i64,
    /// The profiler's level of every database, from 0 to 2.
    pub profile_level: i32,
    /// Go to the background.
    pub fork: bool,
    /// The process number goes here.
    pub pid_file: Option<PathBuf>,
    /// The name of the replica set this server is the member of, if of any.
    pub replica_set: Option<String>,
    /// Initiate the set without being asked.
    pub replica_set_initiate: bool,
    /// Server parameters by name.
    pub parameters: BTreeMap<String, String>,
    /// Memory for the engine; half of the machine's without.
    pub cache_size: Option<u64>,
    /// Bypass the page cache.
    pub direct_io: bool,
    /// Time between checkpoints; `None`: never.
    pub checkpoint_period: Option<Duration>,
    /// Time between cleaner runs; `None`: never.
    pub cleaner_period: Option<Duration>,
    /// Nodes per cleaner run.
    pub cleaner_iterations: u32,
    /// Time between log flushes; zero: at every commit.
    pub log_flush_period: Duration,
    /// How long a lock request waits.
    pub lock_timeout: Duration,
    /// Memory for locks; a tenth of the cache without.
    pub locktree_max_memory: Option<u64>,
    /// Percent of the disk that stays free.
    pub fs_redzone: u8,
    /// The directory of the redo log, where it is not the data directory.
    pub log_dir: Option<PathBuf>,
    /// The directory for spilled data, where it is not the data directory.
    pub tmp_dir: Option<PathBuf>,
    /// The command line, for `getCmdLineOpts`.
    pub argv: Vec<String>,
    /// What was asked for, in the shape of a YAML file, for `getCmdLineOpts`.
    pub parsed: Document,
    /// One line for each option that is ignored.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Fills the defaults around what was given; a later mention wins over an earlier one.
    pub(crate) fn from_given(
        given: Vec<Given>,
        warnings: Vec<String>,
        argv: &[String],
    ) -> Result<Self, ConfigError> {
        let given = Lookup(given);
        let dbpath = given.path("dbpath");
        let (port, ipv6) = (given.number("port", 27017), given.switch("ipv6", false));
        let settings = Self {
            dbpath_is_default: dbpath.is_none(),
            dbpath: dbpath.unwrap_or_else(|| DEFAULT_DBPATH.into()),
            port: u16::try_from(port).unwrap_or(27017),
            bind_ip: if given.switch("bind_ip_all", false) {
                vec!["*".to_owned()]
            } else {
                given.words("bind_ip", "localhost")
            },
            ipv6,
            max_connections: given.text("maxConns").and_then(|text| text.trim().parse().ok()),
            unix_socket_prefix: given.unix_socket_prefix(),
            unix_socket_mode: given.file_permissions()?,
            status_port: u16::try_from(given.number("statusPort", 28017)).unwrap_or(28017),
            status_bind_ip: given.words("statusBindIp", "127.0.0.1"),
            status_show_values: given.show_values()?,
            log_path: given.path("logpath"),
            log_append: given.switch("logappend", false),
            quiet: given.switch("quiet", false),
            verbosity: given.verbosity()?,
            slow_ms: given.number("slowms", 100),
            profile_level: given.profile_level()?,
            fork: given.switch("fork", false),
            pid_file: given.path("pidfilepath"),
            replica_set: given.replica_set(),
            replica_set_initiate: given.switch("replSetAutoInitiate", false),
            parameters: given.parameters(),
            cache_size: given.cache_size()?,
            direct_io: given.switch("directio", false),
            checkpoint_period: given.period("checkpointPeriod", 60),
            cleaner_period: given.period("cleanerPeriod", 2),
            cleaner_iterations: u32::try_from(given.number("cleanerIterations", 5)).unwrap_or(5),
            log_flush_period: given.log_flush_period(),
            lock_timeout: Duration::from_millis(given.number("lockTimeout", 4000).unsigned_abs()),
            locktree_max_memory: given.size("locktreeMaxMemory"),
            fs_redzone: u8::try_from(given.number("fsRedzone", 5)).unwrap_or(5),
            log_dir: given.path("logDir"),
            tmp_dir: given.path("tmpDir"),
            argv: argv.to_vec(),
            parsed: given.document(),
            warnings,
        };
        settings.check_together()?;
        Ok(settings)
    }

    fn check_together(&self) -> Result<(), ConfigError> {
        if self.fork && self.log_path.is_none() {
            return Err(ConfigError::new("--fork has to be used with --logpath"));
        }
        if self.replica_set_initiate && self.replica_set.is_none() {
            return Err(ConfigError::new("--replSetAutoInitiate has to be used with --replSet"));
        }
        Ok(())
    }
}

struct Lookup(Vec<Given>);

impl Lookup {
    fn text(&self, flag: &str) -> Option<&str> {
        self.0.iter().rev().find(|(option, _)| option.flag == flag).map(|(_, value)| value.as_str())
    }

    fn path(&self, flag: &str) -> Option<PathBuf> {
        self.text(flag).map(PathBuf::from)
    }

    fn switch(&self, flag: &str, otherwise: bool) -> bool {
        self.text(flag).and_then(parse_switch).unwrap_or(otherwise)
    }

    fn number(&self, flag: &str, otherwise: i64) -> i64 {
        self.text(flag).and_then(|text| text.trim().parse().ok()).unwrap_or(otherwise)
    }

    fn size(&self, flag: &str) -> Option<u64> {
        self.text(flag).and_then(parse_size)
    }

    fn period(&self, flag: &str, otherwise: i64) -> Option<Duration> {
        let seconds = self.number(flag, otherwise).unsigned_abs();
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// A list with commas.
    fn words(&self, flag: &str, otherwise: &str) -> Vec<String> {
        let words = self.text(flag).unwrap_or(otherwise).split(',').map(str::trim);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    fn unix_socket_prefix(&self) -> Option<PathBuf> {
        let wanted = !self.switch("nounixsocket", false);
        wanted.then(|| self.path("unixSocketPrefix").unwrap_or_else(|| "/tmp".into()))
    }

    fn file_permissions(&self) -> Result<u32, ConfigError> {
        let text = self.text("filePermissions").unwrap_or("0700");
        u32::from_str_radix(text.trim_start_matches("0o"), 8)
            .ok()
            .filter(|mode| *mode <= 0o777)
            .ok_or_else(|| {
                ConfigError::new(format!(
                    "option filePermissions: '{text}' is not octal permissions"
                ))
            })
    }

    /// `-vv`, `--verbose=vv`, `systemLog.verbosity: 2` and `v = true` all say how much.
    fn verbosity(&self) -> Result<u8, ConfigError> {
        let Some(text) = self.text("verbose") else { return Ok(0) };
        if !text.is_empty() && text.bytes().all(|byte| byte == b'v') {
            return Ok(text.len().min(5) as u8);
        }
        if let Some(level) = text.parse().ok().filter(|level| *level <= 5) {
            return Ok(level);
        }
        parse_switch(text).map(u8::from).ok_or_else(|| {
            ConfigError::new(format!("option verbose: '{text}' is not a number from 0 to 5"))
        })
    }

    /// The flag has numbers, the file words; both take both.
    fn profile_level(&self) -> Result<i32, ConfigError> {
        match self.text("profile") {
            None | Some("0" | "off") => Ok(0),
            Some("1" | "slowOp") => Ok(1),
            Some("2" | "all") => Ok(2),
            Some(text) => Err(ConfigError::new(format!(
                "option profile: '{text}' is none of 0 (off), 1 (slowOp) and 2 (all)"
            ))),
        }
    }

    fn show_values(&self) -> Result<ShowValues, ConfigError> {
        match self.text("statusShowValues") {
            None | Some("local") => Ok(ShowValues::Local),
            Some("always") => Ok(ShowValues::Always),
            Some("never") => Ok(ShowValues::Never),
            Some(text) => Err(ConfigError::new(format!(
                "option statusShowValues: '{text}' is none of local, always and never"
            ))),
        }
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        let mentions = self.0.iter().filter(|(option, _)| option.kind == Kind::Repeated);
        let mut parameters: BTreeMap<_, _> = mentions
            .filter_map(|(_, value)| value.split_once('='))
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect();
        if self.switch("noscripting", false) {
            parameters.insert("javascriptEnabled".to_owned(), "false".to_owned());
        }
        parameters
    }

    /// The set's name, without the seed hosts of old command lines (`name/host1,host2`).
    fn replica_set(&self) -> Option<String> {
        let text = self.text("replSet").or_else(|| self.text("replset"))?;
        let name = text.split('/').next().unwrap_or(text).trim();
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn cache_size(&self) -> Result<Option<u64>, ConfigError> {
        if let Some(bytes) = self.size("cacheSize") {
            return Ok(Some(bytes));
        }
        let Some(text) = self.text("wiredTigerCacheSizeGB") else { return Ok(None) };
        let bytes = parse_size(&format!("{text}g")).ok_or_else(|| {
            ConfigError::new(format!("option wiredTigerCacheSizeGB: '{text}' is not a number"))
        })?;
        Ok(Some(bytes))
    }

    fn log_flush_period(&self) -> Duration {
        let older = self.number("journalCommitInterval", 100);
        Duration::from_millis(self.number("logFlushPeriod", older).unsigned_abs())
    }

    /// What was asked for, nested like a YAML file; flags without a place there stand outside.
    fn document(&self) -> Document {
        let mut document = Document::new();
        for (option, value) in &self.0 {
            if option.kind == Kind::Repeated {
                if let Some((name, value)) = value.split_once('=') {
                    put(&mut document, &["setParameter", name], value.into());
                }
                continue;
            }
            let place = if option.yaml.is_empty() { option.flag } else { option.yaml };
            let path: Vec<&str> = place.split('.').collect();
            let value = match typed(option, value) {
                // Its place says the opposite of the flag.
                Bson::Boolean(off) if option.flag == "noscripting" => Bson::Boolean(!off),
                value => value,
            };
            put(&mut document, &path, value);
        }
        if self.text("logpath").is_some() {
            put(&mut document, &["systemLog", "destination"], "file".into());
        }
        document
    }
}

fn typed(option: &Opt, value: &str) -> Bson {
    match option.kind {
        Kind::Switch => Bson::Boolean(parse_switch(value).unwrap_or_default()),
        Kind::Number(..) => match value.trim().parse::<i64>() {
            Ok(number) => i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32),
            Err(_) => value.into(),
        },
        Kind::Size => Bson::Int64(parse_size(value).unwrap_or_default() as i64),
        Kind::Text | Kind::Repeated => value.into(),
    }
}

fn put(document: &mut Document, path: &[&str], value: Bson) {
    match path {
        [] => {}
        [last] => {
            document.insert(*last, value);
        }
        [first, rest @ ..] => {
            if document.get_document(first).is_err() {
                document.insert(*first, Document::new());
            }
            if let Ok(inner) = document.get_document_mut(first) {
                put(inner, rest, value);
            }
        }
    }
}
