//! The server that a task asks: how it is named, connected to, and shown.
//!
//! Always true: no text that is shown holds a password of the connection string.

use anyhow::{Result, anyhow, bail};
use bench::{Login, NAMED_TWICE};
use mongodb::options::ClientOptions;
use mongodb::sync::Client;

/// A client of the server of a connection string, and that string as it may be shown. Where none is given the
/// environment variable `FERN_URI` has one, which other users of the machine do not see. Where a user is named beside it
/// the password is asked for.
pub(crate) fn connect(given: Option<&str>, login: &Login) -> Result<(Client, String)> {
    let (options, shown_uri) = parse(given, login)?;
    let client = Client::with_options(options).map_err(|error| anyhow!("{shown_uri}: {error}"))?;
    Ok((client, shown_uri))
}

/// What a connection string and a user beside it say, and that string as it may be shown.
pub(crate) fn parse(given: Option<&str>, login: &Login) -> Result<(ClientOptions, String)> {
    let uri = match given {
        Some(uri) => uri.to_owned(),
        None => std::env::var("FERN_URI").unwrap_or_else(|_| DEFAULT_URI.to_owned()),
    };
    let shown_uri = without_secrets(&uri);
    // The driver's own words may repeat what it could not read.
    let refused = |error: mongodb::error::Error| {
        let reason = error.to_string().replace(&uri, &shown_uri);
        if reason.contains(&secrets_of(&uri)) {
            return anyhow!("{shown_uri}: it cannot be read as a connection string");
        }
        anyhow!("{shown_uri}: {reason}")
    };
    let mut options = ClientOptions::parse(&uri).run().map_err(refused)?;
    if login.username.is_some() && options.credential.is_some() {
        bail!(NAMED_TWICE);
    }
    if let Some(credential) = login.ask()? {
        options.credential = Some(credential);
    }
    Ok((options, shown_uri))
}

/// The server where nobody names one.
const DEFAULT_URI: &str = "mongodb://127.0.0.1:27017/";

/// The password within a connection string; a text that nothing contains where it has none.
fn secrets_of(uri: &str) -> String {
    let user_info = user_info(uri).and_then(|(_, user_info, _)| user_info.split_once(':'));
    match user_info {
        Some((_, password)) if !password.is_empty() => password.to_owned(),
        _ => "\0".to_owned(),
    }
}

/// A connection string as what is before the user, the user with his password, and the rest.
fn user_info(uri: &str) -> Option<(&str, &str, &str)> {
    let start = uri.find("://").map_or(0, |at| at + 3);
    // A password that is not escaped as it should be may hold a slash: all before the last '@' of
    // what is not yet options is taken for it.
    let options = uri[start..].find('?').map_or(uri.len(), |at| start + at);
    let at = start + uri[start..options].rfind('@')?;
    Some((&uri[..start], &uri[start..at], &uri[at..]))
}

/// The connection string for the screen and for errors: without the password, and without the
/// options that may hold one.
fn without_secrets(uri: &str) -> String {
    const OPEN: [&str; 12] = [
        "appname",
        "authmechanism",
        "authsource",
        "connecttimeoutms",
        "directconnection",
        "loadbalanced",
        "readpreference",
        "replicaset",
        "serverselectiontimeoutms",
        "sockettimeoutms",
        "ssl",
        "tls",
    ];
    let shown = match user_info(uri) {
        Some((scheme, user_info, rest)) => match user_info.split_once(':') {
            Some((user, _)) => format!("{scheme}{user}:***{rest}"),
            None => uri.to_owned(),
        },
        None => uri.to_owned(),
    };
    let Some((base, options)) = shown.split_once('?') else { return shown };
    let options = options.split('&').map(|option| match option.split_once('=') {
        Some((name, _)) if !OPEN.contains(&name.to_ascii_lowercase().as_str()) => {
            format!("{name}=***")
        }
        _ => option.to_owned(),
    });
    format!("{base}?{}", options.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::{connect, without_secrets};
    use bench::Login;

    #[test]
    fn security_finding_19_passwords_are_not_shown() {
        for (uri, expected) in [
            ("mongodb://127.0.0.1:27017/", "mongodb://127.0.0.1:27017/"),
            ("mongodb://me@host/", "mongodb://me@host/"),
            ("mongodb://me:secret@host:1,other:2/db", "mongodb://me:***@host:1,other:2/db"),
            ("mongodb+srv://me:se%40cret@host", "mongodb+srv://me:***@host"),
            ("mongodb://me:se/cr@et@host/", "mongodb://me:***@host/"),
            ("me:secret@host", "me:***@host"),
            (
                "mongodb://h/?tls=true&tlsCertificateKeyFilePassword=secret&appName=x",
                "mongodb://h/?tls=true&tlsCertificateKeyFilePassword=***&appName=x",
            ),
            (
                "mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:secret",
                "mongodb://h/?authMechanismProperties=***",
            ),
        ] {
            assert_eq!(without_secrets(uri), expected);
        }
        // Nor where the string is refused.
        for uri in ["mongodb://me:secret@", "mongodb://me:se cret%@h:x/", "x://me:secret@h"] {
            let error = connect(Some(uri), &Login::default()).map(|_| ()).unwrap_err();
            let error = format!("{error:?}");
            assert!(!error.contains("secret") && !error.contains("se cret"), "{error}");
        }
    }
}
