//! What the server shows and asks for, made of files, and exchanged while it runs.
//!
//! Always true: what is loaded was checked as a whole; connections that were begun keep what they began with.

use crate::key;
use crate::material::{self, Flaw, Own, Part};
use crate::verifier::TakesAny;
use parking_lot::RwLock;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{InconsistentKeys, ServerConfig, SupportedProtocolVersion, version};
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
    /// So is one with a certificate that is not good; it is nobody.
    pub allow_invalid_certificates: bool,
    /// TLS 1.2 is not spoken.
    pub without_tls12: bool,
    /// TLS 1.3 is not spoken.
    pub without_tls13: bool,
}

/// What is to be loaded.
#[derive(Default)]
pub struct Request<'a> {
    /// The server's certificate, those between it and its root, and its key.
    pub certificate_key: &'a [u8],
    /// What the key is encrypted with.
    pub password: Option<&'a str>,
    /// The certificates that clients' have to come from.
    pub authorities: Option<&'a [u8]>,
    /// The revoked ones.
    pub revoked: Option<&'a [u8]>,
    /// The rest.
    pub options: Options,
}

/// What was loaded.
pub struct Loaded {
    pub(crate) clients: Arc<ServerConfig>,
    page: Arc<ServerConfig>,
    pub(crate) verifier: Option<Arc<dyn ClientCertVerifier>>,
    pub(crate) takes_any: bool,
    clock: Clock,
    own: Own,
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
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

impl Loaded {
    /// Reads and checks all of it.
    ///
    /// # Errors
    /// Which file cannot be used, and what to do.
    pub fn new(
        request: &Request<'_>,
        clock: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Self, Flaw> {
        let clock: Clock = Arc::new(clock);
        let now = i64::try_from(clock()).unwrap_or(i64::MAX);
        key::check_encryption(request.certificate_key)?;
        let own = material::own(request.certificate_key, now)?;
        let key = key::read(request.certificate_key, request.password)?;
        let failed = |error: rustls::Error| {
            Flaw::new(Part::CertificateKey, format!("it cannot be used: {error}"))
        };
        let provider = provider();
        let certified = CertifiedKey::from_der(own.chain.clone(), key, &provider);
        let certified = certified.map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Flaw::new(
                Part::CertificateKey,
                format!(
                    "its key is not the one its certificate ({}) was made for: put the two that belong together into it",
                    own.subject
                ),
            ),
            other => failed(other),
        })?;
        let verifier = verifier(request, now, &provider)?;
        let takes_any = request.options.allow_invalid_certificates;
        let asks = match &verifier {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(verifier) if takes_any => Arc::new(TakesAny(Arc::clone(verifier))),
            Some(verifier) => Arc::clone(verifier),
        };
        let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
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
        Ok(Self { clients, page, verifier, takes_any, clock, own })
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

fn versions(options: Options) -> Vec<&'static SupportedProtocolVersion> {
    let all = [(options.without_tls13, &version::TLS13), (options.without_tls12, &version::TLS12)];
    all.into_iter().filter(|(without, _)| !without).map(|(_, version)| version).collect()
}

fn verifier(
    request: &Request<'_>,
    now: i64,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, Flaw> {
    let Some(authorities) = request.authorities else {
        if request.revoked.is_some() {
            return Err(Flaw::new(
                Part::Revoked,
                "it needs the authority that it is of: name that with tlsCAFile",
            ));
        }
        return Ok(None);
    };
    let roots = Arc::new(material::authorities(authorities, now)?);
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    if let Some(revoked) = request.revoked {
        builder = builder
            .with_crls(material::revoked(revoked, now)?)
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration();
    }
    if request.options.allow_connections_without_certificates {
        builder = builder.allow_unauthenticated();
    }
    let built = builder.build();
    let part = if request.revoked.is_some() { Part::Revoked } else { Part::Authorities };
    built.map(Some).map_err(|error| Flaw::new(part, format!("it cannot be used: {error}")))
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
