//! What the server is to do, with every default filled in: how a setting is read from the options.

use crate::config::ConfigError;
use crate::config::options::{Kind, Opt, Settings};
use crate::config::parse::Given;
use crate::config::size::{parse_size, parse_switch};
use crate::config::tls;
use ::tls::Mode;
use auth::{ClusterAuth, Network};
use bson::{Bson, Document};
use dashboard::ShowValues;
use serverstate::security::AuthMode;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

impl Settings {
    /// Fills the defaults around what was given; a later mention wins over an earlier one.
    pub(crate) fn from_given(
        given: Vec<Given>,
        mut warnings: Vec<String>,
        argv: &[String],
    ) -> Result<Self, ConfigError> {
        let given = GivenOptions(given);
        tls::warn_of_old_names(&given, &mut warnings);
        let settings = Self::read(&given, argv, warnings)?;
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
        self.check_auth()
    }

    /// What goes together with asking for users.
    fn check_auth(&self) -> Result<(), ConfigError> {
        if self.auth_is_contradicted {
            return Err(ConfigError::new(
                "--auth, or what members log in by (--keyFile, --clusterAuthMode), and --noauth contradict each other",
            ));
        }
        if self.status_token_file.is_some() && self.auth != AuthMode::On {
            return Err(ConfigError::new(
                "option statusTokenFile needs --auth: without access control whoever reaches the status \
                 port reads /metrics, and a token would keep nobody out",
            ));
        }
        let knows_members = self.key_file.is_some() || !self.cluster_auth.uses_key();
        if self.auth != AuthMode::Off && self.replica_set.is_some() && !knows_members {
            return Err(ConfigError::new(
                "security.keyFile is required when authorization is enabled with replica sets: make a \
                 key with openssl rand -base64 756, give each member a copy that only its user can \
                 read, and start all with --keyFile",
            ));
        }
        Ok(())
    }
}

/// The options that were given, in order.
pub(super) struct GivenOptions(Vec<Given>);

impl GivenOptions {
    pub(super) fn text(&self, flag: &str) -> Option<&str> {
        self.0.iter().rev().find(|(option, _)| option.flag == flag).map(|(_, value)| value.as_str())
    }

    pub(super) fn auth(&self) -> AuthMode {
        let is_asked_for = self.switch("auth", false) || self.names_members_login();
        match (is_asked_for, self.switch("transitionToAuth", false)) {
            (_, true) => AuthMode::Transition,
            (true, false) => AuthMode::On,
            (false, false) => AuthMode::Off,
        }
    }

    /// Whether it is said how members log in: then clients do so, too.
    fn names_members_login(&self) -> bool {
        self.text("keyFile").is_some() || self.text("clusterAuthMode").is_some()
    }

    /// Whether clients are to be asked and not to be asked. A key file asks for it.
    pub(super) fn contradicts_auth(&self) -> bool {
        let with_key = self.names_members_login();
        let is_asked_for = self.switch("auth", false) || with_key;
        let is_disabled = self.text("auth").is_some() && !self.switch("auth", false) && with_key;
        is_asked_for && self.switch("noauth", false) || is_disabled
    }

    pub(super) fn key_file(&self) -> Result<Option<PathBuf>, ConfigError> {
        let key_file = self.path("keyFile");
        let mode = self.cluster_auth()?;
        if key_file.is_none() && self.text("clusterAuthMode").is_some() && mode.uses_key() {
            let mode = mode.name();
            return Err(ConfigError::new(format!(
                "option clusterAuthMode: {mode} needs --keyFile"
            )));
        }
        Ok(key_file.filter(|_| mode.uses_key()))
    }

    /// How members log in to each other, with what that needs of TLS.
    pub(super) fn cluster_auth(&self) -> Result<ClusterAuth, ConfigError> {
        let Some(text) = self.text("clusterAuthMode") else { return Ok(ClusterAuth::default()) };
        let refused =
            |text: String| Err(ConfigError::new(format!("option clusterAuthMode: {text}")));
        let Some(mode) = ClusterAuth::parse(text) else {
            return refused(format!("unsupported value '{text}'"));
        };
        let tls = self.tls()?;
        if mode.sends_certificate() && !tls.mode.links_speak_tls() {
            return refused(format!(
                "{text} needs TLS between members: tlsMode has to be preferTLS or requireTLS"
            ));
        }
        if mode.takes_certificates()
            && (tls.mode == Mode::Disabled || tls.authorities_file.is_none())
        {
            return refused(format!(
                "{text} lets members in by their certificates: it needs tlsMode, and the authority that they come \
                 from with tlsCAFile"
            ));
        }
        if mode.sends_certificate() && tls.options.allow_invalid_certificates {
            return refused(format!(
                "{text} and tlsAllowInvalidCertificates do not go together: whoever is on the way could be a member"
            ));
        }
        Ok(mode)
    }

    /// Addresses and ranges of them, with commas.
    pub(super) fn networks(&self, flag: &str) -> Result<Vec<Network>, ConfigError> {
        let words = self.words(flag, "");
        let parsed = words.iter().map(|word| {
            Network::parse(word).ok_or_else(|| {
                ConfigError::new(format!(
                    "option {flag}: '{word}' is no address and no range of them, such as 10.0.0.0/8"
                ))
            })
        });
        parsed.collect()
    }

    /// From where members may log in.
    pub(super) fn members_from(&self) -> Result<Vec<Network>, ConfigError> {
        let (name, old) = ("clusterIpSourceAllowlist", "clusterIpSourceWhitelist");
        let flag = match (self.text(name), self.text(old)) {
            (Some(_), Some(_)) => {
                return Err(ConfigError::new(format!(
                    "options {name} and {old} are the same: leave {old} out"
                )));
            }
            (None, Some(_)) => old,
            (_, None) => name,
        };
        let networks = self.networks(flag)?;
        if !networks.is_empty() && !self.names_members_login() {
            return Err(ConfigError::new(format!(
                "option {flag} says from where members may log in, and they do not: it needs --keyFile or \
                 --clusterAuthMode"
            )));
        }
        Ok(networks)
    }

    pub(super) fn path(&self, flag: &str) -> Option<PathBuf> {
        self.text(flag).map(PathBuf::from)
    }

    pub(super) fn switch(&self, flag: &str, otherwise: bool) -> bool {
        self.text(flag).and_then(parse_switch).unwrap_or(otherwise)
    }

    pub(super) fn number(&self, flag: &str, otherwise: i64) -> i64 {
        self.text(flag).and_then(|text| text.trim().parse().ok()).unwrap_or(otherwise)
    }

    pub(super) fn size(&self, flag: &str) -> Option<u64> {
        self.text(flag).and_then(parse_size)
    }

    pub(super) fn period(&self, flag: &str, otherwise: i64) -> Option<Duration> {
        let seconds = self.number(flag, otherwise).unsigned_abs();
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    pub(super) fn bind_ip(&self) -> Vec<String> {
        if self.switch("bind_ip_all", false) {
            return vec!["*".to_owned()];
        }
        self.words("bind_ip", "localhost")
    }

    /// A list with commas.
    pub(super) fn words(&self, flag: &str, otherwise: &str) -> Vec<String> {
        let words = self.text(flag).unwrap_or(otherwise).split(',').map(str::trim);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    pub(super) fn unix_socket_prefix(&self) -> Option<PathBuf> {
        let wanted = !self.switch("nounixsocket", false);
        wanted.then(|| self.path("unixSocketPrefix").unwrap_or_else(|| "/tmp".into()))
    }

    pub(super) fn file_permissions(&self) -> Result<u32, ConfigError> {
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
    pub(super) fn verbosity(&self) -> Result<u8, ConfigError> {
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
    pub(super) fn profile_level(&self) -> Result<i32, ConfigError> {
        match self.text("profile") {
            None | Some("0" | "off") => Ok(0),
            Some("1" | "slowOp") => Ok(1),
            Some("2" | "all") => Ok(2),
            Some(text) => Err(ConfigError::new(format!(
                "option profile: '{text}' is none of 0 (off), 1 (slowOp) and 2 (all)"
            ))),
        }
    }

    pub(super) fn show_values(&self) -> Result<ShowValues, ConfigError> {
        match self.text("statusShowValues") {
            None | Some("local") => Ok(ShowValues::Local),
            Some("always") => Ok(ShowValues::Always),
            Some("never") => Ok(ShowValues::Never),
            Some(text) => Err(ConfigError::new(format!(
                "option statusShowValues: '{text}' is none of local, always and never"
            ))),
        }
    }

    pub(super) fn parameters(&self) -> BTreeMap<String, String> {
        let mentions = self.0.iter().filter(|(option, _)| option.kind == Kind::Repeated);
        let mut parameters: BTreeMap<_, _> = mentions
            .filter_map(|(_, value)| value.split_once('='))
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect();
        if self.switch("noscripting", false) {
            parameters.insert("javascriptEnabled".to_owned(), "false".to_owned());
        }
        for name in ["loaderMaxMemory", "txnMemLimit"] {
            if let Some(bytes) = self.size(name) {
                parameters.insert(name.to_owned(), bytes.to_string());
            }
        }
        if self.text("loaderCompressTmp").is_some() {
            let value = self.switch("loaderCompressTmp", true).to_string();
            parameters.insert("loaderCompressTmp".to_owned(), value);
        }
        if self.switch("redactClientLogData", false) {
            parameters.insert("redactClientLogData".to_owned(), "true".to_owned());
        }
        parameters
    }

    /// The set's name, without the seed hosts of old command lines (`name/host1,host2`).
    pub(super) fn replica_set(&self) -> Option<String> {
        let text = self.text("replSet").or_else(|| self.text("replset"))?;
        let name = text.split('/').next().unwrap_or(text).trim();
        (!name.is_empty()).then(|| name.to_owned())
    }

    pub(super) fn oplog_bytes(&self) -> Option<u64> {
        self.text("oplogSize")?;
        Some(self.number("oplogSize", 0).unsigned_abs() << 20)
    }

    pub(super) fn oplog_min_age(&self) -> Result<Duration, ConfigError> {
        let Some(text) = self.text("oplogMinRetentionHours") else { return Ok(Duration::ZERO) };
        let hours = text.parse::<f64>().ok().filter(|hours| (0.0..1e6).contains(hours));
        let hours = hours.ok_or_else(|| {
            ConfigError::new(format!(
                "option oplogMinRetentionHours: '{text}' is not a number of hours"
            ))
        })?;
        Ok(Duration::from_secs_f64(hours * 3600.0))
    }

    /// Days and hours together, where one of them is said.
    pub(super) fn oplog_age(&self) -> Result<Option<Duration>, ConfigError> {
        if self.text("expireOplogDays").or(self.text("expireOplogHours")).is_none() {
            return Ok(None);
        }
        if self.text("oplogMinRetentionHours").is_some() {
            return Err(ConfigError::new(
                "options expireOplogDays and expireOplogHours say what oplogMinRetentionHours says, too: leave one out",
            ));
        }
        let (days, hours) = (self.number("expireOplogDays", 0), self.number("expireOplogHours", 0));
        let hours = (days * 24 + hours).unsigned_abs();
        if hours == 0 {
            return Err(ConfigError::new(
                "options expireOplogDays and expireOplogHours: an oplog of no age keeps nothing; oplogSize keeps a length",
            ));
        }
        Ok(Some(Duration::from_secs(hours * 3600)))
    }

    pub(super) fn cache_size(&self) -> Result<Option<u64>, ConfigError> {
        if let Some(bytes) = self.size("cacheSize") {
            return Ok(Some(bytes));
        }
        let Some(text) = self.text("wiredTigerCacheSizeGB") else { return Ok(None) };
        let bytes = parse_size(&format!("{text}g")).ok_or_else(|| {
            ConfigError::new(format!("option wiredTigerCacheSizeGB: '{text}' is not a number"))
        })?;
        Ok(Some(bytes))
    }

    pub(super) fn compress_log(&self) -> Result<bool, ConfigError> {
        let otherwise = match self.text("wiredTigerJournalCompressor") {
            None | Some("snappy" | "zlib" | "zstd") => true,
            Some("none") => false,
            Some(other) => {
                let text =
                    format!("option wiredTigerJournalCompressor: '{other}' is no compressor");
                return Err(ConfigError::new(text));
            }
        };
        Ok(self.switch("compressLog", otherwise))
    }

    pub(super) fn log_flush_period(&self) -> Duration {
        let older = self.number("journalCommitInterval", 100);
        Duration::from_millis(self.number("logFlushPeriod", older).unsigned_abs())
    }

    /// What was asked for, nested like a YAML file; flags without a place there stand outside.
    pub(super) fn document(&self) -> Document {
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
                _ if tls::SECRET.contains(&option.flag) => Bson::from(tls::HIDDEN),
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
