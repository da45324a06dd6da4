//! The subject of a certificate as text, by RFC 2253: what a user of `$external` is called.
//!
//! Always true: the text is byte for byte what `openssl x509 -subject -nameopt RFC2253` prints, which is where
//! operators take the names of users from; two subjects that differ in a value have different texts.

use std::fmt::Write;
use x509_parser::der_parser::asn1_rs::{Any, Tag, ToDer};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The short names of attribute types; others are written as their OID.
const NAMES: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.20", "telephoneNumber"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.45", "x500UniqueIdentifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.72", "role"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("1.2.840.113549.1.9.2", "unstructuredName"),
    ("1.2.840.113549.1.9.8", "unstructuredAddress"),
    ("1.3.6.1.4.1.311.60.2.1.1", "jurisdictionL"),
    ("1.3.6.1.4.1.311.60.2.1.2", "jurisdictionST"),
    ("1.3.6.1.4.1.311.60.2.1.3", "jurisdictionC"),
];

/// The subject of a certificate; `None` where the bytes are no DER certificate.
pub fn subject(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(subject_of(&certificate))
}

/// The OID of a type of attributes, of its short name or in digits.
pub(crate) fn oid_of(name: &str) -> Option<String> {
    let known = NAMES.iter().find(|(_, short)| short.eq_ignore_ascii_case(name));
    if let Some((oid, _)) = known {
        return Some((*oid).to_owned());
    }
    let is_oid = name.contains('.')
        && name.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    is_oid.then(|| name.to_owned())
}

/// The attributes of a subject, each with the OID of its type: texts as UTF-8, whatever they are encoded as.
pub(crate) fn attributes(certificate: &X509Certificate<'_>) -> Vec<(String, Vec<u8>)> {
    let all = certificate.subject().iter_attributes();
    all.map(|attribute| {
        let value = attribute.attr_value();
        let text = characters(value).map(String::into_bytes);
        (attribute.attr_type().to_id_string(), text.unwrap_or_else(|| value.data.to_vec()))
    })
    .collect()
}

/// The subject: its RDNs in reverse order, as RFC 2253 has them.
pub(crate) fn subject_of(certificate: &X509Certificate<'_>) -> String {
    let mut text = String::new();
    let rdns: Vec<_> = certificate.subject().iter().collect();
    for (at, rdn) in rdns.iter().rev().enumerate() {
        let attributes: Vec<_> = rdn.iter().collect();
        for (within, attribute) in attributes.iter().rev().enumerate() {
            match (at, within) {
                (0, 0) => {}
                (_, 0) => text.push(','),
                _ => text.push('+'),
            }
            let oid = attribute.attr_type().to_id_string();
            let name = NAMES.iter().find(|(id, _)| *id == oid).map(|(_, name)| *name);
            text.push_str(name.unwrap_or(&oid));
            text.push('=');
            let value = name.and_then(|_| characters(attribute.attr_value()));
            match value {
                Some(value) => escape(&value, &mut text),
                None => dump(attribute.attr_value(), &mut text),
            }
        }
    }
    text
}

/// The characters of a value; none where it is no text.
fn characters(value: &Any<'_>) -> Option<String> {
    let bytes = value.data;
    match value.tag() {
        Tag::Utf8String => String::from_utf8(bytes.to_vec()).ok(),
        Tag::NumericString
        | Tag::PrintableString
        | Tag::T61String
        | Tag::Ia5String
        | Tag::VisibleString
        | Tag::UtcTime
        | Tag::GeneralizedTime => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Tag::BmpString => {
            let (pairs, rest) = bytes.as_chunks::<2>();
            let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
            let text: Result<String, _> = char::decode_utf16(units).collect();
            text.ok().filter(|_| rest.is_empty())
        }
        Tag::UniversalString => {
            let (fours, rest) = bytes.as_chunks::<4>();
            let text = fours.iter().map(|four| char::from_u32(u32::from_be_bytes(*four))).collect();
            Option::filter(text, |_| rest.is_empty())
        }
        _ => None,
    }
}

fn escape(value: &str, text: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, character) in value.chars().enumerate() {
        match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => {
                text.push('\\');
                text.push(character);
            }
            '#' if at == 0 => text.push_str("\\#"),
            ' ' if at == 0 || at == last => text.push_str("\\ "),
            ' '..='~' => text.push(character),
            _ => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    // A `String` takes everything.
                    let _taken = write!(text, "\\{byte:02X}");
                }
            }
        }
    }
}

/// What is no text, or has no name: the value as it is encoded, in hexadecimal digits.
fn dump(value: &Any<'_>, text: &mut String) {
    text.push('#');
    for byte in value.to_der_vec().unwrap_or_default() {
        // A `String` takes everything.
        let _taken = write!(text, "{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use super::subject;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    /// Made with `openssl req -x509` and `openssl x509 -subject -nameopt RFC2253`: a line with the subject, then the
    /// certificate.
    const GOLDEN: &str = include_str!("subject/golden.txt");

    #[test]
    fn subjects_are_those_of_openssl() {
        let mut seen = 0;
        for case in GOLDEN.split("subject=").skip(1) {
            let (expected, pem) = case.split_once('\n').unwrap();
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            assert_eq!(subject(&der).as_deref(), Some(expected));
            seen += 1;
        }
        assert_eq!(seen, 18);
        assert_eq!(subject(b"nothing"), None);
    }
}
