//! What the options say about TLS, under their new names and their old ones.
//!
//! Always true: who names a file for TLS has TLS; what is named under both names is refused.

use crate::config::ConfigError;
use crate::config::settings::GivenOptions;
use auth::ClusterAuth;
use std::fmt;
use std::path::PathBuf;
use tls::{MemberRule, Mode, Options, Version};

/// The options with their old names.
pub(super) const OLD_NAMES: &[(&str, &str)] = &[
    ("tlsMode", "sslMode"),
    ("tlsOnNormalPorts", "sslOnNormalPorts"),
    ("tlsCertificateKeyFile", "sslPEMKeyFile"),
    ("tlsCertificateKeyFilePassword", "sslPEMKeyPassword"),
    ("tlsClusterFile", "sslClusterFile"),
    ("tlsClusterPassword", "sslClusterPassword"),
    ("tlsCAFile", "sslCAFile"),
    ("tlsClusterCAFile", "sslClusterCAFile"),
    ("tlsCRLFile", "sslCRLFile"),
    ("tlsAllowConnectionsWithoutCertificates", "sslAllowConnectionsWithoutCertificates"),
    ("tlsAllowInvalidCertificates", "sslAllowInvalidCertificates"),
    ("tlsAllowInvalidHostnames", "sslAllowInvalidHostnames"),
    ("tlsDisabledProtocols", "sslDisabledProtocols"),
    ("tlsCipherConfig", "sslCipherConfig"),
];

/// The options whose values nobody is shown.
pub(super) const SECRET: &[&str] = &[
    "tlsCertificateKeyFilePassword",
    "sslPEMKeyPassword",
    "tlsClusterPassword",
    "sslClusterPassword",
];
/// What is shown in their place.
pub(super) const HIDDEN: &str = "<password>";

/// What a key is encrypted with; no text shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPassword(pub(crate) String);

impl fmt::Debug for KeyPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// What the server shows and asks for, and of whom.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsSettings {
    /// Who speaks TLS.
    pub mode: Mode,
    /// The server's certificate and key; there unless nobody speaks TLS.
    pub certificate_key_file: Option<PathBuf>,
    /// What the key is encrypted with.
    pub password: Option<KeyPassword>,
    /// What the server shows to other members, where that is another certificate.
    pub cluster_file: Option<PathBuf>,
    /// What its key is encrypted with.
    pub cluster_password: Option<KeyPassword>,
    /// The certificates that clients' have to come from, where those are others.
    pub cluster_authorities_file: Option<PathBuf>,
    /// The certificates that clients' and members' have to come from.
    pub authorities_file: Option<PathBuf>,
    /// Those are the ones that this machine trusts, where no file is named.
    pub uses_system_authorities: bool,
    /// The revoked ones.
    pub revoked_file: Option<PathBuf>,
    /// By what members' certificates are known, where it is not O, OU and DC of the server's own.
    pub member_rule: Option<MemberRule>,
    /// And by what else, while a set changes.
    pub other_member_rule: Option<MemberRule>,
    /// The log has a line for each connection of these.
    pub logged_versions: Vec<Version>,
    /// The rest.
    pub options: Options,
}

impl GivenOptions {
    /// The flag of a pair that was given.
    fn named(&self, flag: &'static str) -> Result<&'static str, ConfigError> {
        let Some((_, old)) = OLD_NAMES.iter().find(|(name, _)| *name == flag) else {
            return Ok(flag);
        };
        match (self.text(flag), self.text(old)) {
            (Some(_), Some(_)) => Err(ConfigError::new(format!(
                "options {flag} and {old} are the same: leave {old} out"
            ))),
            (None, Some(_)) => Ok(old),
            _ => Ok(flag),
        }
    }

    fn tls_text(&self, flag: &'static str) -> Result<Option<&str>, ConfigError> {
        Ok(self.text(self.named(flag)?))
    }

    fn tls_switch(&self, flag: &'static str) -> Result<bool, ConfigError> {
        Ok(self.switch(self.named(flag)?, false))
    }

    fn tls_mode(&self) -> Result<Mode, ConfigError> {
        let on_normal_ports = self.tls_switch("tlsOnNormalPorts")?;
        let Some(text) = self.tls_text("tlsMode")? else {
            return Ok(if on_normal_ports { Mode::Require } else { Mode::Disabled });
        };
        let mode = Mode::parse(text).ok_or_else(|| {
            ConfigError::new(format!(
                "option tlsMode: '{text}' is none of disabled, allowTLS, preferTLS and requireTLS"
            ))
        })?;
        if on_normal_ports && mode != Mode::Require {
            return Err(ConfigError::new(format!(
                "option tlsMode: {text} and tlsOnNormalPorts contradict each other"
            )));
        }
        Ok(mode)
    }

    /// Which cipher suites are spoken.
    fn take_suites(&self, options: &mut Options) -> Result<(), ConfigError> {
        fn refuse(name: &str) -> impl Fn(String) -> ConfigError {
            move |why| ConfigError::new(format!("{name}: {why}"))
        }
        let option = self.tls_text("tlsCipherConfig")?.map(str::to_owned);
        let parameter = self.parameter("opensslCipherConfig");
        if option.is_some() && parameter.is_some() {
            return Err(ConfigError::new(
                "option tlsCipherConfig and parameter opensslCipherConfig are the same: leave one out",
            ));
        }
        if let Some(list) = option {
            options.suites.take_tls12(&list).map_err(refuse("option tlsCipherConfig"))?;
        }
        if let Some(list) = parameter {
            options.suites.take_tls12(&list).map_err(refuse("parameter opensslCipherConfig"))?;
        }
        if let Some(list) = self.parameter("opensslCipherSuiteConfig") {
            options
                .suites
                .take_tls13(&list)
                .map_err(refuse("parameter opensslCipherSuiteConfig"))?;
        }
        Ok(())
    }

    /// By what members' certificates are known.
    fn member_rule(&self) -> Result<Option<MemberRule>, ConfigError> {
        let (attributes, extension) =
            ("tlsClusterAuthX509Attributes", "tlsClusterAuthX509ExtensionValue");
        match (self.text(attributes), self.text(extension)) {
            (Some(_), Some(_)) => Err(ConfigError::new(format!(
                "options {attributes} and {extension} say two things of the same: leave one out"
            ))),
            (Some(name), None) => MemberRule::attributes_of(name)
                .map(Some)
                .map_err(|why| ConfigError::new(format!("option {attributes}: {why}"))),
            (None, Some(text)) => Ok(Some(MemberRule::Extension(text.to_owned()))),
            (None, None) => Ok(None),
        }
    }

    /// All of it.
    pub(super) fn tls(&self) -> Result<TlsSettings, ConfigError> {
        let mode = self.tls_mode()?;
        let path = |flag| Ok(self.tls_text(flag)?.map(PathBuf::from));
        let password = |flag| -> Result<Option<KeyPassword>, ConfigError> {
            Ok(self.tls_text(flag)?.map(|password| KeyPassword(password.to_owned())))
        };
        // Without TLS it is refused for what it needs.
        let login = self.text("clusterAuthMode").filter(|_| mode != Mode::Disabled);
        let login = login.and_then(ClusterAuth::parse).unwrap_or_default();
        let mut options = Options {
            allow_connections_without_certificates: self
                .tls_switch("tlsAllowConnectionsWithoutCertificates")?,
            allow_invalid_certificates: self.tls_switch("tlsAllowInvalidCertificates")?,
            allow_invalid_hostnames: self.tls_switch("tlsAllowInvalidHostnames")?,
            takes_members: login.takes_certificates(),
            shows_itself: login.sends_certificate(),
            ..Options::default()
        };
        if let Some(text) = self.tls_text("tlsDisabledProtocols")? {
            disable(text, &mut options)?;
        }
        self.take_suites(&mut options)?;
        let settings = TlsSettings {
            mode,
            certificate_key_file: path("tlsCertificateKeyFile")?,
            password: password("tlsCertificateKeyFilePassword")?,
            cluster_file: path("tlsClusterFile")?,
            cluster_password: password("tlsClusterPassword")?,
            cluster_authorities_file: path("tlsClusterCAFile")?,
            authorities_file: path("tlsCAFile")?,
            uses_system_authorities: self.start_switch("tlsUseSystemCA", false)?,
            revoked_file: path("tlsCRLFile")?,
            member_rule: self.member_rule()?,
            other_member_rule: self
                .parameter("tlsX509ClusterAuthDNOverride")
                .map(|name| MemberRule::organization_of(&name))
                .transpose()
                .map_err(|why| {
                    ConfigError::new(format!("parameter tlsX509ClusterAuthDNOverride: {why}"))
                })?,
            logged_versions: self.text("tlsLogVersions").map_or(Ok(Vec::new()), logged)?,
            options,
        };
        settings.check()?;
        Ok(settings)
    }
}

/// Which versions of TLS are not spoken.
fn disable(text: &str, options: &mut Options) -> Result<(), ConfigError> {
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            // They are not spoken anyway.
            "TLS1_0" | "TLS1_1" => {}
            "TLS1_2" => options.without_tls12 = true,
            "TLS1_3" => options.without_tls13 = true,
            "none" => {
                return Err(ConfigError::new(
                    "option tlsDisabledProtocols: none asks for TLS 1.0 and 1.1, which are not supported",
                ));
            }
            other => {
                return Err(ConfigError::new(format!(
                    "option tlsDisabledProtocols: '{other}' is none of TLS1_0, TLS1_1, TLS1_2 and TLS1_3"
                )));
            }
        }
    }
    if options.without_tls12 && options.without_tls13 {
        return Err(ConfigError::new(
            "option tlsDisabledProtocols: TLS1_2 and TLS1_3 are all that is supported, and one of them has to stay",
        ));
    }
    Ok(())
}

/// Which versions of TLS the log tells of.
fn logged(text: &str) -> Result<Vec<Version>, ConfigError> {
    let mut versions = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            // No connection speaks them.
            "TLS1_0" | "TLS1_1" => {}
            "TLS1_2" => versions.push(Version::Tls12),
            "TLS1_3" => versions.push(Version::Tls13),
            other => {
                return Err(ConfigError::new(format!(
                    "option tlsLogVersions: '{other}' is none of TLS1_0, TLS1_1, TLS1_2 and TLS1_3"
                )));
            }
        }
    }
    Ok(versions)
}

impl TlsSettings {
    fn check(&self) -> Result<(), ConfigError> {
        if self.mode != Mode::Disabled {
            if self.certificate_key_file.is_none() {
                return Err(ConfigError::new(format!(
                    "tlsMode {} needs the server's certificate and key: name their file with \
                     tlsCertificateKeyFile",
                    self.mode.name()
                )));
            }
            for (is_given, needs_other, text) in [
                (
                    self.revoked_file.is_some(),
                    self.authorities_file.is_none() && !self.uses_system_authorities,
                    "tlsCRLFile needs the authority that it is of: name that with tlsCAFile",
                ),
                (
                    self.cluster_authorities_file.is_some(),
                    self.authorities_file.is_none() && !self.uses_system_authorities,
                    "tlsClusterCAFile says who clients' certificates are of alone: name the authority of the servers' \
                     with tlsCAFile",
                ),
                (
                    self.cluster_password.is_some(),
                    self.cluster_file.is_none(),
                    "tlsClusterPassword is of the key in tlsClusterFile, which is not given",
                ),
            ] {
                if is_given && needs_other {
                    return Err(ConfigError::new(text));
                }
            }
            return Ok(());
        }
        if *self != Self::default() {
            return Err(ConfigError::new(
                "options about TLS are given, and TLS is off: say who is to speak it with tlsMode (allowTLS, \
                 preferTLS or requireTLS), or leave them out",
            ));
        }
        Ok(())
    }
}

/// The command line without what nobody is shown.
pub(super) fn hide_secrets(argv: &[String]) -> Vec<String> {
    let mut shown = Vec::with_capacity(argv.len());
    let mut is_value = false;
    for argument in argv {
        let flag = argument.trim_start_matches('-');
        let name = flag.split('=').next().unwrap_or(flag);
        let is_secret = argument.starts_with('-') && SECRET.contains(&name);
        shown.push(match (is_value, is_secret) {
            (true, _) => HIDDEN.to_owned(),
            (false, true) if flag.contains('=') => format!("--{name}={HIDDEN}"),
            _ => argument.clone(),
        });
        is_value = !is_value && is_secret && !flag.contains('=');
    }
    shown
}

/// A line for each option that was given under its old name.
pub(super) fn warn_of_old_names(given: &GivenOptions, warnings: &mut Vec<String>) {
    for (name, old) in OLD_NAMES {
        if given.text(old).is_some() {
            warnings.push(format!("option {old} is deprecated: it is called {name} now"));
        }
    }
}
