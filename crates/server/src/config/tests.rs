//! The command line and files together.

use super::{CommandLine, ConfigError, KeySource, Settings, parse};
use bson::doc;
use os::Os;
use std::path::Path;
use std::time::Duration;

fn parsed(arguments: &[&str]) -> Result<CommandLine, ConfigError> {
    let argv: Vec<String> =
        std::iter::once(&"fernd").chain(arguments).map(|word| (*word).to_owned()).collect();
    parse(&Os::real(), &argv, "1.2.3")
}

fn settings(arguments: &[&str]) -> Settings {
    match parsed(arguments).unwrap() {
        CommandLine::Start(settings) => *settings,
        CommandLine::Print(text) => panic!("prints {text}"),
    }
}

fn refusal(arguments: &[&str]) -> String {
    let line = parsed(arguments).unwrap_err().to_string();
    assert!(!line.contains('\n') && !line.is_empty(), "{line:?}");
    line
}

fn with_file(text: &str, arguments: &[&str]) -> Result<CommandLine, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("conf");
    std::fs::write(&path, text).unwrap();
    let mut all = vec!["--config", path.to_str().unwrap()];
    all.extend(arguments);
    parsed(&all)
}

#[test]
fn nothing_asked_gives_mongods_and_tokumxs_defaults() {
    let s = settings(&[]);
    assert!(s.dbpath_is_default && s.dbpath == Path::new("./fern-data"));
    assert_eq!((s.port, s.bind_ip.as_slice()), (27017, &["localhost".to_owned()][..]));
    assert_eq!(s.unix_socket_prefix.as_deref(), Some(Path::new("/tmp")));
    assert_eq!((s.cache_size, s.direct_io, s.fs_redzone), (None, false, 5));
    assert_eq!(s.checkpoint_period, Some(Duration::from_mins(1)));
    assert_eq!((s.cleaner_period, s.cleaner_iterations), (Some(Duration::from_secs(2)), 5));
    assert_eq!(s.log_flush_period, Duration::from_millis(100));
    assert_eq!(s.lock_timeout, Duration::from_secs(4));
    assert_eq!(
        (s.status_port, s.status_bind_ip.as_slice()),
        (28017, &["127.0.0.1".to_owned()][..])
    );
    assert!(s.warnings.is_empty() && s.parsed.is_empty());
}

#[test]
fn the_status_port_has_options_of_its_own() {
    let s = settings(&["--statusPort", "0", "--bind_ip_all"]);
    assert_eq!((s.status_port, s.status_bind_ip), (0, vec!["127.0.0.1".to_owned()]));
    let yaml = "statusPort: 28018\nstatusBindIp: 127.0.0.1,::1\n";
    let Ok(CommandLine::Start(s)) = with_file(yaml, &[]) else { panic!("refused") };
    assert_eq!((s.status_port, s.status_bind_ip.len()), (28018, 2));
    assert_eq!(s.parsed.get_i32("statusPort").ok(), Some(28018));
    let Ok(CommandLine::Start(s)) = with_file("dbpath=/x\nstatusPort=28019\n", &[]) else {
        panic!()
    };
    assert_eq!(s.status_port, 28019);
    assert!(refusal(&["--statusPort", "65536"]).contains("statusPort"));
}

#[test]
fn flags_take_their_value_with_a_space_or_an_equals_sign() {
    let s = settings(&[
        "--port=27020",
        "--dbpath",
        "/x",
        "--cacheSize",
        "2GB",
        "--fork",
        "--logpath",
        "/l",
        "--directio=false",
        "-vv",
        "--setParameter",
        "a=1",
        "--setParameter=b=x=y",
        "--checkpointPeriod",
        "0",
        "--journalCommitInterval",
        "30",
        "--bind_ip",
        "::1, /s.sock",
        "--slowms",
        "-1",
        "--noscripting",
        "--profile",
        "1",
    ]);
    assert_eq!((s.port, s.cache_size, s.verbosity, s.fork), (27020, Some(2 << 30), 2, true));
    assert_eq!((s.checkpoint_period, s.log_flush_period), (None, Duration::from_millis(30)));
    assert_eq!((s.direct_io, s.slow_ms, s.profile_level), (false, -1, 1));
    assert_eq!(s.bind_ip, ["::1", "/s.sock"]);
    assert_eq!((&*s.parameters["b"], &*s.parameters["javascriptEnabled"]), ("x=y", "false"));
    let security = s.parsed.get_document("security").unwrap();
    assert_eq!(security, &doc! { "javascriptEnabled": false });
    assert_eq!(
        s.parsed.get_document("net").unwrap(),
        &doc! { "port": 27020, "bindIp": "::1, /s.sock" }
    );
    assert_eq!(s.parsed.get_document("setParameter").unwrap(), &doc! { "a": "1", "b": "x=y" });
    assert_eq!(
        s.parsed.get_document("storage").unwrap(),
        &doc! { "dbPath": "/x", "fern": {
            "cacheSize": 2_i64 << 30, "directio": false, "checkpointPeriod": 0,
        }, "journal": { "commitIntervalMs": 30 } }
    );
}

#[test]
fn the_command_line_wins_over_the_file() {
    let yaml = "net: {port: 1111, maxIncomingConnections: 50}\nsystemLog: {verbosity: 2}\n\
                operationProfiling: {mode: all}\n";
    let Ok(CommandLine::Start(s)) = with_file(yaml, &["--port", "2222"]) else { panic!("refused") };
    assert_eq!((s.port, s.max_connections, s.verbosity), (2222, Some(50), 2));
    assert_eq!(s.profile_level, 2);
}

#[test]
fn a_tokumx_file_is_taken_with_one_warning_for_what_means_nothing() {
    let text = "dbpath=/x\nport = 27018 # not the usual one\ncacheSize=134217728\nlogFlushPeriod=100\ndirectio=off\n\
                cleanerPeriod=2\nloaderMaxMemory=100M\nfsRedzone=5\nlockTimeout=4000\nnohttpinterface=true\njournal=true\n\
                auth=false\n";
    let Ok(CommandLine::Start(s)) = with_file(text, &[]) else { panic!("refused") };
    assert_eq!((s.port, s.cache_size), (27018, Some(128 << 20)));
    assert_eq!(s.warnings.len(), 2);
    assert_eq!(s.parameters["loaderMaxMemory"], (100 << 20).to_string());
}

#[test]
fn the_oplogs_age_is_days_and_hours_together() {
    for (arguments, hours) in [
        (&[][..], None),
        (&["--expireOplogDays", "5"], Some(120)),
        (&["--expireOplogHours", "5"], Some(5)),
        (&["--expireOplogDays", "1", "--expireOplogHours", "30"], Some(54)),
    ] {
        let Ok(CommandLine::Start(s)) = with_file("", arguments) else { panic!("refused") };
        assert_eq!(s.oplog_age, hours.map(|hours| Duration::from_secs(hours * 3600)));
    }
}

#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    for (arguments, word) in [
        (&["--keyFile", "/k", "--noauth"][..], "contradict"),
        (&["--expireOplogDays", "0"], "keeps nothing"),
        (&["--expireOplogHours=1", "--oplogMinRetentionHours=1"], "leave one out"),
        (&["--clusterAuthMode", "x509"], "tlsMode"),
        (&["--clusterAuthMode", "sendX509", "--keyFile", "/k"], "tlsMode"),
        (&["--clusterAuthMode", "sendKeyFile", "--keyFile", "/k"], "tlsCAFile"),
        (&["--clusterAuthMode", "password"], "unsupported value"),
        (
            &[
                "--clusterAuthMode=x509",
                "--tlsMode=requireTLS",
                "--tlsCertificateKeyFile=/c",
                "--tlsCAFile=/ca",
                "--tlsAllowInvalidCertificates",
            ],
            "do not go together",
        ),
        (
            &["--clusterAuthMode=x509", "--tlsMode=requireTLS", "--tlsCertificateKeyFile=/c"],
            "tlsCAFile",
        ),
        (
            &["--tlsMode=requireTLS", "--tlsCertificateKeyFile=/c", "--tlsClusterCAFile=/ca"],
            "tlsCAFile",
        ),
        (
            &["--tlsMode=requireTLS", "--tlsCertificateKeyFile=/c", "--tlsClusterPassword=p"],
            "tlsClusterFile",
        ),
        (&["--clusterAuthMode", "keyFile"], "keyFile"),
        (&["--auth", "--replSet", "s"], "security.keyFile is required"),
        (&["--statusTokenFile", "/t"], "needs --auth"),
        (&["--statusTokenFile", "/t", "--transitionToAuth"], "needs --auth"),
        (&["--transitionToAuth", "--replSet", "s"], "security.keyFile is required"),
        (&["--master"], "master"),
        (&["--replSetAutoInitiate"], "--replSet"),
        (&["--tlsMode=requireTLS"], "tlsCertificateKeyFile"),
        (&["--tlsMode=always"], "none of disabled"),
        (&["--tlsCAFile", "/ca"], "tlsMode"),
        (&["--tlsMode=disabled", "--tlsCertificateKeyFile", "/c"], "tlsMode"),
        (&["--tlsMode=allowTLS", "--sslMode=allowSSL"], "are the same"),
        (&["--sslOnNormalPorts", "--tlsMode=allowTLS"], "contradict"),
        (
            &["--tlsMode=allowTLS", "--tlsCertificateKeyFile", "/c", "--tlsCRLFile", "/r"],
            "tlsCAFile",
        ),
        (&["--tlsMode=allowTLS", "--tlsDisabledProtocols", "none"], "not supported"),
        (&["--tlsMode=allowTLS", "--tlsDisabledProtocols", "TLS1_3,TLS1_2"], "has to stay"),
        (&["--tlsMode=allowTLS", "--tlsDisabledProtocols", "SSL3"], "none of"),
        (&["--tlsClusterFile", "/c"], "tlsMode"),
        (&["--noSuchOption", "1"], "noSuchOption"),
        (&["--port", "70000"], "port"),
        (&["--port", "x"], "port"),
        (&["--cacheSize", "many"], "cacheSize"),
        (&["--fork"], "--logpath"),
        (&["--config", "/no/such/file"], "/no/such/file"),
        (&["--filePermissions", "999"], "filePermissions"),
        (&["--setParameter", "a"], "setParameter"),
        (&["stray"], "stray"),
    ] {
        assert!(refusal(arguments).contains(word), "{arguments:?}: {}", refusal(arguments));
    }
    for text in
        ["security:\n  keyFile: /k\n  authorization: disabled\n", "master = true\n", "nosuch = 1\n"]
    {
        assert!(with_file(text, &[]).is_err(), "{text}");
    }
    assert!(with_file("security:\n  authorization: disabled\n", &[]).is_ok());
}

#[test]
fn users_are_asked_for_where_that_is_said_and_nowhere_else() {
    use serverstate::security::AuthMode;
    for (arguments, mode) in [
        (&[][..], AuthMode::Off),
        (&["--noauth"], AuthMode::Off),
        (&["--auth"], AuthMode::On),
        (&["--transitionToAuth"], AuthMode::Transition),
        (&["--keyFile", "/k"], AuthMode::On),
        (&["--keyFile", "/k", "--replSet", "s", "--clusterAuthMode", "keyFile"], AuthMode::On),
        (&["--keyFile", "/k", "--transitionToAuth"], AuthMode::Transition),
        (
            &[
                "--replSet=s",
                "--clusterAuthMode=x509",
                "--tlsMode=requireTLS",
                "--tlsCertificateKeyFile=/c",
                "--tlsCAFile=/ca",
            ],
            AuthMode::On,
        ),
    ] {
        assert_eq!(settings(arguments).auth, mode, "{arguments:?}");
    }
    for (text, mode) in [
        ("security:\n  authorization: enabled\n", AuthMode::On),
        ("security:\n  authorization: disabled\n", AuthMode::Off),
        ("auth = true\n", AuthMode::On),
        ("security:\n  keyFile: /k\n  clusterAuthMode: keyFile\n", AuthMode::On),
    ] {
        let Ok(CommandLine::Start(settings)) = with_file(text, &[]) else { panic!("{text}") };
        assert_eq!(settings.auth, mode, "{text}");
    }
    assert!(with_file("security:\n  authorization: maybe\n", &[]).is_err());
}

#[test]
fn security_finding_22_every_option_of_tls_and_users_is_refused_by_its_name() {
    use super::foreign::REFUSED;
    let of_security = |flag: &str| {
        ["tls", "ssl", "ldap", "sasl", "kmip", "audit", "cluster"]
            .iter()
            .any(|prefix| flag.starts_with(prefix))
    };
    let mut seen = 0;
    for (flag, place, takes_value) in REFUSED.iter().filter(|(flag, ..)| of_security(flag)) {
        let dashed = format!("--{flag}");
        let arguments: &[&str] = if *takes_value { &[&dashed, "some"] } else { &[&dashed] };
        let refused = refusal(arguments);
        assert!(refused.contains(flag) && refused.contains("not supported"), "{refused}");
        // The same in both kinds of files.
        let refused = with_file(&format!("dbpath = /x\n{flag} = true\n"), &[]).unwrap_err();
        assert!(refused.to_string().contains(flag), "{refused}");
        let nested = |inner: String, name: &str| format!("{{{name}: {inner}}}");
        let yaml = place.split('.').rev().fold("some".to_owned(), nested);
        let refused = with_file(&yaml, &[]).unwrap_err().to_string();
        assert!(refused.contains(flag), "{place}: {refused}");
        seen += 1;
    }
    assert!(seen > 40, "{seen}");
    // A file that switches TLS off asks for nothing.
    let off = "net: {tls: {mode: disabled, allowInvalidCertificates: false}}\n";
    assert!(with_file(off, &[]).is_ok());
}

#[test]
fn encryption_is_asked_for_as_a_whole_and_with_the_one_cipher() {
    let on = ["--enableEncryption", "--encryptionKeyFile", "/k"];
    let asked = settings(&on).encryption.unwrap();
    let file = KeySource::File { path: "/k".into(), permissions: crypt::Permissions::OwnerAlone };
    assert_eq!(asked.source, file);
    let by_command =
        settings(&["--enableEncryption", "--encryptionKeyCommand", "/bin/key  --of a"]);
    let words = ["/bin/key", "--of", "a"].map(str::to_owned).to_vec();
    assert_eq!(by_command.encryption.unwrap().source, KeySource::Command(words));
    let more = [&on[..], &["--encryptionCipherMode", "AES256-GCM", "--relaxPermChecks"]].concat();
    let asked = settings(&more).encryption.unwrap();
    let permissions = crypt::Permissions::GroupOfRoot;
    assert_eq!(asked.source, KeySource::File { path: "/k".into(), permissions });
    let yaml = "security: {enableEncryption: true, encryptionKeyFile: /k, encryptionCipherMode: AES256-GCM}\n";
    let Ok(CommandLine::Start(settings)) = with_file(yaml, &[]) else { panic!("{yaml}") };
    assert!(settings.encryption.is_some());
    let off = "security: {enableEncryption: false}\n";
    let Ok(CommandLine::Start(settings)) = with_file(off, &[]) else { panic!("{off}") };
    assert_eq!(settings.encryption, None);
    for (arguments, line) in [
        (
            &["--enableEncryption"][..],
            "enableEncryption needs --encryptionKeyFile or --encryptionKeyCommand",
        ),
        (&["--encryptionKeyFile", "/k"], "encryptionKeyFile needs --enableEncryption"),
        (&["--encryptionCipherMode", "AES256-GCM"], "needs --enableEncryption"),
        (
            &[
                "--enableEncryption",
                "--encryptionKeyFile",
                "/k",
                "--encryptionCipherMode",
                "AES256-CBC",
            ],
            "'AES256-CBC' is not supported, only AES256-GCM",
        ),
    ] {
        let refused = refusal(arguments);
        assert!(refused.contains(line), "{refused}");
    }
}

#[test]
fn tls_is_asked_for_under_new_names_and_old_ones() {
    use tls::{Mode, Options};
    let new = settings(&[
        "--tlsMode",
        "requireTLS",
        "--tlsCertificateKeyFile",
        "/c",
        "--tlsCertificateKeyFilePassword",
        "pencil",
        "--tlsCAFile=/ca",
        "--tlsCRLFile=/r",
        "--tlsAllowConnectionsWithoutCertificates",
        "--tlsAllowInvalidHostnames",
        "--tlsDisabledProtocols",
        "TLS1_0,TLS1_2",
        "--tlsClusterFile=/m",
        "--tlsClusterPassword=pencil",
        "--tlsClusterCAFile=/mca",
    ]);
    assert!(new.warnings.is_empty());
    let yaml = "net: {ssl: {mode: requireSSL, PEMKeyFile: /c, PEMKeyPassword: pencil, CAFile: /ca, CRLFile: /r, \
                clusterFile: /m, clusterPassword: pencil, clusterCAFile: /mca, allowInvalidHostnames: true, \
                allowConnectionsWithoutCertificates: true, disabledProtocols: \"TLS1_0,TLS1_2\"}}\n";
    let Ok(CommandLine::Start(old)) = with_file(yaml, &[]) else { panic!("refused") };
    assert_eq!(new.tls, old.tls);
    assert_eq!(old.warnings.len(), 11, "{:?}", old.warnings);
    assert!(old.warnings.iter().all(|line| line.contains("deprecated")));
    assert_eq!(new.tls.mode, Mode::Require);
    let options = Options {
        allow_connections_without_certificates: true,
        allow_invalid_hostnames: true,
        without_tls12: true,
        ..Options::default()
    };
    assert_eq!(new.tls.options, options);
    assert_eq!(settings(&["--sslOnNormalPorts", "--sslPEMKeyFile=/c"]).tls.mode, Mode::Require);
    // Nobody is shown the password.
    for settings in [new, *old] {
        let shown = format!("{:?} {:?} {:?}", settings.argv, settings.parsed, settings.tls);
        assert!(!shown.contains("pencil") && shown.contains("<password>"), "{shown}");
    }
    let joined = settings(&[
        "--tlsMode=allowTLS",
        "--tlsCertificateKeyFile=/c",
        "--tlsCertificateKeyFilePassword=pencil",
    ]);
    assert!(!format!("{:?}", joined.argv).contains("pencil"));
}

#[test]
fn members_are_dialled_elsewhere_only_in_tests() {
    let map = "--setParameter=testLinkAddresses=a:1=127.0.0.1:2,b:1=127.0.0.1:3";
    assert_eq!(settings(&[]).dialled_instead, links::AddressMap::default());
    let on = settings(&["--setParameter=enableTestCommands=1", map]);
    assert_eq!(Ok(on.dialled_instead), "a:1=127.0.0.1:2,b:1=127.0.0.1:3".parse());
    for more in [&[map][..], &["--setParameter=enableTestCommands=false", map]] {
        assert!(refusal(more).contains("enableTestCommands"), "{more:?}");
    }
    let no_map = "--setParameter=testLinkAddresses=a:1";
    let line = refusal(&["--setParameter=enableTestCommands=true", no_map]);
    assert!(line.contains("testLinkAddresses") && line.contains("'a:1'"), "{line}");
}

#[test]
fn what_tls_is_told_by_parameters_and_lists() {
    use tls::{Suites, Version};
    let on = ["--tlsMode=requireTLS", "--tlsCertificateKeyFile=/c"];
    let with = |more: &[&str]| settings(&[&on[..], more].concat());
    let refused = |more: &[&str]| refusal(&[&on[..], more].concat());
    assert_eq!(with(&[]).certificate_days, 30);
    let told = with(&[
        "--tlsLogVersions=TLS1_0,TLS1_2, TLS1_3",
        "--setParameter=tlsX509ExpirationWarningThresholdDays=7",
        "--setParameter=tlsUseSystemCA=true",
        "--setParameter=opensslCipherConfig=HIGH:!aNULL",
    ]);
    assert_eq!(told.tls.logged_versions, [Version::Tls12, Version::Tls13]);
    assert_eq!((told.certificate_days, told.tls.uses_system_authorities), (7, true));
    assert_eq!(told.tls.options.suites, Suites::default());
    let mut one = Suites::default();
    one.take_tls12("ECDHE-RSA-AES128-GCM-SHA256").unwrap();
    one.take_tls13("TLS_AES_128_GCM_SHA256").unwrap();
    for name in ["--tlsCipherConfig=", "--sslCipherConfig=", "--setParameter=opensslCipherConfig="]
    {
        let list = format!("{name}ECDHE-RSA-AES128-GCM-SHA256");
        let of_13 = "--setParameter=opensslCipherSuiteConfig=TLS_AES_128_GCM_SHA256";
        assert_eq!(with(&[&list, of_13]).tls.options.suites, one, "{name}");
    }
    for (more, word) in [
        ("--tlsLogVersions=TLS2", "tlsLogVersions"),
        ("--setParameter=tlsX509ExpirationWarningThresholdDays=soon", "not a number"),
        ("--setParameter=tlsX509ExpirationWarningThresholdDays=-1", "not a number"),
        ("--setParameter=tlsUseSystemCA=perhaps", "tlsUseSystemCA"),
        ("--setParameter=opensslCipherConfig=AES128-SHA", "'AES128-SHA'"),
        (
            "--setParameter=opensslCipherSuiteConfig=TLS_AES_128_CCM_SHA256",
            "'TLS_AES_128_CCM_SHA256'",
        ),
        ("--tlsCipherConfig=!aNULL", "no cipher suite is left"),
    ] {
        let line = refused(&[more]);
        assert!(line.contains(word) && !line.contains('\n'), "{line}");
    }
    let twice = refused(&["--tlsCipherConfig=HIGH", "--setParameter=opensslCipherConfig=HIGH"]);
    assert!(twice.contains("the same"), "{twice}");
    // Without TLS there is nothing that they could say.
    for alone in ["--tlsLogVersions=TLS1_2", "--setParameter=tlsUseSystemCA=true"] {
        assert!(refusal(&[alone]).contains("TLS is off"), "{alone}");
    }
    // Members are known by an authority of the operator's own.
    let line = refused(&["--setParameter=tlsUseSystemCA=true", "--clusterAuthMode=x509"]);
    assert!(line.contains("tlsCAFile"), "{line}");
}

#[test]
fn security_finding_22_noauth_is_known_and_never_hides_auth() {
    assert!(settings(&["--noauth"]).warnings.is_empty());
    for arguments in [["--auth", "--noauth"], ["--noauth", "--auth"]] {
        assert!(refusal(&arguments).contains("auth"));
    }
    assert!(with_file("noauth = true\nauth = true\n", &[]).is_err());
    assert!(with_file("noauth = true\n", &["--keyFile", "/k"]).is_err());
}

#[test]
fn the_status_page_shows_values_to_whom_it_is_told() {
    use dashboard::ShowValues;
    for (arguments, expected) in [
        (&[][..], ShowValues::Local),
        (&["--statusShowValues", "never"], ShowValues::Never),
        (&["--statusShowValues=always"], ShowValues::Always),
    ] {
        assert_eq!(settings(arguments).status_show_values, expected);
    }
    assert!(refusal(&["--statusShowValues", "some"]).contains("statusShowValues"));
}

#[test]
fn compressors_are_refused_even_to_switch_them_off() {
    for value in ["disabled", "snappy"] {
        let refused = refusal(&["--networkMessageCompressors", value]);
        assert!(refused.contains("networkMessageCompressors"), "{refused}");
    }
}

#[test]
fn help_and_version_are_printed() {
    let Ok(CommandLine::Print(text)) = parsed(&["--version"]) else { panic!("no version") };
    assert!(text.contains("1.2.3"));
    let Ok(CommandLine::Print(text)) = parsed(&["--help"]) else { panic!("no help") };
    assert!(text.contains("--cacheSize") && text.contains("--bind_ip"));
}

#[test]
fn the_log_is_compressed_unless_it_is_refused_in_either_spelling() {
    let with = |value| settings(&["--wiredTigerJournalCompressor", value]).compress_log;
    assert!(settings(&[]).compress_log);
    assert!(!settings(&["--compressLog=off"]).compress_log);
    assert_eq!(["snappy", "zlib", "zstd", "none"].map(with), [true, true, true, false]);
    let both = ["--wiredTigerJournalCompressor", "none", "--compressLog=on"];
    assert!(settings(&both).compress_log, "the server's own option counts");
    let text = refusal(&["--wiredTigerJournalCompressor", "lzma"]);
    assert!(text.contains("'lzma' is no compressor"), "{text}");
}
