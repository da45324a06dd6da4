//! The private key of a file, under a password or not.
//!
//! Always true: what a password protected is wiped once the key is made of it.

use crate::pem_files::{FileError, TlsFile};
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// What a line of a key says that is encrypted as files were before PKCS #8.
const OLD_ENCRYPTION: &[u8] = b"Proc-Type: 4,ENCRYPTED";
/// How a key under a password begins.
const UNDER_PASSWORD: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
/// And how it ends.
const END_UNDER_PASSWORD: &[u8] = b"-----END ENCRYPTED PRIVATE KEY-----";

/// Refuses a file that cannot be read as a whole because of how its key is encrypted.
pub(crate) fn check_encryption(file: TlsFile, pem: &[u8]) -> Result<(), FileError> {
    if contains(pem, OLD_ENCRYPTION) {
        return Err(FileError::new(
            file,
            "its key is encrypted in the old PEM form (Proc-Type: 4,ENCRYPTED), which is not supported: write it anew \
             with openssl pkcs8 -topk8 -v2 aes-256-cbc",
        ));
    }
    Ok(())
}

/// The first key of a file.
pub(crate) fn read(
    file: TlsFile,
    pem: &[u8],
    password: Option<&str>,
) -> Result<PrivateKeyDer<'static>, FileError> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(_) if password.is_some() && !contains(pem, UNDER_PASSWORD) => Err(FileError::new(
            file,
            format!(
                "a password is given for it, and its key is not encrypted: leave {} out",
                file.password_option()
            ),
        )),
        Ok(key) => Ok(key),
        Err(_) if contains(pem, UNDER_PASSWORD) => decrypt(file, pem, password),
        Err(_) => Err(FileError::new(
            file,
            "it holds no private key: put the key behind the certificate in the same file (cat server.crt server.key)",
        )),
    }
}

fn decrypt(
    file: TlsFile,
    pem: &[u8],
    password: Option<&str>,
) -> Result<PrivateKeyDer<'static>, FileError> {
    let file_error = |text: String| FileError::new(file, text);
    let Some(password) = password else {
        let option = file.password_option();
        return Err(file_error(format!("its key is encrypted: say the password with {option}")));
    };
    let section = between(pem, UNDER_PASSWORD, END_UNDER_PASSWORD);
    let document = section.and_then(|section| SecretDocument::from_pem(section).ok());
    let (_, document) =
        document.ok_or_else(|| file_error("its encrypted key is cut off or no PEM".to_owned()))?;
    let info = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes())
        .map_err(|_| file_error("its encrypted key is not PKCS #8".to_owned()))?;
    if info.encryption_algorithm.pbes2().is_none() {
        return Err(file_error(
            "its key is encrypted by an algorithm that is not supported: write it anew with openssl pkcs8 -topk8 -v2 \
             aes-256-cbc"
                .to_owned(),
        ));
    }
    let plain = info.decrypt(password).map_err(|error| match error {
        pkcs8::Error::EncryptedPrivateKey(pkcs8::pkcs5::Error::DecryptFailed) => {
            file_error("its key cannot be decrypted: the password is another".to_owned())
        }
        other => file_error(format!(
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
