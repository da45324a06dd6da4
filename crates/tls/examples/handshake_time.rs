//! How long a handshake keeps the server's processor: whole ones and resumed ones, by TLS 1.3 and 1.2.
//!
//! `cargo run --release -p tls --example handshake_time`. Client and server are in one thread without a socket; only
//! what the server does is timed. The certificate's key is of P-256.
#![expect(clippy::print_stdout, reason = "the figures")]
#![expect(clippy::disallowed_methods, reason = "a tool for people, never simulated")]

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion, version};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tls::{Loaded, Request, Session};

const TIMES: u32 = 1000;

/// The server's end of a socket.
#[derive(Default)]
struct Socket {
    came: VecDeque<u8>,
    sent: VecDeque<u8>,
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.came.is_empty() {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            self.came.read(into)
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn main() {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = || KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key()).expect("a certificate");
    let (own_key, names) = (key(), vec!["localhost".to_owned()]);
    let own = CertificateParams::new(names).and_then(|own| own.signed_by(&own_key, &authority));
    let pem = format!("{}{}", own.expect("a certificate").pem(), own_key.serialize_pem());
    let request = Request { certificate_key: pem.as_bytes(), ..Request::default() };
    let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let loaded = Arc::new(Loaded::new(&request, seconds).expect("a good certificate"));
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("a certificate");
    roots.add(root).expect("an authority");
    for (name, version) in [("TLS 1.3", &version::TLS13), ("TLS 1.2", &version::TLS12)] {
        for resumes in [false, true] {
            let client = client(&roots, version, resumes);
            handshake(&client, &loaded);
            let mut times: Vec<_> = (0..TIMES).map(|_| handshake(&client, &loaded)).collect();
            times.sort();
            let at = |share: usize| times[times.len() * share / 100].as_nanos() as f64 / 1e3;
            let kind = if resumes { "resumed" } else { "whole" };
            println!("{name}, {kind}: {:.0} us, 99 % {:.0} us", at(50), at(99));
        }
    }
}

fn client(
    roots: &RootCertStore,
    version: &'static SupportedProtocolVersion,
    resumes: bool,
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_protocol_versions(&[version]);
    let mut config = builder.with_root_certificates(roots.clone()).with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Arc::new(config)
}

/// One handshake; the time of the server's part.
fn handshake(config: &Arc<ClientConfig>, loaded: &Arc<Loaded>) -> Duration {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::clone(config), name).expect("a client");
    let mut socket = Socket::default();
    let began = Instant::now();
    let mut session = Session::new(loaded).expect("a session");
    let mut time = began.elapsed();
    loop {
        while client.wants_write() {
            client.write_tls(&mut socket.came).expect("room");
        }
        let began = Instant::now();
        let mut emptied = false;
        while session.read(&mut socket, &mut [0; 16], &mut emptied).is_ok() {}
        let established = session.established().expect("a handshake that is taken").is_some();
        time += began.elapsed();
        while client.wants_read() && !socket.sent.is_empty() {
            client.read_tls(&mut socket.sent).expect("bytes");
            client.process_new_packets().expect("a good server");
        }
        if established {
            return time;
        }
    }
}
