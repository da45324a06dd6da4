//! How the members of a set log in to each other: by the key they share, by a certificate, or on the way from the one
//! to the other, which members go one after another.

/// `security.clusterAuthMode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClusterAuth {
    /// By the key, and nobody by a certificate.
    #[default]
    KeyFile,
    /// By the key, and who comes with a certificate is let in.
    SendKeyFile,
    /// By a certificate, and who comes with the key is let in.
    SendX509,
    /// By a certificate, and nobody by the key.
    X509,
}

impl ClusterAuth {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::KeyFile, Self::SendKeyFile, Self::SendX509, Self::X509];

    /// Its name in the options.
    pub fn name(self) -> &'static str {
        match self {
            Self::KeyFile => "keyFile",
            Self::SendKeyFile => "sendKeyFile",
            Self::SendX509 => "sendX509",
            Self::X509 => "x509",
        }
    }

    /// The one of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether the key is needed: it is shown, or others may show it.
    pub fn uses_key(self) -> bool {
        self != Self::X509
    }

    /// Whether members are let in that show a certificate.
    pub fn takes_certificates(self) -> bool {
        self != Self::KeyFile
    }

    /// Whether this member shows a certificate.
    pub fn sends_certificate(self) -> bool {
        matches!(self, Self::SendX509 | Self::X509)
    }
}

#[cfg(test)]
mod tests {
    use super::ClusterAuth;

    /// Each step of the way is understood by members that have not made it, and by those that have made it.
    #[test]
    fn members_change_one_after_another() {
        let lets_in = |from: ClusterAuth, to: ClusterAuth| {
            if from.sends_certificate() { to.takes_certificates() } else { to.uses_key() }
        };
        for (at, from) in ClusterAuth::ALL.into_iter().enumerate() {
            for (other, to) in ClusterAuth::ALL.into_iter().enumerate() {
                if at.abs_diff(other) <= 1 {
                    assert!(lets_in(from, to) && lets_in(to, from), "{from:?} {to:?}");
                }
            }
            assert_eq!(ClusterAuth::parse(from.name()), Some(from));
        }
        assert!(!lets_in(ClusterAuth::KeyFile, ClusterAuth::X509));
        assert!(!lets_in(ClusterAuth::X509, ClusterAuth::KeyFile));
    }
}
