//! Certificates that are refused, and connections from end to end without a socket.

use crate::{
    Arrived, Certificates, Established, Loaded, MemberRule, Options, Request, Session, TlsFile,
    Version,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::HandshakeKind::{Full, Resumed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// 2030-01-01.
const NOW: u64 = 1_893_456_000;

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

struct Issued {
    certificate: String,
    key: String,
}

impl Issued {
    fn both(&self) -> Vec<u8> {
        format!("{}{}", self.certificate, self.key).into_bytes()
    }
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (date_time_ymd(2029, 1, 1), date_time_ymd(2031, 1, 1));
    params
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    fn pem(&self) -> Vec<u8> {
        self.issuer.pem().into_bytes()
    }

    fn issue(&self, params: &CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn revoke(&self, serial: u64, next: i32) -> Vec<u8> {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2027, 1, 1),
            next_update: date_time_ymd(next, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(serial),
                revocation_time: date_time_ymd(2027, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap().into_bytes()
    }
}

fn load(request: &Request<'_>) -> Result<Loaded, crate::FileError> {
    Loaded::new(request, || NOW)
}

fn file_error(request: &Request<'_>) -> (TlsFile, String) {
    let file_error = load(request).unwrap_err();
    assert!(!file_error.text.contains('\n'));
    (file_error.file, file_error.text)
}

#[test]
fn what_cannot_be_used_is_refused_in_a_sentence() {
    let authority = Authority::new("authority");
    let good = authority.issue(&params("server", &["localhost"]));
    let both = good.both();
    let own = |pem: &[u8]| file_error(&Request { certificate_key: pem, ..Request::default() });
    let mut old = params("old", &["localhost"]);
    (old.not_before, old.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(2020, 1, 1));
    let mut young = params("young", &["localhost"]);
    (young.not_before, young.not_after) = (date_time_ymd(2040, 1, 1), date_time_ymd(2041, 1, 1));
    let other = authority.issue(&params("other", &["localhost"]));
    let mixed = format!("{}{}", good.certificate, other.key).into_bytes();
    for (pem, word) in [
        (&b"nothing"[..], "no certificate"),
        (good.key.as_bytes(), "no certificate"),
        (good.certificate.as_bytes(), "no private key"),
        (&mixed, "not the one"),
        (&authority.issue(&old).both(), "CN=old) has expired on Jan  1"),
        (&authority.issue(&young).both(), "not valid before"),
        (&authority.issue(&params("nameless", &[])).both(), "subjectAltName"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"),
        (include_bytes!("tests/version1.pem"), "version 1"),
        (include_bytes!("tests/old_encryption.pem"), "Proc-Type"),
    ] {
        let (file, text) = own(pem);
        assert!(file == TlsFile::CertificateKey && text.contains(word), "{word}: {text}");
    }
    let (file, text) = file_error(&Request {
        certificate_key: &both,
        authorities: Some(b""),
        ..Request::default()
    });
    assert!(file == TlsFile::Authorities && text.contains("no certificate"), "{text}");
    let pem = authority.pem();
    let list = authority.revoke(9, 2031);
    let outdated = authority.revoke(9, 2028);
    for (authorities, revoked, word) in [
        (None, &list, "tlsCAFile"),
        (Some(&pem[..]), &b"nothing".to_vec(), "no list"),
        (Some(&pem[..]), &outdated, "was to be replaced"),
    ] {
        let revoked = Some(&revoked[..]);
        let request =
            Request { certificate_key: &both, authorities, revoked, ..Request::default() };
        let (file, text) = file_error(&request);
        assert!(file == TlsFile::Revoked && text.contains(word), "{text}");
    }
}

#[test]
fn keys_under_a_password() {
    let pem = include_bytes!("tests/under_password.pem");
    let with = |password| load(&Request { certificate_key: pem, password, ..Request::default() });
    assert_eq!(with(Some("right")).unwrap().subject(), "CN=under password");
    assert!(with(None).unwrap_err().text.contains("tlsCertificateKeyFilePassword"));
    assert!(with(Some("wrong")).unwrap_err().text.contains("password is another"));
    let good = Authority::new("a").issue(&params("server", &["localhost"])).both();
    let request = Request { certificate_key: &good, password: Some("x"), ..Request::default() };
    assert!(file_error(&request).1.contains("not encrypted"));
}

/// A direction of a socket that takes so many bytes until it is full.
struct Pipe {
    bytes: VecDeque<u8>,
    room: usize,
    ended: bool,
}

impl Pipe {
    fn new(room: usize) -> Self {
        Self { bytes: VecDeque::new(), room, ended: false }
    }
}

/// One end of a socket: what it reads from, and what it writes to.
struct End<'p> {
    from: &'p mut Pipe,
    to: &'p mut Pipe,
}

impl Read for End<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.from.bytes.is_empty() && !self.from.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.from.bytes.read(into)
    }
}

impl Write for End<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.to.room - self.to.bytes.len());
        if count == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.to.bytes.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client and a server's session with two pipes between them.
struct Pair {
    client: ClientConnection,
    server: Session,
    up: Pipe,
    down: Pipe,
}

impl Pair {
    fn new(client: &Arc<ClientConfig>, server: &Arc<Loaded>, room: usize) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::clone(client), name).unwrap();
        let server = Session::new(server).unwrap();
        Self { client, server, up: Pipe::new(room), down: Pipe::new(room) }
    }

    /// Moves what the client has to say and to hear, as far as it goes.
    fn client(&mut self) -> Result<(), String> {
        let mut end = End { from: &mut self.down, to: &mut self.up };
        while self.client.wants_write() {
            if self.client.write_tls(&mut end).is_err() {
                break;
            }
        }
        while self.client.read_tls(&mut end).is_ok_and(|count| count > 0) {
            self.client.process_new_packets().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Lets the server read as far as it goes; what it read.
    fn serve(&mut self) -> io::Result<Vec<u8>> {
        let mut end = End { from: &mut self.up, to: &mut self.down };
        let (mut read, mut emptied) = (Vec::new(), false);
        let mut into = [0; 100];
        self.server.flush(&mut end)?;
        loop {
            match self.server.read(&mut end, &mut into, &mut emptied) {
                Ok(Arrived::Plain(count)) => read.extend(&into[..count]),
                Ok(Arrived::Nothing) => {}
                Ok(Arrived::Ended) => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(read),
                Err(error) => return Err(error),
            }
        }
    }

    fn shake_hands(&mut self) -> Result<Established, String> {
        for _ in 0..20_000 {
            self.client()?;
            self.serve().map_err(|error| error.to_string())?;
            if let Some(established) =
                self.server.established().map_err(|error| error.to_string())?
            {
                self.client()?;
                return Ok(established);
            }
        }
        Err("never done".to_owned())
    }
}

fn client(authority: &Authority, shown: Option<&Issued>) -> Arc<ClientConfig> {
    client_of(authority, shown, rustls::ALL_VERSIONS)
}

fn client_of(
    authority: &Authority,
    shown: Option<&Issued>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority.pem()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clock = Arc::new(Fixed);
    let builder = ClientConfig::builder_with_details(provider, clock)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match shown {
        None => builder.with_no_client_auth(),
        Some(shown) => {
            let chain = CertificateDer::from_pem_slice(shown.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![chain], key).unwrap()
        }
    })
}

#[derive(Debug)]
struct Fixed;

impl rustls::time_provider::TimeProvider for Fixed {
    fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
        Some(rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW)))
    }
}

fn server(
    authority: &Authority,
    options: Options,
    asks: bool,
    revoked: Option<&[u8]>,
) -> Arc<Loaded> {
    let both = authority.issue(&params("server", &["localhost"])).both();
    let pem = authority.pem();
    let authorities = asks.then_some(&pem[..]);
    let request =
        Request { certificate_key: &both, authorities, revoked, options, ..Request::default() };
    Arc::new(load(&request).unwrap())
}

#[test]
fn who_is_let_in_and_who_is_known() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let mut named = params("anna", &[]);
    named.distinguished_name.push(DnType::OrganizationName, "Firm");
    named.serial_number = Some(SerialNumber::from(9));
    let good = ours.issue(&named);
    let foreign = theirs.issue(&named);
    let mut old = params("old", &[]);
    (old.not_before, old.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(2020, 1, 1));
    let old = ours.issue(&old);
    let without = Options { allow_connections_without_certificates: true, ..Options::default() };
    let invalid = Options { allow_invalid_certificates: true, ..Options::default() };
    let (strict, known) = (Options::default(), Some("O=Firm,CN=anna"));
    let list = ours.revoke(9, 2031);
    let other_list = ours.revoke(10, 2031);
    for (options, asks, list, shown, expected) in [
        (strict, false, None, None, Ok(None)),
        (strict, false, None, Some(&good), Ok(None)),
        (strict, true, None, Some(&good), Ok(known)),
        (strict, true, None, None, Err("peer sent no certificates")),
        (without, true, None, None, Ok(None)),
        (without, true, None, Some(&good), Ok(known)),
        (without, true, None, Some(&foreign), Err("UnknownIssuer")),
        (strict, true, None, Some(&old), Err("expired")),
        (invalid, true, None, Some(&old), Ok(None)),
        (invalid, true, None, Some(&foreign), Ok(None)),
        (invalid, true, None, Some(&good), Ok(known)),
        (strict, true, Some(&list[..]), Some(&good), Err("Revoked")),
        (strict, true, Some(&other_list[..]), Some(&good), Ok(known)),
    ] {
        for versions in [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13][..]] {
            let loaded = server(&ours, options, asks, list);
            let mut pair = Pair::new(&client_of(&ours, shown, versions), &loaded, 1 << 20);
            let found = pair.shake_hands();
            match (&found, expected) {
                (Ok(found), Ok(subject)) => {
                    assert_eq!(found.subject.as_deref(), subject);
                    let is_12 = versions[0].version == rustls::ProtocolVersion::TLSv1_2;
                    assert_eq!(found.version, if is_12 { Version::Tls12 } else { Version::Tls13 });
                    let lets_pass = options == invalid && subject.is_none();
                    assert_eq!(found.unverified.is_some(), lets_pass);
                }
                (Err(text), Err(word)) => assert!(text.contains(word), "{word}: {text}"),
                _ => panic!("{found:?} instead of {expected:?}, {options:?}"),
            }
        }
    }
}

#[test]
fn a_version_that_is_disabled_is_not_spoken() {
    let ours = Authority::new("ours");
    for (options, version, works) in [
        (Options { without_tls12: true, ..Options::default() }, &rustls::version::TLS12, false),
        (Options { without_tls12: true, ..Options::default() }, &rustls::version::TLS13, true),
        (Options { without_tls13: true, ..Options::default() }, &rustls::version::TLS12, true),
        (Options { without_tls13: true, ..Options::default() }, &rustls::version::TLS13, false),
    ] {
        let loaded = server(&ours, options, false, None);
        let mut pair = Pair::new(&client_of(&ours, None, &[version]), &loaded, 1 << 20);
        assert_eq!(pair.shake_hands().is_ok(), works, "{options:?} {version:?}");
    }
}

#[test]
fn bytes_come_through_however_little_the_socket_takes() {
    let ours = Authority::new("ours");
    let loaded = server(&ours, Options::default(), false, None);
    for (room, first, second) in
        [(1, 5, 300), (7, 21, 5_000), (1_000, 40_000, 3), (100_000, 21, 900_000)]
    {
        let mut pair = Pair::new(&client(&ours, None), &loaded, room);
        assert!(pair.server.is_half());
        pair.shake_hands().unwrap();
        // What a client says in TLS 1.3 when it is done may be underway still.
        for _ in 0..2_000 {
            pair.client().unwrap();
            pair.serve().unwrap();
        }
        assert!(!pair.server.is_half() && !pair.server.has_unsent());
        let question: Vec<u8> = (0..5_000_u32).map(|at| (at % 251) as u8).collect();
        pair.client.writer().write_all(&question).unwrap();
        let mut heard = Vec::new();
        let mut halves = 0;
        while heard.len() < question.len() {
            pair.client().unwrap();
            heard.extend(pair.serve().unwrap());
            halves += usize::from(pair.server.is_half());
        }
        assert!(heard == question && (halves > 0) == (room < 5_000), "{halves} at {room}");
        assert!(!pair.server.is_half());
        let answer: Vec<u8> = (0..first + second).map(|at| (at % 249) as u8).collect();
        let (head, body) = answer.split_at(first);
        let (mut sent, mut got) = (0, Vec::new());
        while sent < answer.len() {
            let mut end = End { from: &mut pair.up, to: &mut pair.down };
            let now = pair.server.write_both(&mut end, head, body, sent).unwrap();
            assert!(now >= sent && (now < answer.len() || !pair.server.has_unsent()));
            sent = now;
            pair.client().unwrap();
            let mut piece = Vec::new();
            // Nothing more is there.
            let _would_block = pair.client.reader().read_to_end(&mut piece);
            got.extend(piece);
        }
        for _ in 0..100 {
            pair.client().unwrap();
            // Nothing more is there.
            let _would_block = pair.client.reader().read_to_end(&mut got);
        }
        assert!(got == answer, "{} of {} at {room}", got.len(), answer.len());
        let mut end = End { from: &mut pair.up, to: &mut pair.down };
        pair.server.close(&mut end);
    }
}

#[test]
fn a_resumed_connection_is_who_it_was_and_what_is_exchanged_ends_that() {
    let ours = Authority::new("ours");
    let good = ours.issue(&params("anna", &[]));
    let options = Options { allow_invalid_certificates: true, ..Options::default() };
    for options in [options, Options::default()] {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let certificates =
                Certificates::new(Arc::into_inner(server(&ours, options, true, None)).unwrap());
            let client = client_of(&ours, Some(&good), &[version]);
            let mut kinds = Vec::new();
            for round in 0..3 {
                if round == 2 {
                    certificates
                        .exchange(Arc::into_inner(server(&ours, options, true, None)).unwrap());
                }
                let mut pair = Pair::new(&client, &certificates.now(), 1 << 20);
                let established = pair.shake_hands().unwrap();
                assert_eq!(established.subject.as_deref(), Some("CN=anna"));
                pair.client().unwrap();
                kinds.push(pair.client.handshake_kind().unwrap());
            }
            assert_eq!(kinds, [Full, Resumed, Full], "{version:?}");
        }
    }
}

#[test]
fn what_is_no_tls_ends_with_an_error_and_not_in_a_panic() {
    let ours = Authority::new("ours");
    let loaded = server(&ours, Options::default(), false, None);
    let mut state = 1_u64;
    for round in 0..300 {
        let mut pair = Pair::new(&client(&ours, None), &loaded, 1 << 20);
        pair.client().unwrap();
        let mut hello: Vec<u8> = pair.up.bytes.drain(..).collect();
        for _ in 0..=round % 8 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (state >> 33) as usize % hello.len();
            hello[at] ^= (state >> 20) as u8;
        }
        let mut end = End { from: &mut pair.up, to: &mut pair.down };
        // Either is fine.
        let _refused = pair.server.feed(&mut end, &hello);
        let _refused = pair.serve();
    }
}

/// A server's connection to another member, and that member's session, with two pipes between them.
fn between_members(
    from: &Loaded,
    to: &Arc<Loaded>,
    host: &str,
    room: usize,
) -> Result<(Option<String>, Vec<u8>), String> {
    let mut outgoing = crate::Outgoing::new(from, host)?;
    let mut server = Session::new(to).unwrap();
    let (mut up, mut down) = (Pipe::new(room), Pipe::new(room));
    let text: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
    let (mut sent, mut heard, mut established) = (0, Vec::new(), None);
    let would_block = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    for _ in 0..200_000 {
        let mut end = End { from: &mut down, to: &mut up };
        let blocked = |done: io::Result<usize>| match done {
            Ok(count) => Ok(count),
            Err(error) if would_block(&error) => Ok(0),
            Err(error) => Err(error.to_string()),
        };
        blocked(outgoing.shake_hands(&mut end).map(|()| 0))?;
        // By TLS 1.3 it is refused only now; what it hears beside that is no word.
        if !outgoing.is_shaking_hands() {
            assert_eq!(blocked(outgoing.read(&mut end, &mut [0; 9]))?, 0);
            if sent < text.len() {
                sent += blocked(outgoing.write(&mut end, &text[sent..]))?;
            }
        }
        let mut end = End { from: &mut up, to: &mut down };
        let (mut into, mut emptied) = ([0; 999], false);
        server.flush(&mut end).unwrap();
        while let Ok(arrived) = server.read(&mut end, &mut into, &mut emptied) {
            if let Arrived::Plain(count) = arrived {
                heard.extend(&into[..count]);
            }
        }
        established = established.or(server.established().map_err(|error| error.to_string())?);
        if heard.len() == text.len() && !outgoing.has_unsent() {
            assert_eq!(heard, text);
            assert!(outgoing.taken() > text.len() as u64);
            return Ok((established.expect("it has spoken").subject, heard));
        }
    }
    Err("never done".to_owned())
}

/// Bytes of a text as DER.
fn der(tag: u8, inner: &[u8]) -> Vec<u8> {
    [&[tag, inner.len() as u8][..], inner].concat()
}

#[test]
fn a_client_has_the_roles_that_its_certificate_holds() {
    let authority = Authority::new("authority");
    let own = authority.issue(&params("server", &["localhost"])).both();
    let pem = authority.pem();
    let request = Request { certificate_key: &own, authorities: Some(&pem), ..Request::default() };
    let loaded = Arc::new(load(&request).unwrap());
    let role = |role: &str, db: &str| {
        der(0x30, &[der(0x0c, role.as_bytes()), der(0x0c, db.as_bytes())].concat())
    };
    let two = der(0x31, &[role("read", "d"), role("dbAdmin", "e")].concat());
    let pairs = [("read", "d"), ("dbAdmin", "e")].map(|(role, db)| (role.into(), db.into()));
    for (extension, expected) in [
        (None, Ok(Vec::new())),
        (Some(two), Ok(pairs.to_vec())),
        (Some(b"\x31\x02\x30\x09".to_vec()), Err("the roles in the certificate's extension")),
    ] {
        let mut of_client = params("client", &[]);
        let extension = extension.map(|value| {
            rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 34601, 2, 1, 1], value)
        });
        of_client.custom_extensions.extend(extension);
        let shown = authority.issue(&of_client);
        let client = client(&authority, Some(&shown));
        let found = Pair::new(&client, &loaded, 1 << 20).shake_hands();
        match (found.map(|established| established.roles), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(text), Err(word)) => assert!(text.contains(word), "{text}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }
}

#[test]
fn members_are_known_by_what_is_said_of_their_certificates() {
    let ours = Authority::new("ours");
    let pem = ours.pem();
    let issue = |parts: &[(DnType, &str)], extension: Option<&str>| {
        let mut named = params("member", &["localhost"]);
        for (kind, value) in parts {
            named.distinguished_name.push(kind.clone(), *value);
        }
        let extension = extension.map(|text| {
            let value = der(0x0c, text.as_bytes());
            rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 34601, 2, 1, 2], value)
        });
        named.custom_extensions.extend(extension);
        ours.issue(&named).both()
    };
    let (o, ou) = (DnType::OrganizationName, DnType::OrganizationalUnitName);
    let plain = issue(&[(o.clone(), "Example")], None);
    let more = issue(&[(o.clone(), "Example"), (ou, "Members")], None);
    let other = issue(&[(o, "Other")], None);
    let marked = issue(&[], Some("set one"));
    let by_certificate = Options { takes_members: true, shows_itself: true, ..Options::default() };
    let member = |certificate_key, member_rule, other_member_rule| Request {
        certificate_key,
        authorities: Some(&pem),
        options: by_certificate,
        member_rule,
        other_member_rule,
        ..Request::default()
    };
    let example = MemberRule::attributes_of("O=Example").unwrap();
    let members = MemberRule::attributes_of("O=Example, OU=Members").unwrap();
    let of_other = MemberRule::organization_of("O=Other,CN=x").unwrap();
    let (one, two) =
        (MemberRule::Extension("set one".into()), MemberRule::Extension("set two".into()));
    for (own, rule, also, peer, is_member) in [
        (&plain, None, None, &plain, true),
        (&plain, None, None, &more, false),
        (&plain, None, None, &other, false),
        (&plain, None, Some(&of_other), &other, true),
        (&plain, Some(&example), None, &more, true),
        (&more, Some(&members), None, &plain, false),
        (&plain, Some(&example), None, &other, false),
        (&plain, Some(&example), Some(&of_other), &other, true),
        (&marked, Some(&one), None, &marked, true),
        (&marked, Some(&one), None, &plain, false),
    ] {
        let loaded = load(&member(own, rule, also)).unwrap();
        let peer_der = CertificateDer::from_pem_slice(peer).unwrap();
        assert_eq!(loaded.is_of_member(&peer_der), is_member, "{rule:?} {also:?}");
        // Who connects looks at the same of who answers.
        let answers = Request { options: Options::default(), ..member(peer, None, None) };
        let answers = Arc::new(load(&answers).unwrap());
        let spoken = between_members(&loaded, &answers, "localhost", 1 << 20);
        assert_eq!(spoken.is_ok(), is_member, "{rule:?} {also:?}");
    }
    // Who would not be let in by the others is told before.
    for (own, rule) in [(&plain, &members), (&marked, &two), (&plain, &one)] {
        let refused = load(&member(own, Some(rule), None)).unwrap_err();
        assert!(refused.text.contains("clusterAuthX509"), "{}", refused.text);
    }
}

#[test]
fn members_know_each_other_by_their_certificates() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let mut named = params("member", &["localhost", "127.0.0.1"]);
    named.serial_number = Some(SerialNumber::from(9));
    let own = ours.issue(&named).both();
    let as_client = ours.issue(&params("as a client", &[])).both();
    let foreign = theirs.issue(&params("foreign", &["localhost"])).both();
    let (pem, their_pem, list) = (ours.pem(), theirs.pem(), ours.revoke(9, 2031));
    let member = |certificate_key, authorities, options| Request {
        certificate_key,
        authorities,
        options,
        ..Request::default()
    };
    let (strict, any) =
        (Options::default(), Options { allow_invalid_certificates: true, ..Options::default() });
    let any_host = Options { allow_invalid_hostnames: true, ..Options::default() };
    let good = || member(&own, Some(&pem), strict);
    let of_client = Request { cluster_certificate_key: Some(&as_client), ..good() };
    let revoked = Request { revoked: Some(&list), ..good() };
    let mut of_set = params("member", &["localhost"]);
    of_set.distinguished_name.push(DnType::OrganizationalUnitName, "Members");
    let of_set = ours.issue(&of_set).both();
    let by_certificate = Options { takes_members: true, shows_itself: true, ..Options::default() };
    let shows_itself = || member(&of_set, Some(&pem), by_certificate);
    let nameless = load(&member(&own, Some(&pem), by_certificate)).unwrap_err();
    assert!(nameless.text.contains("none of O, OU and DC"), "{}", nameless.text);
    let other_roots = Request { cluster_authorities: Some(&their_pem), ..good() };
    for (from, to, host, expected) in [
        (good(), good(), "localhost", Ok("CN=member")),
        (good(), good(), "127.0.0.1", Ok("CN=member")),
        (of_client, good(), "localhost", Ok("CN=as a client")),
        (good(), good(), "elsewhere", Err("not valid for name")),
        (member(&own, Some(&pem), any_host), good(), "elsewhere", Ok("CN=member")),
        (good(), member(&foreign, Some(&pem), strict), "localhost", Err("UnknownIssuer")),
        (
            member(&own, Some(&pem), any_host),
            member(&foreign, Some(&pem), strict),
            "elsewhere",
            Err("UnknownIssuer"),
        ),
        (member(&own, Some(&pem), any), member(&foreign, Some(&pem), strict), "x", Ok("CN=member")),
        (member(&own, None, any), good(), "elsewhere", Ok("CN=member")),
        (member(&own, None, strict), good(), "localhost", Err("tlsCAFile")),
        (revoked, good(), "localhost", Err("Revoked")),
        (shows_itself(), shows_itself(), "localhost", Ok("OU=Members,CN=member")),
        (shows_itself(), good(), "localhost", Err("it is no member's")),
        (good(), shows_itself(), "localhost", Ok("CN=member")),
        // Whoever comes has to be of another authority.
        (good(), other_roots, "localhost", Err("UnknownCA")),
        (good(), good(), "no name", Err("is no name")),
    ] {
        let (from, to) = (load(&from).unwrap(), Arc::new(load(&to).unwrap()));
        for room in [1 << 20, 100] {
            match (between_members(&from, &to, host, room), expected) {
                (Ok((subject, _)), Ok(expected)) => assert_eq!(subject.as_deref(), Some(expected)),
                (Err(text), Err(word)) => assert!(text.contains(word), "{word}: {text}"),
                (found, expected) => {
                    panic!("{:?} instead of {expected:?}, {host}", found.map(|f| f.0))
                }
            }
        }
    }
}
