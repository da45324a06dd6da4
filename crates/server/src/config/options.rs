//! The table of options: every one the server has, named once, with the setting it becomes.
//!
//! A row is a setting (its text, its name, its type, how it is read) and the options it is read from:
//! flag, place in a YAML file, kind, help. The command line, both kinds of files, the manual's page,
//! the man page, the completions and [`Settings`] are made of the rows.
//!
//! What is always true, held by tests: no flag and no YAML place stands twice; an option is here or
//! in one of the two tables of [`super::foreign`] only.

use crate::config::ConfigError;
use crate::config::audit::AuditSettings;
use crate::config::encryption::EncryptionSettings;
use crate::config::foreign::{IGNORED, REFUSED};
use crate::config::settings::GivenOptions;
use crate::config::tls::{TlsSettings, hide_secrets};
use auth::{ClusterAuth, Network};
use bson::Document;
use dashboard::ShowValues;
use links::AddressMap;
use serverstate::security::AuthMode;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The data directory when none is named: in the current directory, made when missing.
const DEFAULT_DBPATH: &str = "./fern-data";

/// What an option's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A switch; alone on the command line it means yes.
    Switch,
    /// A whole number in a range.
    Number(i64, i64),
    /// Any text.
    Text,
    /// Bytes with a unit.
    Size,
    /// Several texts, one per mention (`--setParameter a=1 --setParameter b=2`).
    Repeated,
}

/// One option.
pub(crate) struct Opt {
    /// The flag without its dashes; also the key in `key = value` files.
    pub(crate) flag: &'static str,
    /// One letter that means the same, or a space.
    pub(crate) short: char,
    /// Where it stands in a YAML file.
    pub(crate) yaml: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
}

const fn opt(flag: &'static str, yaml: &'static str, kind: Kind, help: &'static str) -> Opt {
    Opt { flag, short: ' ', yaml, kind, help }
}

const fn short(
    short: char,
    flag: &'static str,
    yaml: &'static str,
    kind: Kind,
    help: &'static str,
) -> Opt {
    Opt { flag, short, yaml, kind, help }
}

/// Makes the list of options and [`Settings`] of the same rows.
macro_rules! options {
    ($(
        $( $(#[$doc:meta])* $setting:ident: $type:ty = $read:expr, )?
        [$($option:expr,)*];
    )*) => {
        /// What we have.
        pub(crate) const OPTIONS: &[Opt] = &[$($($option,)*)*];

        /// The settings of a server.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(
            clippy::struct_excessive_bools,
            reason = "they are independent switches of the operator"
        )]
        pub struct Settings {
            $($( $(#[$doc])* pub $setting: $type, )?)*
            /// The command line, for `getCmdLineOpts`.
            pub argv: Vec<String>,
            /// What was asked for, in the shape of a YAML file, for `getCmdLineOpts`.
            pub parsed: Document,
            /// One line for each option that is ignored.
            pub warnings: Vec<String>,
        }

        impl Settings {
            /// Reads each setting from what was given.
            pub(super) fn read(
                given: &GivenOptions,
                argv: &[String],
                warnings: Vec<String>,
            ) -> Result<Self, ConfigError> {
                let (argv, parsed) = (hide_secrets(argv), given.document());
                Ok(Self { $($( $setting: of(given, $read)?, )?)* argv, parsed, warnings })
            }
        }
    };
}

fn of<T>(
    given: &GivenOptions,
    read: impl FnOnce(&GivenOptions) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    read(given)
}

use Kind::{Number, Repeated, Size, Switch, Text};

options! {
    // general
    [
        short('f', "config", "", Text, "configuration file: YAML, or key = value lines"),
    ];
    /// The data directory.
    dbpath: PathBuf = |given| Ok(given.path("dbpath").unwrap_or_else(|| DEFAULT_DBPATH.into())),
    [
        opt("dbpath", "storage.dbPath", Text, "data directory (default: ./fern-data, made if missing)"),
    ];
    /// Backups are written below it.
    backup_root: Option<PathBuf> = |given| Ok(given.path("backupRoot")),
    [
        opt("backupRoot", "storage.fern.backupRoot", Text, "backupStart writes into directories below this one; without it, nowhere"),
    ];
    /// Nobody named the data directory.
    dbpath_is_default: bool = |given| Ok(given.path("dbpath").is_none()),
    [];
    /// The port; 0 lets the kernel choose.
    port: u16 = |given| Ok(u16::try_from(given.number("port", 27017)).unwrap_or(27017)),
    [
        opt("port", "net.port", Number(0, 65535), "port to listen on (default: 27017)"),
    ];
    /// Addresses and names to listen at.
    bind_ip: Vec<String> = |given| Ok(given.bind_ip()),
    [
        opt(
            "bind_ip",
            "net.bindIp",
            Text,
            "addresses or names to listen at, with commas (default: localhost)",
        ),
        opt("bind_ip_all", "net.bindIpAll", Switch, "listen at every address"),
    ];
    /// Listen at IPv6 addresses too.
    ipv6: bool = |given| Ok(given.switch("ipv6", false)),
    [
        opt("ipv6", "net.ipv6", Switch, "listen at IPv6 addresses too"),
    ];
    /// The connections asked for, if any number was.
    max_connections: Option<usize> = |given| {
        Ok(given.text("maxConns").and_then(|text| text.trim().parse().ok()))
    },
    [
        opt(
            "maxConns",
            "net.maxIncomingConnections",
            Number(1, 1_000_000),
            "connections at most (default: 65536, or what open files allow)",
        ),
    ];
    /// Connections from here are let in beyond that number.
    beyond_max_connections: Vec<Network> = |given| given.networks("maxIncomingConnectionsOverride"),
    [
        opt(
            "maxIncomingConnectionsOverride",
            "net.maxIncomingConnectionsOverride",
            Text,
            "addresses and ranges, with commas, whose connections are let in beyond maxConns, as far as open files allow",
        ),
    ];
    /// The directory of the Unix domain socket, if there is to be one.
    unix_socket_prefix: Option<PathBuf> = |given| Ok(given.unix_socket_prefix()),
    [
        opt("nounixsocket", "", Switch, "no Unix domain socket"),
        opt(
            "unixSocketPrefix",
            "net.unixDomainSocket.pathPrefix",
            Text,
            "directory of the Unix domain socket (default: /tmp)",
        ),
    ];
    /// Permissions of its file.
    unix_socket_mode: u32 = GivenOptions::file_permissions,
    [
        opt(
            "filePermissions",
            "net.unixDomainSocket.filePermissions",
            Text,
            "octal permissions of the socket file (default: 0700)",
        ),
    ];
    // the status port
    /// The port of the status page; 0: there is none.
    status_port: u16 = |given| {
        Ok(u16::try_from(given.number("statusPort", 28017)).unwrap_or(28017))
    },
    [
        opt(
            "statusPort",
            "statusPort",
            Number(0, 65535),
            "port of the status page and /metrics, 0: none (default: 28017)",
        ),
    ];
    /// Addresses and names the status page listens at.
    status_bind_ip: Vec<String> = |given| Ok(given.words("statusBindIp", "127.0.0.1")),
    [
        opt(
            "statusBindIp",
            "statusBindIp",
            Text,
            "addresses the status port listens at, with commas (default: 127.0.0.1)",
        ),
    ];
    /// The file of the token by which `/metrics` is read without a user.
    status_token_file: Option<PathBuf> = |given| Ok(given.path("statusTokenFile")),
    [
        opt(
            "statusTokenFile",
            "statusTokenFile",
            Text,
            "file of a bearer token by which /metrics is read without a user",
        ),
    ];
    /// Whom the status page shows what clients sent.
    status_show_values: ShowValues = GivenOptions::show_values,
    [
        opt(
            "statusShowValues",
            "statusShowValues",
            Text,
            "who sees what clients sent: local (this machine), always, never (default: local)",
        ),
    ];
    // the log
    /// The log file; standard output without.
    log_path: Option<PathBuf> = |given| Ok(given.path("logpath")),
    [
        opt("logpath", "systemLog.path", Text, "write the log to this file, not to standard output"),
    ];
    /// Go on at the end of an old log file.
    log_append: bool = |given| Ok(given.switch("logappend", false)),
    [
        opt("logappend", "systemLog.logAppend", Switch, "go on at the end of an old log file"),
    ];
    /// Do not log connections.
    quiet: bool = |given| Ok(given.switch("quiet", false)),
    [
        opt("quiet", "systemLog.quiet", Switch, "do not log connections"),
    ];
    /// 0: informational; 5: everything.
    verbosity: u8 = GivenOptions::verbosity,
    [
        short('v', "verbose", "systemLog.verbosity", Text, "log more; -vv still more"),
    ];
    /// Operations slower than this are logged; negative: all.
    slow_ms: i64 = |given| Ok(given.number("slowms", 100)),
    [
        opt(
            "slowms",
            "operationProfiling.slowOpThresholdMs",
            Number(-1, i32::MAX as i64),
            "log operations slower than this (default: 100)",
        ),
    ];
    /// The profiler's level of every database, from 0 to 2.
    profile_level: i32 = GivenOptions::profile_level,
    [
        opt(
            "profile",
            "operationProfiling.mode",
            Text,
            "what every database's system.profile has: 0 or off, 1 or slowOp, 2 or all (default: off)",
        ),
    ];
    // the process
    /// Go to the background.
    fork: bool = |given| Ok(given.switch("fork", false)),
    [
        opt("fork", "processManagement.fork", Switch, "go to the background; needs --logpath"),
    ];
    /// The process number goes here.
    pid_file: Option<PathBuf> = |given| Ok(given.path("pidfilepath")),
    [
        opt(
            "pidfilepath",
            "processManagement.pidFilePath",
            Text,
            "write the process number to this file",
        ),
    ];
    /// They are to be asked and not to be asked.
    auth_is_contradicted: bool = |given| Ok(given.contradicts_auth()),
    [];
    /// What the members of the set log in to each other with.
    key_file: Option<PathBuf> = GivenOptions::key_file,
    [
        opt("keyFile", "security.keyFile", Text, "the key that the members of the replica set share, in a file; implies --auth"),
    ];
    /// How they log in.
    cluster_auth: ClusterAuth = GivenOptions::cluster_auth,
    [
        opt("clusterAuthMode", "security.clusterAuthMode", Text, "how members log in to each other: keyFile, sendKeyFile, sendX509 or x509"),
    ];
    /// From where members may log in; from anywhere where there is none.
    members_from: Vec<Network> = GivenOptions::members_from,
    [
        opt("clusterIpSourceAllowlist", "security.clusterIpSourceAllowlist", Text, "addresses and ranges from which members of the set may log in, with commas"),
        opt("clusterIpSourceWhitelist", "security.clusterIpSourceWhitelist", Text, "the old name of clusterIpSourceAllowlist"),
    ];
    /// Whether clients are asked who they are.
    auth: AuthMode = |given| Ok(given.auth()),
    [
        opt("auth", "security.authorization", Switch, "ask clients who they are, and let them do what they may"),
        opt("noauth", "", Switch, "ask nobody who he is, which is the default"),
        opt("transitionToAuth", "security.transitionToAuth", Switch, "check who logs in, and let everybody do everything still"),
    ];
    /// Who did what is told to an audit log.
    audit: Option<AuditSettings> = GivenOptions::audit,
    [
        opt("auditDestination", "auditLog.destination", Text, "tell who did what: file, console, syslog"),
        opt("auditFormat", "auditLog.format", Text, "JSON, which is the default, or BSON"),
        opt("auditPath", "auditLog.path", Text, "the file; auditLog.json in the data directory, if none is named. With syslog the socket; /dev/log, if none is named"),
        opt("auditFilter", "auditLog.filter", Text, "tell only what this query matches"),
    ];
    /// The data directory is encrypted.
    encryption: Option<EncryptionSettings> = GivenOptions::encryption,
    [
        opt("enableEncryption", "security.enableEncryption", Switch, "encrypt what is stored, from an empty data directory on"),
        opt("encryptionKeyFile", "security.encryptionKeyFile", Text, "the master key: the base64 of 32 bytes, in a file"),
        opt("encryptionKeyCommand", "security.encryptionKeyCommand", Text, "a program that prints the master key, run at the start without a shell: its whole path, and arguments between spaces"),
        opt("encryptionCipherMode", "security.encryptionCipherMode", Text, "AES256-GCM, which is the default and the only one"),
        opt("relaxPermChecks", "security.relaxPermChecks", Switch, "the group of a key file that belongs to root may read it"),
    ];
    // TLS
    /// What the server shows and asks for, and of whom.
    tls: TlsSettings = GivenOptions::tls,
    [
        opt("tlsMode", "net.tls.mode", Text, "who speaks TLS: disabled, allowTLS, preferTLS or requireTLS (default: disabled)"),
        opt("tlsCertificateKeyFile", "net.tls.certificateKeyFile", Text, "the server's certificate and its key, in one PEM file"),
        opt("tlsCertificateKeyFilePassword", "net.tls.certificateKeyFilePassword", Text, "what the key is encrypted with"),
        opt("tlsClusterFile", "net.tls.clusterFile", Text, "what is shown to other members, if not that of tlsCertificateKeyFile: a certificate and its key"),
        opt("tlsClusterPassword", "net.tls.clusterPassword", Text, "what that key is encrypted with"),
        opt("tlsCAFile", "net.tls.CAFile", Text, "certificates that those of clients and members have to come from; clients have to show one"),
        opt("tlsClusterCAFile", "net.tls.clusterCAFile", Text, "certificates that those of clients have to come from, if not those of tlsCAFile"),
        opt("tlsCRLFile", "net.tls.CRLFile", Text, "revoked certificates, as PEM"),
        opt("tlsAllowConnectionsWithoutCertificates", "net.tls.allowConnectionsWithoutCertificates", Switch, "let in clients that show no certificate, too"),
        opt("tlsAllowInvalidCertificates", "net.tls.allowInvalidCertificates", Switch, "let in clients whose certificate is not good, as nobody, and take any of a member"),
        opt("tlsAllowInvalidHostnames", "net.tls.allowInvalidHostnames", Switch, "take a member's certificate that is of another host"),
        opt("tlsDisabledProtocols", "net.tls.disabledProtocols", Text, "versions that are not spoken, with commas: TLS1_2 or TLS1_3"),
        opt("tlsCipherConfig", "net.tls.cipherConfig", Text, "cipher suites of TLS 1.2 that are spoken, with colons; also the parameter opensslCipherConfig"),
        opt("tlsClusterAuthX509Attributes", "net.tls.clusterAuthX509.attributes", Text, "attributes of the subject by which a certificate is a member's, such as O=Example,OU=Members"),
        opt("tlsClusterAuthX509ExtensionValue", "net.tls.clusterAuthX509.extensionValue", Text, "the text in the extension 1.3.6.1.4.1.34601.2.1.2 by which a certificate is a member's"),
        opt("tlsLogVersions", "net.tls.logVersions", Text, "log each connection of these versions, with commas: TLS1_2 or TLS1_3"),
        opt("tlsOnNormalPorts", "net.tls.tlsOnNormalPorts", Switch, "the same as tlsMode=requireTLS"),
        opt("sslMode", "net.ssl.mode", Text, "the old name of tlsMode"),
        opt("sslPEMKeyFile", "net.ssl.PEMKeyFile", Text, "the old name of tlsCertificateKeyFile"),
        opt("sslPEMKeyPassword", "net.ssl.PEMKeyPassword", Text, "the old name of tlsCertificateKeyFilePassword"),
        opt("sslClusterFile", "net.ssl.clusterFile", Text, "the old name of tlsClusterFile"),
        opt("sslClusterPassword", "net.ssl.clusterPassword", Text, "the old name of tlsClusterPassword"),
        opt("sslClusterCAFile", "net.ssl.clusterCAFile", Text, "the old name of tlsClusterCAFile"),
        opt("sslCAFile", "net.ssl.CAFile", Text, "the old name of tlsCAFile"),
        opt("sslCRLFile", "net.ssl.CRLFile", Text, "the old name of tlsCRLFile"),
        opt("sslAllowConnectionsWithoutCertificates", "net.ssl.allowConnectionsWithoutCertificates", Switch, "the old name of tlsAllowConnectionsWithoutCertificates"),
        opt("sslAllowInvalidCertificates", "net.ssl.allowInvalidCertificates", Switch, "the old name of tlsAllowInvalidCertificates"),
        opt("sslAllowInvalidHostnames", "net.ssl.allowInvalidHostnames", Switch, "the old name of tlsAllowInvalidHostnames"),
        opt("sslDisabledProtocols", "net.ssl.disabledProtocols", Text, "the old name of tlsDisabledProtocols"),
        opt("sslCipherConfig", "net.ssl.cipherConfig", Text, "the old name of tlsCipherConfig"),
        opt("sslOnNormalPorts", "net.ssl.sslOnNormalPorts", Switch, "the old name of tlsOnNormalPorts"),
    ];
    /// A certificate that ends within so many days is warned of.
    certificate_days: i64 = |given| {
        given.start_number("tlsX509ExpirationWarningThresholdDays", 0..=i32::MAX.into(), 30)
    },
    [];
    /// What messages that are not whole may take together; what clients may use in all where nothing is said.
    ingress_buffer_bytes: Option<u64> = GivenOptions::ingress_buffer_bytes,
    [];
    /// A crash may leave a core file although the process holds keys.
    allow_core_dumps: bool = |given| given.start_switch("allowCoreDumps", false),
    [];
    /// Whether the program's code is moved to huge pages; where nothing is said, the size of the cache decides.
    code_in_huge_pages: Option<bool> = GivenOptions::code_in_huge_pages,
    [];
    /// Where other members are dialled instead of where the configuration says; for tests.
    dialled_instead: AddressMap = GivenOptions::dialled_instead,
    [];
    /// Server parameters by name.
    parameters: BTreeMap<String, String> = |given| Ok(given.parameters()),
    [
        opt("noscripting", "security.javascriptEnabled", Switch, "run no JavaScript of clients"),
        opt("redactClientLogData", "security.redactClientLogData", Switch, "show ### in the log in place of what clients' documents hold"),
        opt("setParameter", "setParameter", Repeated, "name=value; a server parameter at start"),
    ];
    // the replica set
    /// The name of the replica set this server is the member of, if of any.
    replica_set: Option<String> = |given| Ok(given.replica_set()),
    [
        opt(
            "replSet",
            "replication.replSetName",
            Text,
            "be a member of the replica set of this name",
        ),
        opt("replset", "replication.replSet", Text, "the same as replSet"),
    ];
    /// Initiate the set without being asked.
    replica_set_initiate: bool = |given| Ok(given.switch("replSetAutoInitiate", false)),
    [
        opt(
            "replSetAutoInitiate",
            "replication.autoInitiate",
            Switch,
            "initiate the replica set at the first start, without replSetInitiate",
        ),
    ];
    /// Bytes of oplog that a member keeps; chosen from the disk without.
    oplog_bytes: Option<u64> = |given| Ok(given.oplog_bytes()),
    [
        opt(
            "oplogSize",
            "replication.oplogSizeMB",
            Number(1, 1 << 30),
            "megabytes of oplog that a member of a set keeps (default: a twentieth of the free disk, from \
             990 to 51200, and at most an eighth of the disk)",
        ),
    ];
    /// What is younger stays in the oplog, however long it is.
    oplog_min_age: Duration = GivenOptions::oplog_min_age,
    [
        opt(
            "oplogMinRetentionHours",
            "storage.oplogMinRetentionHours",
            Text,
            "hours that the oplog of a member reaches back at least, also where it is longer than \
             oplogSize (default: 0)",
        ),
    ];
    /// What is older leaves the oplog, and what is younger stays, as in TokuMX: its length says nothing then.
    oplog_age: Option<Duration> = GivenOptions::oplog_age,
    [
        opt(
            "expireOplogDays",
            "storage.fern.expireOplogDays",
            Number(0, 36_500),
            "days, with expireOplogHours, after which the oplog goes; oplogSize is kept nevertheless, where it is given",
        ),
        opt(
            "expireOplogHours",
            "storage.fern.expireOplogHours",
            Number(0, 876_000),
            "hours on top of expireOplogDays; alone they are no days",
        ),
    ];
    // the engine, as TokuMX spelled it
    /// Memory for the engine; half of the machine's without.
    cache_size: Option<u64> = GivenOptions::cache_size,
    [
        opt(
            "cacheSize",
            "storage.fern.cacheSize",
            Size,
            "memory for the engine, with k, m, g or t (default: half of the machine's)",
        ),
    ];
    /// Bypass the page cache.
    direct_io: bool = |given| Ok(given.switch("directio", false)),
    [
        opt("directio", "storage.fern.directio", Switch, "bypass the page cache of the system"),
    ];
    /// Long records of the log are compressed.
    compress_log: bool = GivenOptions::compress_log,
    [
        opt(
            "compressLog",
            "storage.fern.compressLog",
            Switch,
            "compress records of the log from 4 KiB on (default: on)",
        ),
        opt(
            "wiredTigerJournalCompressor",
            "storage.wiredTiger.engineConfig.journalCompressor",
            Text,
            "for a mongod configuration: none is compressLog off, snappy, zlib and zstd are on",
        ),
    ];
    /// Time between checkpoints; `None`: never.
    checkpoint_period: Option<Duration> = |given| Ok(given.period("checkpointPeriod", 60)),
    [
        opt(
            "checkpointPeriod",
            "storage.fern.checkpointPeriod",
            Number(0, 1 << 30),
            "seconds between checkpoints, 0: never (default: 60)",
        ),
    ];
    /// Time between cleaner runs; `None`: never.
    cleaner_period: Option<Duration> = |given| Ok(given.period("cleanerPeriod", 2)),
    [
        opt(
            "cleanerPeriod",
            "storage.fern.cleanerPeriod",
            Number(0, 1 << 30),
            "seconds between cleaner runs, 0: never (default: 2)",
        ),
    ];
    /// Nodes per cleaner run.
    cleaner_iterations: u32 = |given| {
        Ok(u32::try_from(given.number("cleanerIterations", 5)).unwrap_or(5))
    },
    [
        opt(
            "cleanerIterations",
            "storage.fern.cleanerIterations",
            Number(0, 1 << 30),
            "nodes per cleaner run (default: 5)",
        ),
    ];
    /// Time between log flushes; zero: at every commit.
    log_flush_period: Duration = |given| Ok(given.log_flush_period()),
    [
        opt(
            "logFlushPeriod",
            "storage.fern.logFlushPeriod",
            Number(0, 500),
            "milliseconds between log flushes, 0: at every commit (default: 100)",
        ),
        opt(
            "journalCommitInterval",
            "storage.journal.commitIntervalMs",
            Number(0, 500),
            "the same as logFlushPeriod",
        ),
    ];
    /// How long a lock request waits.
    lock_timeout: Duration = |given| {
        Ok(Duration::from_millis(given.number("lockTimeout", 4000).unsigned_abs()))
    },
    [
        opt(
            "lockTimeout",
            "storage.fern.lockTimeout",
            Number(0, 1 << 40),
            "milliseconds to wait for a lock (default: 4000)",
        ),
    ];
    /// Memory for locks; a tenth of the cache without.
    locktree_max_memory: Option<u64> = |given| Ok(given.size("locktreeMaxMemory")),
    [
        opt(
            "locktreeMaxMemory",
            "storage.fern.locktreeMaxMemory",
            Size,
            "memory for locks (default: a tenth of cacheSize)",
        ),
    ];
    /// Percent of the disk that stays free.
    fs_redzone: u8 = |given| Ok(u8::try_from(given.number("fsRedzone", 5)).unwrap_or(5)),
    [
        opt(
            "fsRedzone",
            "storage.fern.fsRedzone",
            Number(0, 90),
            "percent of the disk to keep free; below it writes are refused (default: 5)",
        ),
    ];
    /// The directory of the redo log, where it is not the data directory.
    log_dir: Option<PathBuf> = |given| Ok(given.path("logDir")),
    [
        opt(
            "logDir",
            "storage.fern.logDir",
            Text,
            "directory of the redo log (default: journal in dbpath)",
        ),
    ];
    /// The directory into which the redo log is archived, if it is.
    log_archive_dir: Option<PathBuf> = |given| Ok(given.path("logArchiveDir")),
    [
        opt(
            "logArchiveDir",
            "storage.fern.logArchiveDir",
            Text,
            "the redo log is archived into this directory, outside of dbpath, for fern restore; without it, nowhere",
        ),
    ];
    /// The directory for spilled data, where it is not the data directory.
    tmp_dir: Option<PathBuf> = |given| Ok(given.path("tmpDir")),
    [
        opt(
            "tmpDir",
            "storage.fern.tmpDir",
            Text,
            "directory for spilled data (default: tmp in dbpath)",
        ),
    ];
    [
        opt("loaderCompressTmp", "storage.fern.loaderCompressTmp", Switch, "what bulk loads and index builds cannot sort in memory is compressed on its way (default: on)"),
        opt("loaderMaxMemory", "storage.fern.loaderMaxMemory", Size, "memory in which bulk loads and index builds sort, 32M at least, a quarter of cacheSize at most (default: 100M)"),
        opt("txnMemLimit", "storage.fern.txnMemLimit", Size, "the parameter of this name, which nothing goes by: transactions have no such limit"),
    ];
    [
        opt(
            "wiredTigerCacheSizeGB",
            "storage.wiredTiger.engineConfig.cacheSizeGB",
            Text,
            "cacheSize in gigabytes, for a mongod configuration",
        ),
    ];
}

/// The option behind a flag.
pub(crate) fn by_flag(flag: &str) -> Option<&'static Opt> {
    OPTIONS.iter().find(|option| option.flag == flag)
}

/// The flag and kind of table behind a place in a YAML file.
pub(crate) fn flag_of_yaml(place: &str) -> Option<&'static str> {
    let ours = OPTIONS.iter().map(|option| (option.flag, option.yaml));
    let others = IGNORED.iter().chain(REFUSED).map(|(flag, yaml, _)| (*flag, *yaml));
    ours.chain(others).find(|(_, yaml)| *yaml == place && !place.is_empty()).map(|(flag, _)| flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_flag_and_no_place_stands_twice() {
        let others = || IGNORED.iter().chain(REFUSED);
        let flags: Vec<_> =
            OPTIONS.iter().map(|o| o.flag).chain(others().map(|(flag, ..)| *flag)).collect();
        let places: Vec<_> = OPTIONS
            .iter()
            .map(|o| o.yaml)
            .chain(others().map(|(_, yaml, _)| *yaml))
            .filter(|yaml| !yaml.is_empty())
            .collect();
        assert_eq!(flags.iter().collect::<BTreeSet<_>>().len(), flags.len());
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len());
    }
}
