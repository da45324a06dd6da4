//! What the server shows and asks for, of clients and as one, made of files, and exchanged while it runs.
//!
//! Always true: what is loaded was checked as a whole; connections that were begun keep what they began with.

use crate::key;
use crate::member_rule::MemberRule;
use crate::pem_files::{self, FileError, OwnCertificate, TlsFile};
use crate::suites::Suites;
use crate::verifier::{OfClients, OfMembers};
use parking_lot::RwLock;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, InconsistentKeys, ServerConfig, SupportedProtocolVersion, version};
use std::sync::Arc;
use std::time::Duration;

/// Asks for the time in seconds since 1970.
pub(crate) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What does not come from a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent switches of the operator")]
pub struct Options {
    /// A client without a certificate is let in, although there is a file of authorities.
    pub allow_connections_without_certificates: bool,
    /// So is one with a certificate that is not good; it is nobody. Members' are not looked at either.
    pub allow_invalid_certificates: bool,
    /// A member's certificate may be of another host than the one that was connected to.
    pub allow_invalid_hostnames: bool,
    /// Members are let in by their certificates, so that this server's has to say whose it is.
    pub takes_members: bool,
    /// It shows its own to log in by, and speaks to nobody whose certificate is not of the organization of the one that
    /// it shows to clients.
    pub shows_itself: bool,
    /// TLS 1.2 is not spoken.
    pub without_tls12: bool,
    /// TLS 1.3 is not spoken.
    pub without_tls13: bool,
    /// The cipher suites that are spoken.
    pub suites: Suites,
}

/// What is to be loaded.
#[derive(Default)]
pub struct Request<'a> {
    /// The server's certificate, those between it and its root, and its key.
    pub certificate_key: &'a [u8],
    /// What the key is encrypted with.
    pub password: Option<&'a str>,
    /// What the server shows as a client of other members, where that is another certificate; and its key's password.
    pub cluster_certificate_key: Option<&'a [u8]>,
    /// What that key is encrypted with.
    pub cluster_password: Option<&'a str>,
    /// The certificates that clients' have to come from, and members'.
    pub authorities: Option<&'a [u8]>,
    /// Those are the authorities that this machine trusts: one of them that is not understood is none.
    pub of_system: bool,
    /// The ones that clients' have to come from, where those are others.
    pub cluster_authorities: Option<&'a [u8]>,
    /// The revoked ones.
    pub revoked: Option<&'a [u8]>,
    /// By what members' certificates are known; by O, OU and DC of this server's own where that is not said.
    pub member_rule: Option<&'a MemberRule>,
    /// By what else, while a set changes from one to another.
    pub other_member_rule: Option<&'a MemberRule>,
    /// The rest.
    pub options: Options,
}

impl Request<'_> {
    fn authorities_file(&self) -> TlsFile {
        if self.of_system { TlsFile::SystemAuthorities } else { TlsFile::Authorities }
    }

    /// By what members' certificates are known to who has this one.
    fn rules(&self, own: &[u8]) -> Vec<MemberRule> {
        let usual = match self.member_rule {
            Some(rule) => Some(rule.clone()),
            None => MemberRule::of_certificate(own),
        };
        usual.into_iter().chain(self.other_member_rule.cloned()).collect()
    }
}

/// What was loaded.
pub struct Loaded {
    pub(crate) clients: Arc<ServerConfig>,
    page: Arc<ServerConfig>,
    /// For connections to other members; none where nothing says which certificates are good.
    pub(crate) members: Option<Arc<ClientConfig>>,
    pub(crate) verifier: Option<Arc<dyn ClientCertVerifier>>,
    pub(crate) takes_any: bool,
    /// By any of these a certificate is a member's; empty where this server's own says nothing and nothing else does.
    member_rules: Vec<MemberRule>,
    clock: Clock,
    own: OwnCertificate,
    /// What it shows to other members, where that is another certificate.
    to_members: Option<OwnCertificate>,
}

struct ClockOf(Clock);

impl std::fmt::Debug for ClockOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClockOf")
    }
}

impl TimeProvider for ClockOf {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs((self.0)())))
    }
}

/// The one place where it is said who computes.
fn provider(suites: Suites) -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suites.have(suite));
    Arc::new(provider)
}

impl Loaded {
    /// Reads and checks all of it.
    ///
    /// # Errors
    /// Which file cannot be used, and what to do.
    pub fn new(
        request: &Request<'_>,
        clock: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        let clock: Clock = Arc::new(clock);
        let now = i64::try_from(clock()).unwrap_or(i64::MAX);
        let failed = |error: rustls::Error| {
            FileError::new(TlsFile::CertificateKey, format!("it cannot be used: {error}"))
        };
        let provider = provider(request.options.suites);
        let (own, certified) = shown(
            TlsFile::CertificateKey,
            request.certificate_key,
            request.password,
            now,
            &provider,
        )?;
        let verifier = verifier(request, now, &provider)?;
        let takes_any = request.options.allow_invalid_certificates;
        let asks: Arc<dyn ClientCertVerifier> = match &verifier {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(chain) => Arc::new(OfClients { chain: Arc::clone(chain), takes_any }),
        };
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        let (to_members, shown_to_members, cluster) = match request.cluster_certificate_key {
            None => (Arc::clone(&resolver), own.chain.first().cloned(), None),
            Some(pem) => {
                let file = TlsFile::ClusterCertificateKey;
                let (own, other) = shown(file, pem, request.cluster_password, now, &provider)?;
                (Arc::new(SingleCertAndKey::from(other)), own.chain.first().cloned(), Some(own))
            }
        };
        let shown_to_members = shown_to_members.as_deref().unwrap_or_default();
        let member_rules = request.rules(shown_to_members);
        if request.options.takes_members
            && !member_rules.iter().any(|rule| rule.fits(shown_to_members))
        {
            let file = match request.cluster_certificate_key {
                Some(_) => TlsFile::ClusterCertificateKey,
                None => TlsFile::CertificateKey,
            };
            let text = match request.member_rule {
                None => {
                    "the subject of its certificate has none of O, OU and DC, by which members know each other \
                     (clusterAuthMode): have one made with them"
                }
                Some(_) => {
                    "its certificate is none of a member's by what clusterAuthX509 says, and the other members would \
                     not let this one in: have one made that is"
                }
            };
            return Err(FileError::new(file, text));
        }
        // What they show to whoever connects, as this server does.
        let own_first = own.chain.first().map(AsRef::as_ref).unwrap_or_default();
        let of_members = request.options.shows_itself.then(|| request.rules(own_first));
        let members = members(request, now, (&provider, &clock), to_members, of_members)?;
        let config = |asks: Arc<dyn ClientCertVerifier>| {
            let clock = Arc::new(ClockOf(Arc::clone(&clock)));
            let builder = ServerConfig::builder_with_details(Arc::clone(&provider), clock)
                .with_protocol_versions(&versions(request.options))
                .map_err(failed)?;
            let mut config = builder
                .with_client_cert_verifier(asks)
                .with_cert_resolver(Arc::clone(&resolver) as _);
            // What a client resumes by is with the client, under a key that goes with this configuration.
            config.ticketer = aws_lc_rs::Ticketer::new().map_err(failed)?;
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 1;
            Ok(Arc::new(config))
        };
        let (clients, page) = (config(asks)?, config(WebPkiClientVerifier::no_client_auth())?);
        Ok(Self {
            clients,
            page,
            members,
            verifier,
            takes_any,
            member_rules,
            clock,
            own,
            to_members: cluster,
        })
    }

    pub(crate) fn time(&self) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs((self.clock)()))
    }

    /// For a port whose clients show no certificates.
    pub fn for_pages(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.page)
    }

    /// The subject of the server's certificate.
    pub fn subject(&self) -> &str {
        &self.own.subject
    }

    /// From when the server's certificate is valid, in seconds since 1970.
    pub fn not_before(&self) -> i64 {
        self.own.not_before
    }

    /// Until when.
    pub fn not_after(&self) -> i64 {
        self.own.not_after
    }

    /// The certificates that the server shows, each with its file, its subject, and until when it is valid.
    pub fn ends(&self) -> impl Iterator<Item = (TlsFile, &str, i64)> {
        let cluster = self.to_members.iter().map(|own| (TlsFile::ClusterCertificateKey, own));
        [(TlsFile::CertificateKey, &self.own)]
            .into_iter()
            .chain(cluster)
            .map(|(file, own)| (file, own.subject.as_str(), own.not_after))
    }

    /// Whether a certificate is one of a member's.
    pub(crate) fn is_of_member(&self, certificate: &[u8]) -> bool {
        self.member_rules.iter().any(|rule| rule.fits(certificate))
    }

    /// Whether connections to other members can be opened: there is something to judge their certificates by.
    pub fn reaches_members(&self) -> bool {
        self.members.is_some()
    }

    /// Whether clients' certificates are looked at.
    pub fn asks_for_certificates(&self) -> bool {
        self.verifier.is_some()
    }
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("subject", &self.own.subject).finish_non_exhaustive()
    }
}

/// A certificate that the server shows, with its key.
fn shown(
    file: TlsFile,
    pem: &[u8],
    password: Option<&str>,
    now: i64,
    provider: &CryptoProvider,
) -> Result<(OwnCertificate, CertifiedKey), FileError> {
    key::check_encryption(file, pem)?;
    let own = pem_files::own(file, pem, now)?;
    let key = key::read(file, pem, password)?;
    let certified = CertifiedKey::from_der(own.chain.clone(), key, provider);
    let certified = certified.map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => FileError::new(
            file,
            format!(
                "its key is not the one its certificate ({}) was made for: put the two that belong together into it",
                own.subject
            ),
        ),
        other => FileError::new(file, format!("it cannot be used: {other}")),
    })?;
    Ok((own, certified))
}

/// What connections to other members begin with.
fn members(
    request: &Request<'_>,
    now: i64,
    (provider, clock): (&Arc<CryptoProvider>, &Clock),
    shows: Arc<SingleCertAndKey>,
    rules: Option<Vec<MemberRule>>,
) -> Result<Option<Arc<ClientConfig>>, FileError> {
    let options = request.options;
    let chain = match request.authorities {
        _ if options.allow_invalid_certificates => None,
        None => return Ok(None),
        Some(authorities) => {
            let file = request.authorities_file();
            let roots = Arc::new(pem_files::authorities(file, authorities, now)?);
            let mut builder =
                WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider));
            if let Some(revoked) = request.revoked {
                builder = builder
                    .with_crls(pem_files::revoked(revoked, now)?)
                    .only_check_end_entity_revocation()
                    .enforce_revocation_expiration();
            }
            let built = builder.build();
            Some(
                built
                    .map_err(|error| FileError::new(file, format!("it cannot be used: {error}")))?,
            )
        }
    };
    let algorithms = provider.signature_verification_algorithms;
    let any_name = options.allow_invalid_hostnames;
    let verifier = OfMembers { chain, algorithms, any_name, rules };
    let clock = Arc::new(ClockOf(Arc::clone(clock)));
    let mut config = ClientConfig::builder_with_details(Arc::clone(provider), clock)
        .with_protocol_versions(&versions(options))
        .map_err(|error| {
            FileError::new(TlsFile::CertificateKey, format!("it cannot be used: {error}"))
        })?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(shows);
    // A resumed connection would not be judged again, and there are few.
    config.resumption = Resumption::disabled();
    Ok(Some(Arc::new(config)))
}

fn versions(options: Options) -> Vec<&'static SupportedProtocolVersion> {
    let all = [(options.without_tls13, &version::TLS13), (options.without_tls12, &version::TLS12)];
    all.into_iter().filter(|(without, _)| !without).map(|(_, version)| version).collect()
}

fn verifier(
    request: &Request<'_>,
    now: i64,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, FileError> {
    let (file, given) = match request.cluster_authorities {
        Some(others) => (TlsFile::ClusterAuthorities, Some(others)),
        None => (request.authorities_file(), request.authorities),
    };
    let Some(authorities) = given else {
        if request.revoked.is_some() {
            return Err(FileError::new(
                TlsFile::Revoked,
                "it needs the authority that it is of: name that with tlsCAFile",
            ));
        }
        return Ok(None);
    };
    let roots = Arc::new(pem_files::authorities(file, authorities, now)?);
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    if let Some(revoked) = request.revoked {
        builder = builder
            .with_crls(pem_files::revoked(revoked, now)?)
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration();
    }
    if request.options.allow_connections_without_certificates {
        builder = builder.allow_unauthenticated();
    }
    let built = builder.build();
    let file = if request.revoked.is_some() { TlsFile::Revoked } else { file };
    built.map(Some).map_err(|error| FileError::new(file, format!("it cannot be used: {error}")))
}

/// What is loaded now.
#[derive(Debug)]
pub struct Certificates(RwLock<Arc<Loaded>>);

impl Certificates {
    /// With what was loaded first.
    pub fn new(loaded: Loaded) -> Self {
        Self(RwLock::new(Arc::new(loaded)))
    }

    /// What new connections begin with.
    pub fn now(&self) -> Arc<Loaded> {
        Arc::clone(&self.0.read())
    }

    /// Takes this from the next connection on.
    pub fn exchange(&self, loaded: Loaded) {
        *self.0.write() = Arc::new(loaded);
    }
}
