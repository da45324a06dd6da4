//! The table of options: every one the server has, ignores or refuses, named once.
//!
//! What is always true, held by tests: no flag and no YAML place stands twice; an option is in
//! one of the three tables only.

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

use Kind::{Number, Repeated, Size, Switch, Text};

/// What we have.
pub(crate) const OPTIONS: &[Opt] = &[
    // general
    short('f', "config", "", Text, "configuration file: YAML, or key = value lines"),
    opt("dbpath", "storage.dbPath", Text, "data directory (default: ./fern-data, made if missing)"),
    opt("port", "net.port", Number(0, 65535), "port to listen on (default: 27017)"),
    opt(
        "bind_ip",
        "net.bindIp",
        Text,
        "addresses or names to listen at, with commas (default: localhost)",
    ),
    opt("bind_ip_all", "net.bindIpAll", Switch, "listen at every address"),
    opt("ipv6", "net.ipv6", Switch, "listen at IPv6 addresses too"),
    opt(
        "maxConns",
        "net.maxIncomingConnections",
        Number(1, 1_000_000),
        "connections at most (default: 65536, or what open files allow)",
    ),
    opt("nounixsocket", "", Switch, "no Unix domain socket"),
    opt(
        "unixSocketPrefix",
        "net.unixDomainSocket.pathPrefix",
        Text,
        "directory of the Unix domain socket (default: /tmp)",
    ),
    opt(
        "filePermissions",
        "net.unixDomainSocket.filePermissions",
        Text,
        "octal permissions of the socket file (default: 0700)",
    ),
    // the status port
    opt(
        "statusPort",
        "statusPort",
        Number(0, 65535),
        "port of the status page and /metrics, 0: none (default: 28017)",
    ),
    opt(
        "statusBindIp",
        "statusBindIp",
        Text,
        "addresses the status port listens at, with commas (default: 127.0.0.1)",
    ),
    opt(
        "statusShowValues",
        "statusShowValues",
        Text,
        "who sees what clients sent: local (this machine), always, never (default: local)",
    ),
    // the log
    opt("logpath", "systemLog.path", Text, "write the log to this file, not to standard output"),
    opt("logappend", "systemLog.logAppend", Switch, "go on at the end of an old log file"),
    opt("quiet", "systemLog.quiet", Switch, "do not log connections"),
    short('v', "verbose", "systemLog.verbosity", Text, "log more; -vv still more"),
    opt(
        "slowms",
        "operationProfiling.slowOpThresholdMs",
        Number(-1, i32::MAX as i64),
        "log operations slower than this (default: 100)",
    ),
    opt(
        "profile",
        "operationProfiling.mode",
        Text,
        "what every database's system.profile has: 0 or off, 1 or slowOp, 2 or all (default: off)",
    ),
    // the process
    opt("fork", "processManagement.fork", Switch, "go to the background; needs --logpath"),
    opt(
        "pidfilepath",
        "processManagement.pidFilePath",
        Text,
        "write the process number to this file",
    ),
    opt("noauth", "", Switch, "ask nobody who he is: the only way so far"),
    opt("noscripting", "security.javascriptEnabled", Switch, "run no JavaScript of clients"),
    opt("setParameter", "setParameter", Repeated, "name=value; a server parameter at start"),
    // the replica set
    opt(
        "replSet",
        "replication.replSetName",
        Text,
        "be the one member of a replica set of this name",
    ),
    opt("replset", "replication.replSet", Text, "the same as replSet"),
    opt(
        "replSetAutoInitiate",
        "replication.autoInitiate",
        Switch,
        "initiate the replica set at the first start, without replSetInitiate",
    ),
    // the engine, as TokuMX spelled it
    opt(
        "cacheSize",
        "storage.fern.cacheSize",
        Size,
        "memory for the engine, with k, m, g or t (default: half of the machine's)",
    ),
    opt("directio", "storage.fern.directio", Switch, "bypass the page cache of the system"),
    opt(
        "checkpointPeriod",
        "storage.fern.checkpointPeriod",
        Number(0, 1 << 30),
        "seconds between checkpoints, 0: never (default: 60)",
    ),
    opt(
        "cleanerPeriod",
        "storage.fern.cleanerPeriod",
        Number(0, 1 << 30),
        "seconds between cleaner runs, 0: never (default: 2)",
    ),
    opt(
        "cleanerIterations",
        "storage.fern.cleanerIterations",
        Number(0, 1 << 30),
        "nodes per cleaner run (default: 5)",
    ),
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
    opt(
        "lockTimeout",
        "storage.fern.lockTimeout",
        Number(0, 1 << 40),
        "milliseconds to wait for a lock (default: 4000)",
    ),
    opt(
        "locktreeMaxMemory",
        "storage.fern.locktreeMaxMemory",
        Size,
        "memory for locks (default: a tenth of cacheSize)",
    ),
    opt(
        "fsRedzone",
        "storage.fern.fsRedzone",
        Number(0, 90),
        "percent of the disk to keep free; below it writes are refused (default: 5)",
    ),
    opt(
        "logDir",
        "storage.fern.logDir",
        Text,
        "directory of the redo log (default: journal in dbpath)",
    ),
    opt(
        "tmpDir",
        "storage.fern.tmpDir",
        Text,
        "directory for spilled data (default: tmp in dbpath)",
    ),
    opt(
        "wiredTigerCacheSizeGB",
        "storage.wiredTiger.engineConfig.cacheSizeGB",
        Text,
        "cacheSize in gigabytes, for a mongod configuration",
    ),
];

/// What `mongod` or TokuMX had and means nothing here: accepted with a warning.
/// `true`: the flag takes a value.
pub(crate) const IGNORED: &[(&str, &str, bool)] = &[
    ("journal", "storage.journal.enabled", false),
    ("nojournal", "", false),
    ("dur", "", false),
    ("nodur", "", false),
    ("journalOptions", "storage.journal.debugFlags", true),
    ("nohttpinterface", "", false),
    ("httpinterface", "net.http.enabled", false),
    ("rest", "net.http.RESTInterfaceEnabled", false),
    ("jsonp", "net.http.JSONPEnabled", false),
    ("cpu", "", false),
    ("objcheck", "net.wireObjectCheck", false),
    ("noobjcheck", "", false),
    ("smallfiles", "storage.smallFiles", false),
    ("noprealloc", "storage.preallocDataFiles", false),
    ("nssize", "storage.nsSize", true),
    ("oplogSize", "replication.oplogSizeMB", true),
    ("pretouch", "", true),
    ("syncdelay", "storage.syncPeriodSecs", true),
    ("storageEngine", "storage.engine", true),
    ("directoryperdb", "storage.directoryPerDB", false),
    ("wiredTigerJournalCompressor", "storage.wiredTiger.engineConfig.journalCompressor", true),
    ("wiredTigerDirectoryForIndexes", "storage.wiredTiger.engineConfig.directoryForIndexes", false),
    (
        "wiredTigerCollectionBlockCompressor",
        "storage.wiredTiger.collectionConfig.blockCompressor",
        true,
    ),
    ("wiredTigerIndexPrefixCompression", "storage.wiredTiger.indexConfig.prefixCompression", true),
    ("timeZoneInfo", "processManagement.timeZoneInfo", true),
    ("enableFreeMonitoring", "cloud.monitoring.free.state", true),
    ("gdbPath", "storage.fern.gdbPath", true),
    ("loaderMaxMemory", "storage.fern.loaderMaxMemory", true),
    ("loaderCompressTmp", "storage.fern.loaderCompressTmp", true),
    ("txnMemLimit", "storage.fern.txnMemLimit", true),
    ("traceExceptions", "systemLog.traceAllExceptions", false),
    ("diaglog", "", true),
    ("upgrade", "", false),
];

/// What we cannot honour, and what its silent absence would do: refused. A value that switches
/// it off is fine.
pub(crate) const REFUSED: &[(&str, &str, bool)] = &[
    // who is asked who he is
    ("auth", "security.authorization", false),
    ("keyFile", "security.keyFile", true),
    ("clusterAuthMode", "security.clusterAuthMode", true),
    ("transitionToAuth", "security.transitionToAuth", false),
    ("clusterIpSourceAllowlist", "security.clusterIpSourceAllowlist", true),
    ("clusterIpSourceWhitelist", "security.clusterIpSourceWhitelist", true),
    ("redactClientLogData", "security.redactClientLogData", false),
    ("saslHostName", "security.sasl.hostName", true),
    ("saslServiceName", "security.sasl.serviceName", true),
    ("saslauthdSocketPath", "security.sasl.saslauthdSocketPath", true),
    ("ldapServers", "security.ldap.servers", true),
    ("ldapBindMethod", "security.ldap.bind.method", true),
    ("ldapBindSaslMechanisms", "security.ldap.bind.saslMechanisms", true),
    ("ldapQueryUser", "security.ldap.bind.queryUser", true),
    ("ldapQueryPassword", "security.ldap.bind.queryPassword", true),
    ("ldapBindWithOSDefaults", "security.ldap.bind.useOSDefaults", false),
    ("ldapTransportSecurity", "security.ldap.transportSecurity", true),
    ("ldapTimeoutMS", "security.ldap.timeoutMS", true),
    ("ldapRetryCount", "security.ldap.retryCount", true),
    ("ldapUserToDNMapping", "security.ldap.userToDNMapping", true),
    ("ldapAuthzQueryTemplate", "security.ldap.authz.queryTemplate", true),
    ("ldapValidateLDAPServerConfig", "security.ldap.validateLDAPServerConfig", true),
    // what nobody else may read
    ("enableEncryption", "security.enableEncryption", false),
    ("encryptionCipherMode", "security.encryptionCipherMode", true),
    ("encryptionKeyFile", "security.encryptionKeyFile", true),
    ("kmipServerName", "security.kmip.serverName", true),
    ("kmipPort", "security.kmip.port", true),
    ("kmipClientCertificateFile", "security.kmip.clientCertificateFile", true),
    ("kmipClientCertificatePassword", "security.kmip.clientCertificatePassword", true),
    ("kmipClientCertificateSelector", "security.kmip.clientCertificateSelector", true),
    ("kmipServerCAFile", "security.kmip.serverCAFile", true),
    ("kmipKeyIdentifier", "security.kmip.keyIdentifier", true),
    ("kmipRotateMasterKey", "security.kmip.rotateMasterKey", false),
    ("kmipConnectRetries", "security.kmip.connectRetries", true),
    ("kmipConnectTimeoutMS", "security.kmip.connectTimeoutMS", true),
    ("kmipActivateKeys", "security.kmip.activateKeys", false),
    ("kmipKeyStatePollingSeconds", "security.kmip.keyStatePollingSeconds", true),
    ("kmipUseLegacyProtocol", "security.kmip.useLegacyProtocol", false),
    // TLS, under its new names and its old ones
    ("tlsOnNormalPorts", "net.tls.tlsOnNormalPorts", false),
    ("tlsMode", "net.tls.mode", true),
    ("tlsCertificateKeyFile", "net.tls.certificateKeyFile", true),
    ("tlsCertificateKeyFilePassword", "net.tls.certificateKeyFilePassword", true),
    ("tlsClusterFile", "net.tls.clusterFile", true),
    ("tlsClusterPassword", "net.tls.clusterPassword", true),
    ("tlsClusterAuthX509Attributes", "net.tls.clusterAuthX509.attributes", true),
    ("tlsClusterAuthX509ExtensionValue", "net.tls.clusterAuthX509.extensionValue", true),
    ("tlsCAFile", "net.tls.CAFile", true),
    ("tlsClusterCAFile", "net.tls.clusterCAFile", true),
    ("tlsCRLFile", "net.tls.CRLFile", true),
    ("tlsCipherConfig", "net.tls.cipherConfig", true),
    ("tlsDisabledProtocols", "net.tls.disabledProtocols", true),
    (
        "tlsAllowConnectionsWithoutCertificates",
        "net.tls.allowConnectionsWithoutCertificates",
        false,
    ),
    ("tlsAllowInvalidCertificates", "net.tls.allowInvalidCertificates", false),
    ("tlsAllowInvalidHostnames", "net.tls.allowInvalidHostnames", false),
    ("tlsFIPSMode", "net.tls.FIPSMode", false),
    ("tlsLogVersions", "net.tls.logVersions", true),
    ("tlsCertificateSelector", "net.tls.certificateSelector", true),
    ("tlsClusterCertificateSelector", "net.tls.clusterCertificateSelector", true),
    ("sslOnNormalPorts", "net.ssl.sslOnNormalPorts", false),
    ("sslMode", "net.ssl.mode", true),
    ("sslPEMKeyFile", "net.ssl.PEMKeyFile", true),
    ("sslPEMKeyPassword", "net.ssl.PEMKeyPassword", true),
    ("sslClusterFile", "net.ssl.clusterFile", true),
    ("sslClusterPassword", "net.ssl.clusterPassword", true),
    ("sslCAFile", "net.ssl.CAFile", true),
    ("sslClusterCAFile", "net.ssl.clusterCAFile", true),
    ("sslCRLFile", "net.ssl.CRLFile", true),
    ("sslCipherConfig", "net.ssl.cipherConfig", true),
    ("sslDisabledProtocols", "net.ssl.disabledProtocols", true),
    ("sslWeakCertificateValidation", "net.ssl.weakCertificateValidation", false),
    (
        "sslAllowConnectionsWithoutCertificates",
        "net.ssl.allowConnectionsWithoutCertificates",
        false,
    ),
    ("sslAllowInvalidCertificates", "net.ssl.allowInvalidCertificates", false),
    ("sslAllowInvalidHostnames", "net.ssl.allowInvalidHostnames", false),
    ("sslFIPSMode", "net.ssl.FIPSMode", false),
    ("sslCertificateSelector", "net.ssl.certificateSelector", true),
    ("sslClusterCertificateSelector", "net.ssl.clusterCertificateSelector", true),
    ("enableMajorityReadConcern", "replication.enableMajorityReadConcern", true),
    ("rsMaintenance", "", false),
    ("fastsync", "", false),
    ("master", "", false),
    ("slave", "", false),
    ("source", "", true),
    ("configsvr", "", false),
    ("shardsvr", "", false),
    ("clusterRole", "sharding.clusterRole", true),
    ("auditDestination", "auditLog.destination", true),
    ("auditFormat", "auditLog.format", true),
    ("auditPath", "auditLog.path", true),
    ("auditFilter", "auditLog.filter", true),
    ("auditSchema", "auditLog.schema", true),
    ("auditCompressionMode", "auditLog.compressionMode", true),
    ("auditRuntimeConfiguration", "auditLog.runtimeConfiguration", false),
    ("auditEncryptionKeyUID", "auditLog.auditEncryptionKeyIdentifier", true),
    ("auditLocalKeyFile", "auditLog.localAuditKeyFile", true),
    ("pluginsDir", "", true),
    ("loadPlugin", "", true),
    ("repair", "", false),
    ("restore", "", false),
    ("syslog", "", false),
    ("networkMessageCompressors", "net.compression.compressors", true),
    ("timeStampFormat", "systemLog.timeStampFormat", true),
    ("logRotate", "systemLog.logRotate", true),
    ("notablescan", "", false),
    ("inMemorySizeGB", "storage.inMemory.engineConfig.inMemorySizeGB", true),
];

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
