//! The private key of a file, under a password or not.
//!
//! Always true: what a password protected is wiped once the key is made of it.

use crate::material::{Flaw, Part};
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// What a line of a key says that is encrypted as files were before PKCS #8.
const OLD_ENCRYPTION: &[u8] = b"Proc-Type: 4,ENCRYPTED";
/// How a key under a password begins.
const UNDER_PASSWORD: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
/// And how it ends.
const END_UNDER_PASSWORD: &[u8] = b"-----END ENCRYPTED PRIVATE KEY-----";

fn flaw(text: impl Into<String>) -> Flaw {
    Flaw::new(Part::CertificateKey, text)
}

/// Refuses a file that cannot be read as a whole because of how its key is encrypted.
pub(crate) fn check_encryption(pem: &[u8]) -> Result<(), Flaw> {
    if contains(pem, OLD_ENCRYPTION) {
        return Err(flaw(
            "its key is encrypted in the old PEM form (Proc-Type: 4,ENCRYPTED), which is not supported: write it anew \
             with openssl pkcs8 -topk8 -v2 aes-256-cbc",
        ));
    }
    Ok(())
}

/// The first key of a file.
pub(crate) fn read(pem: &[u8], password: Option<&str>) -> Result<PrivateKeyDer<'static>, Flaw> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(_) if password.is_some() && !contains(pem, UNDER_PASSWORD) => Err(flaw(
            "a password is given for it, and its key is not encrypted: leave tlsCertificateKeyFilePassword out",
        )),
        Ok(key) => Ok(key),
        Err(_) if contains(pem, UNDER_PASSWORD) => decrypt(pem, password),
        Err(_) => Err(flaw(
            "it holds no private key: put the key behind the certificate in the same file (cat server.crt server.key)",
        )),
    }
}

fn decrypt(pem: &[u8], password: Option<&str>) -> Result<PrivateKeyDer<'static>, Flaw> {
    let Some(password) = password else {
        return Err(flaw(
            "its key is encrypted: say the password with tlsCertificateKeyFilePassword",
        ));
    };
    let section = between(pem, UNDER_PASSWORD, END_UNDER_PASSWORD);
    let document = section.and_then(|section| SecretDocument::from_pem(section).ok());
    let (_, document) = document.ok_or_else(|| flaw("its encrypted key is cut off or no PEM"))?;
    let info = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes())
        .map_err(|_| flaw("its encrypted key is not PKCS #8"))?;
    if info.encryption_algorithm.pbes2().is_none() {
        return Err(flaw(
            "its key is encrypted by an algorithm that is not supported: write it anew with openssl pkcs8 -topk8 -v2 \
             aes-256-cbc",
        ));
    }
    let plain = info.decrypt(password).map_err(|error| match error {
        pkcs8::Error::EncryptedPrivateKey(pkcs8::pkcs5::Error::DecryptFailed) => {
            flaw("its key cannot be decrypted: the password is another")
        }
        other => flaw(format!(
            "its key cannot be decrypted ({other}): the password is another, or the algorithm is not supported"
        )),
    })?;
    Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(plain.as_bytes().to_vec())))
}

/// The text from the first of `begin` to the first of `end` behind it, both included.
fn between<'a>(pem: &'a [u8], begin: &[u8], end: &[u8]) -> Option<&'a str> {
    let find =
        |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).position(|window| window == text);
    let section = &pem[find(pem, begin)?..];
    let length = find(section, end)? + end.len();
    std::str::from_utf8(&section[..length]).ok()
}

fn contains(pem: &[u8], text: &[u8]) -> bool {
    pem.windows(text.len()).any(|window| window == text)
}
