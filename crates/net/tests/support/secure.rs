//! A server's certificate made for a test, and clients that trust it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use net::TlsPort;
use os::Os;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tls::{Certificates, Loaded, Mode, Request};

/// A port of this mode, and what its clients trust.
pub(crate) fn port(mode: Mode) -> (TlsPort, Arc<ClientConfig>) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let pem = format!("{}{}", cert.pem(), signing_key.serialize_pem());
    let clock = Os::real().clock;
    let now = move || clock.wall_ms().unsigned_abs() / 1000;
    let request = Request { certificate_key: pem.as_bytes(), ..Request::default() };
    let loaded = Loaded::new(&request, now).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let certificates = Some(Arc::new(Certificates::new(loaded)));
    (TlsPort { mode, certificates }, Arc::new(client))
}

pub(crate) fn session(client: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(Arc::clone(client), ServerName::try_from("localhost").unwrap()).unwrap()
}

pub(crate) fn socket(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

pub(crate) fn connect(
    client: &Arc<ClientConfig>,
    address: SocketAddr,
) -> StreamOwned<ClientConnection, TcpStream> {
    StreamOwned::new(session(client), socket(address))
}
