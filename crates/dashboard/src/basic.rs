//! HTTP Basic: the user and the password that a browser asks for, and Prometheus is told (RFC 7617); or a token
//! (RFC 6750).
//!
//! Always true: what is not understood names nobody.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{self, HeaderMap};
use zeroize::Zeroizing;

/// What a client is asked with.
pub(crate) const CHALLENGE: &str = "Basic realm=\"FernDB\", charset=\"UTF-8\"";

/// A user and a password.
pub(crate) struct BasicCredentials {
    text: Zeroizing<String>,
    colon: usize,
}

impl BasicCredentials {
    /// Those of a request.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, encoded) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let bytes = Zeroizing::new(STANDARD.decode(encoded.trim()).ok()?);
        let text = Zeroizing::new(std::str::from_utf8(&bytes).ok()?.to_owned());
        let colon = text.find(':')?;
        Some(Self { text, colon })
    }

    pub(crate) fn user(&self) -> &str {
        &self.text[..self.colon]
    }

    pub(crate) fn password(&self) -> &str {
        &self.text[self.colon + 1..]
    }
}

/// The token of a request.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::{BasicCredentials, bearer_token};
    use hyper::header::{self, HeaderMap, HeaderValue};

    #[test]
    fn a_user_and_a_password_are_read_and_nothing_else() {
        for (value, expected) in [
            ("Basic dXNlcjpwZW5jaWw=", Some(("user", "pencil"))),
            ("basic dTphOmI=", Some(("u", "a:b"))),
            ("Basic OnA=", Some(("", "p"))),
            ("Basic dXNlcg==", None),
            ("Basic !", None),
            ("Basic", None),
            ("Bearer dXNlcjpwZW5jaWw=", None),
            ("Basic //46", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            let credentials = BasicCredentials::of(&headers);
            let credentials = credentials
                .as_ref()
                .map(|credentials| (credentials.user(), credentials.password()));
            assert_eq!(credentials, expected, "{value}");
        }
        assert!(BasicCredentials::of(&HeaderMap::new()).is_none());
    }

    #[test]
    fn a_token_is_read_and_nothing_else() {
        for (value, expected) in [
            ("Bearer abc=", Some("abc=")),
            ("bearer  abc", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            assert_eq!(bearer_token(&headers), expected, "{value}");
        }
    }
}
