//! What the status port answers: the page, its data, the metrics.
//!
//! ```text
//!   /             the page
//!   /metrics      the figures in Prometheus' text form
//!   /api/now      operations, locks and those who wait, slow operations, warnings
//!   /api/collections   every collection with its sizes
//!   /api/history?from=MS&to=MS&step=SECONDS&names=a,b   seconds that were
//! ```
//!
//! Always true: only GET and HEAD are answered, and every command that is sent stands in this file.
//! A browser is answered with data only where the page itself asks: not where another site makes it
//! ask, even if that could not read the answer, for the asking costs the server work.

use crate::basic::{BasicCredentials, CHALLENGE, bearer_token};
use crate::redact::{self, ShowValues};
use crate::{Access, StatusSource, json};
use bson::{Bson, DateTime, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;

const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/dashboard.css");
const SCRIPT: &str = include_str!("page/dashboard.js");

/// Collections that are listed at most.
const MAX_COLLECTIONS: usize = 500;

/// Slow operations that are listed at most, the newest.
const MAX_SLOW: usize = 50;

const JSON: &str = "application/json; charset=utf-8";

/// Everything there is to answer with.
pub(crate) struct Site {
    names: Vec<String>,
    show_values: ShowValues,
    source: Arc<dyn StatusSource>,
}

impl Site {
    pub(crate) fn new(
        names: Vec<String>,
        show_values: ShowValues,
        source: Arc<dyn StatusSource>,
    ) -> Self {
        Self { names, show_values, source }
    }

    /// The answer to a request that came from `peer`. Waits for what the commands behind it wait
    /// for.
    pub(crate) fn answer<B>(
        &self,
        request: &Request<B>,
        peer: IpAddr,
        transport: Transport,
    ) -> Response<Full<Bytes>> {
        let mut response = self.answer_as(request, peer, transport);
        if transport == Transport::RequiredTls {
            let value = HeaderValue::from_static("max-age=31536000");
            response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, value);
        }
        response
    }

    fn answer_as<B>(
        &self,
        request: &Request<B>,
        peer: IpAddr,
        transport: Transport,
    ) -> Response<Full<Bytes>> {
        if !self.is_for_us(request.uri(), request.headers()) {
            let text = "This name is not one of this server's: use an address or localhost.\n";
            return plain(StatusCode::MISDIRECTED_REQUEST, text);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD.\n");
        }
        if request.uri().path() != "/" && is_of_another_site(request.headers()) {
            return plain(StatusCode::FORBIDDEN, "Another site's page may not ask this.\n");
        }
        let is_local = is_local(peer, request.headers());
        let is_private = is_local || transport != Transport::Plain;
        let user;
        let source = if self.is_by_token(request, peer, is_private) {
            &*self.source
        } else if self.source.requires_authentication() {
            user = match self.of_user(request.headers(), peer, is_private) {
                Ok(user) => user,
                Err(refusal) => return *refusal,
            };
            &*user
        } else {
            &*self.source
        };
        match request.uri().path() {
            "/" => page(source),
            "/metrics" => {
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                respond(StatusCode::OK, kind, source.metrics())
            }
            "/api/now" => as_json(&now(source, self.show_values.to(is_local))),
            "/api/collections" => as_json(&collections(source)),
            "/api/history" => history(source, request.uri().query().unwrap_or_default()),
            _ => plain(StatusCode::NOT_FOUND, "There is nothing here.\n"),
        }
    }

    /// Whether the figures are asked for by the token for them. It opens nothing else.
    fn is_by_token<B>(&self, request: &Request<B>, peer: IpAddr, is_private: bool) -> bool {
        is_private
            && request.uri().path() == "/metrics"
            && bearer_token(request.headers())
                .is_some_and(|token| self.source.admits_token(token, peer))
    }

    /// What the user may see whose name and password the request has; where it has none, it is asked for them.
    fn of_user(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
        is_private: bool,
    ) -> Result<Arc<dyn StatusSource>, Box<Response<Full<Bytes>>>> {
        if !is_private {
            let text = "Authentication is required, and over plain HTTP the password could be read on the network: use HTTPS, \
                        connect from the server's own machine, or through a tunnel to it.\n";
            return Err(Box::new(plain(StatusCode::FORBIDDEN, text)));
        }
        let ask = || {
            let text = "Authentication is required: a user of the database admin with the role clusterMonitor.\n";
            let mut response = plain(StatusCode::UNAUTHORIZED, text);
            let challenge = HeaderValue::from_static(CHALLENGE);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            Box::new(response)
        };
        let credentials = BasicCredentials::of(headers).ok_or_else(ask)?;
        match self.source.authenticate(credentials.user(), credentials.password(), peer) {
            Access::Granted(source) => Ok(source),
            Access::Unauthenticated => Err(ask()),
            Access::Forbidden => {
                let text = "This user may not see the server's figures: it lacks the role clusterMonitor.\n";
                Err(Box::new(plain(StatusCode::FORBIDDEN, text)))
            }
        }
    }

    /// Whether the host that is named is an address, `localhost`, or a name we were told.
    fn is_for_us(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let Some(host) = uri.host().or(named) else { return false };
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, _)) => address,
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|ours| ours.eq_ignore_ascii_case(name))
    }
}

fn page(source: &dyn StatusSource) -> Response<Full<Bytes>> {
    // Only the script that stands in this very answer may run on the page.
    let mut secret = [0; 16];
    source.entropy(&mut secret);
    let nonce = format!("{:032x}", u128::from_be_bytes(secret));
    let page =
        PAGE.replace("{{nonce}}", &nonce).replace("{{style}}", STYLE).replace("{{script}}", SCRIPT);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let mut response = respond(StatusCode::OK, "text/html; charset=utf-8", page);
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

fn admin(source: &dyn StatusSource, command: &Document) -> RawDocumentBuf {
    source.command("admin", command)
}

/// What goes on, with the values that clients sent or without.
fn now(source: &dyn StatusSource, values: bool) -> Value {
    let ask = |command: Document| json::object(&admin(source, &command));
    let list = |command: Document, name: &str| {
        let mut list = ask(command)[name].take();
        if !values {
            redact::hide_all(&mut list);
        }
        list
    };
    let log = admin(source, &doc! { "getLog": "global" });
    let mut slow = parsed(&log, |line| line.contains("\"id\":51803,"));
    if !values {
        redact::hide_lines(&mut slow);
    }
    json!({
        "build": ask(doc! { "buildInfo": 1 }),
        "status": ask(doc! { "serverStatus": 1, "none": 1, "opcounters": 1, "connections": 1 }),
        // An error where this server is in no set: no members.
        "set": ask(doc! { "replSetGetStatus": 1 }),
        "operations": list(doc! { "currentOp": 1, "$all": true }, "inprog"),
        "waiting": list(doc! { "showPendingLockRequests": 1 }, "requests"),
        "transactions": list(doc! { "showLiveTransactions": 1 }, "transactions"),
        "warnings": parsed(&admin(source, &doc! { "getLog": "startupWarnings" }), |_| true),
        "slow": slow,
    })
}

fn collections(source: &dyn StatusSource) -> Value {
    let mut all = Vec::new();
    let databases = admin(source, &doc! { "listDatabases": 1, "nameOnly": true });
    for database in documents(&databases, &["databases"]) {
        let Ok(database) = database.get_str("name") else { continue };
        let list = source.command(
            database,
            &doc! { "listCollections": 1, "nameOnly": true, "authorizedCollections": true, "filter": { "type": "collection" },
            "cursor": { "batchSize": MAX_COLLECTIONS as i32 } },
        );
        for collection in documents(&list, &["cursor", "firstBatch"]) {
            let Ok(name) = collection.get_str("name") else { continue };
            if all.len() == MAX_COLLECTIONS {
                return json!({ "collections": all, "more": true });
            }
            let stats = source.command(database, &doc! { "collStats": name });
            all.push(json::object(&stats));
        }
    }
    json!({ "collections": all, "more": false })
}

fn history(source: &dyn StatusSource, query: &str) -> Response<Full<Bytes>> {
    let mut command = doc! { "serverHistory": 1 };
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let value = match (name, value.parse::<i64>()) {
            ("from" | "to", Ok(ms)) => Bson::DateTime(DateTime::from_millis(ms)),
            ("step", Ok(seconds)) => seconds.into(),
            ("names", _) => Bson::Array(value.split(',').map(Into::into).collect()),
            _ => return plain(StatusCode::BAD_REQUEST, "from, to, step, names.\n"),
        };
        command.insert(name, value);
    }
    as_json(&json::object(&admin(source, &command)))
}

/// Whether a browser asks because a page of another site made it. Programs say neither.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let said = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let by_another = said("sec-fetch-site").is_some_and(|by| !matches!(by, "same-origin" | "none"));
    let host = said("host").unwrap_or_default();
    let from_another = said("origin").is_some_and(|origin| {
        origin.split_once("://").is_none_or(|(_, name)| !name.eq_ignore_ascii_case(host))
    });
    by_another || from_another
}

/// Whether the request came over TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    /// Not: who sees the bytes on the network can read them.
    Plain,
    /// It did, where plain requests are answered, too.
    OptionalTls,
    /// It did, where no plain request is answered.
    RequiredTls,
}

/// Whether somebody on this machine asks: not a proxy on it for somebody elsewhere.
fn is_local(peer: IpAddr, headers: &HeaderMap) -> bool {
    const OF_PROXIES: [&str; 4] = ["forwarded", "via", "x-forwarded-for", "x-real-ip"];
    let peer = peer.to_canonical();
    peer.is_loopback() && !OF_PROXIES.iter().any(|name| headers.contains_key(*name))
}

/// The lines of a `getLog` reply that are wanted, newest first, as they were logged.
fn parsed(reply: &RawDocument, wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    let Ok(lines) = reply.get_array("log") else { return Vec::new() };
    let texts = lines.into_iter().filter_map(|line| match line {
        Ok(RawBsonRef::String(text)) if wanted(text) => serde_json::from_str(text).ok(),
        _ => None,
    });
    let mut all: Vec<Value> = texts.collect();
    all.reverse();
    all.truncate(MAX_SLOW);
    all
}

/// The documents of an array somewhere inside a reply; none where it is an error.
fn documents<'a>(reply: &'a RawDocument, path: &[&str]) -> Vec<&'a RawDocument> {
    let (last, way) = match path.split_last() {
        Some((last, way)) => (*last, way),
        None => return Vec::new(),
    };
    let mut at = reply;
    for name in way {
        match at.get_document(name) {
            Ok(inner) => at = inner,
            Err(_) => return Vec::new(),
        }
    }
    let Ok(items) = at.get_array(last) else { return Vec::new() };
    let documents = items.into_iter().filter_map(|item| match item {
        Ok(RawBsonRef::Document(document)) => Some(document),
        _ => None,
    });
    documents.collect()
}

fn as_json(value: &Value) -> Response<Full<Bytes>> {
    respond(StatusCode::OK, JSON, value.to_string())
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", text.to_owned())
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// Answers each command with itself and what it was given, and remembers it.
    #[derive(Default)]
    struct Echo {
        asked: Mutex<Vec<String>>,
        asks_for_users: bool,
    }

    impl StatusSource for Echo {
        fn requires_authentication(&self) -> bool {
            self.asks_for_users
        }

        fn authenticate(&self, user: &str, password: &str, _: IpAddr) -> Access {
            match (user, password) {
                ("monitor", "pencil") => Access::Granted(Arc::new(Self::default())),
                ("other", "pencil") => Access::Forbidden,
                _ => Access::Unauthenticated,
            }
        }

        fn admits_token(&self, token: &str, _: IpAddr) -> bool {
            token == "token"
        }

        fn command(&self, database: &str, command: &Document) -> RawDocumentBuf {
            self.asked.lock().push(format!("{database} {command}"));
            let mut reply = command.clone();
            let line = r#"{"id":51803,"attr":{"ns":"a.b","command":{"find":"b","filter":{"card":"4711"}}}}"#;
            reply.extend(match command.keys().next().map(String::as_str) {
                Some("currentOp") => {
                    doc! { "inprog": [{ "ns": "a.b", "command": { "insert": "b", "card": "4711" } }] }
                }
                Some("showPendingLockRequests") => {
                    doc! { "requests": [{ "index": "card_1", "bounds": ["4711"] }] }
                }
                Some("showLiveTransactions") => {
                    doc! { "transactions": [{ "txnid": 1, "rowLocks": [{ "bounds": ["4711"] }] }] }
                }
                Some("getLog") if matches!(command.get_str("getLog"), Ok("global")) => doc! { "log": [line] },
                _ => Document::new(),
            });
            RawDocumentBuf::try_from(&reply).unwrap()
        }

        fn metrics(&self) -> String {
            "fern_up 1\n".to_owned()
        }

        fn entropy(&self, bytes: &mut [u8]) {
            bytes.fill(0xab);
        }
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn ask(method: Method, host: &str, path: &str) -> (Response<Full<Bytes>>, Vec<String>) {
        ask_with(method, path, &[("host", host)], HERE, ShowValues::Local)
    }

    fn ask_with(
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        peer: IpAddr,
        show: ShowValues,
    ) -> (Response<Full<Bytes>>, Vec<String>) {
        let echo = Arc::new(Echo::default());
        let source = Arc::clone(&echo) as Arc<dyn StatusSource>;
        let site = Site::new(vec!["db.example".to_owned()], show, source);
        let request = Request::builder().method(method).uri(path);
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = site.answer(&request.body(()).unwrap(), peer, Transport::Plain);
        let asked = echo.asked.lock().clone();
        (response, asked)
    }

    fn text(response: Response<Full<Bytes>>) -> String {
        use http_body_util::BodyExt;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = runtime.block_on(response.into_body().collect()).unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn security_finding_6_values_are_for_this_machine_only() {
        let elsewhere: IpAddr = "192.0.2.7".parse().unwrap();
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let host = ("host", "localhost");
        for (peer, headers, show, shown) in [
            (HERE, &[host][..], ShowValues::Local, true),
            (mapped, &[host], ShowValues::Local, true),
            (elsewhere, &[host], ShowValues::Local, false),
            (HERE, &[host, ("x-forwarded-for", "192.0.2.7")], ShowValues::Local, false),
            (HERE, &[host], ShowValues::Never, false),
            (elsewhere, &[host], ShowValues::Always, true),
        ] {
            let (response, _) = ask_with(Method::GET, "/api/now", headers, peer, show);
            let text = text(response);
            assert_eq!(text.matches("4711").count(), if shown { 4 } else { 0 }, "{peer}: {text}");
            assert!(text.contains("a.b") && text.contains("card_1"), "{text}");
        }
    }

    #[test]
    fn security_finding_7_other_sites_cannot_make_a_browser_ask() {
        let host = ("host", "localhost:28017");
        let paths = ["/api/now", "/api/collections", "/api/history?step=1", "/metrics"];
        for (more, expected) in [
            (("sec-fetch-site", "cross-site"), 403),
            (("sec-fetch-site", "same-site"), 403),
            (("origin", "https://evil.example"), 403),
            (("origin", "http://localhost:3000"), 403),
            (("origin", "null"), 403),
            (("sec-fetch-site", "same-origin"), 200),
            (("sec-fetch-site", "none"), 200),
            (("origin", "http://localhost:28017"), 200),
            (("user-agent", "Prometheus"), 200),
        ] {
            for path in paths {
                let headers = &[host, more];
                let (response, asked) =
                    ask_with(Method::GET, path, headers, HERE, ShowValues::Local);
                assert_eq!(response.status(), expected, "{path} {more:?}");
                assert!(expected == 200 || asked.is_empty(), "{path} {more:?}: {asked:?}");
            }
        }
        // A link to the page is nothing but a link.
        let link = &[host, ("sec-fetch-site", "cross-site")];
        assert_eq!(ask_with(Method::GET, "/", link, HERE, ShowValues::Local).0.status(), 200);
    }

    #[test]
    fn who_is_asked_for_a_password_is_answered_with_nothing_before() {
        let elsewhere: IpAddr = "192.0.2.7".parse().unwrap();
        let paths = ["/", "/metrics", "/api/now", "/api/collections", "/api/history?step=1"];
        let proxy = ("x-forwarded-for", "192.0.2.7");
        let right = &[("authorization", "Basic bW9uaXRvcjpwZW5jaWw=")][..];
        for (peer, transport, headers, expected) in [
            (elsewhere, Transport::OptionalTls, right, 200),
            (elsewhere, Transport::RequiredTls, right, 200),
            (elsewhere, Transport::OptionalTls, &[], 401),
            (HERE, Transport::Plain, &[][..], 401),
            (HERE, Transport::Plain, &[("authorization", "Basic bW9uaXRvcjp3cm9uZw==")], 401),
            (HERE, Transport::Plain, right, 200),
            (HERE, Transport::Plain, &[("authorization", "Basic b3RoZXI6cGVuY2ls")], 403),
            (
                HERE,
                Transport::Plain,
                &[("authorization", "Basic bW9uaXRvcjpwZW5jaWw="), proxy],
                403,
            ),
            (elsewhere, Transport::Plain, right, 403),
        ] {
            for path in paths {
                let echo = Arc::new(Echo { asks_for_users: true, ..Echo::default() });
                let source = Arc::clone(&echo) as Arc<dyn StatusSource>;
                let site = Site::new(Vec::new(), ShowValues::Local, source);
                let request = Request::builder().uri(path).header("host", "localhost");
                let request =
                    headers.iter().fold(request, |made, (name, value)| made.header(*name, *value));
                let response = site.answer(&request.body(()).unwrap(), peer, transport);
                let is_told = response.headers().contains_key(header::STRICT_TRANSPORT_SECURITY);
                assert_eq!(is_told, transport == Transport::RequiredTls);
                assert_eq!(response.status(), expected, "{path} {headers:?}");
                let is_asked = response.headers().contains_key(header::WWW_AUTHENTICATE);
                assert_eq!(is_asked, expected == 401, "{path} {headers:?}");
                assert!(echo.asked.lock().is_empty(), "{path} {headers:?}");
                assert!(expected == 200 || text(response).matches('\n').count() == 1);
            }
        }
    }

    #[test]
    fn the_token_opens_the_figures_and_nothing_else() {
        let elsewhere: IpAddr = "192.0.2.7".parse().unwrap();
        for (path, token, peer, transport, expected) in [
            ("/metrics", "token", HERE, Transport::Plain, 200),
            ("/metrics", "token", elsewhere, Transport::RequiredTls, 200),
            // It could be read on the network.
            ("/metrics", "token", elsewhere, Transport::Plain, 403),
            ("/metrics", "another", HERE, Transport::Plain, 401),
            ("/", "token", HERE, Transport::Plain, 401),
            ("/api/now", "token", HERE, Transport::Plain, 401),
            ("/api/collections", "token", HERE, Transport::Plain, 401),
        ] {
            let echo = Arc::new(Echo { asks_for_users: true, ..Echo::default() });
            let source = Arc::clone(&echo) as Arc<dyn StatusSource>;
            let site = Site::new(Vec::new(), ShowValues::Local, source);
            let request = Request::builder().uri(path).header("host", "localhost");
            let request = request.header("authorization", format!("Bearer {token}"));
            let response = site.answer(&request.body(()).unwrap(), peer, transport);
            assert_eq!(response.status(), expected, "{path} {token}");
            assert!(echo.asked.lock().is_empty(), "{path}");
        }
    }

    #[test]
    fn only_our_own_names_are_answered() {
        for (host, expected) in [
            ("127.0.0.1:28017", 200),
            ("[::1]:28017", 200),
            ("localhost", 200),
            ("DB.example:1", 200),
            ("evil.example:28017", 421),
            ("127.0.0.1.evil.example", 421),
            ("", 421),
        ] {
            assert_eq!(ask(Method::GET, host, "/metrics").0.status(), expected, "{host}");
        }
    }

    #[test]
    fn nothing_but_reading_is_answered() {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert_eq!(ask(method, "localhost", "/").0.status(), 405);
        }
        assert_eq!(ask(Method::HEAD, "localhost", "/").0.status(), 200);
        assert_eq!(ask(Method::GET, "localhost", "/api/shutdown").0.status(), 404);
    }

    #[test]
    fn the_page_runs_its_own_script_only() {
        let (response, asked) = ask(Method::GET, "localhost", "/");
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.contains(&format!("script-src 'nonce-{}'", "ab".repeat(16))), "{policy}");
        assert!(asked.is_empty());
        for text in [PAGE, STYLE, SCRIPT] {
            assert!(
                !text.contains("http://") && !text.contains("https://"),
                "nothing from outside"
            );
        }
    }

    #[test]
    fn history_is_asked_for_by_command() {
        let query = "/api/history?from=1000&to=9000&step=5&names=a.b,c";
        let (response, asked) = ask(Method::GET, "localhost", query);
        assert_eq!(response.status(), 200);
        assert_eq!(asked.len(), 1);
        for part in ["admin", "serverHistory", "\"step\": 5", "\"a.b\", \"c\""] {
            assert!(asked[0].contains(part), "{part} in {}", asked[0]);
        }
        for bad in ["from=x", "to=", "step=a", "drop=1"] {
            let (response, asked) = ask(Method::GET, "localhost", &format!("/api/history?{bad}"));
            assert_eq!((response.status(), asked.len()), (StatusCode::BAD_REQUEST, 0), "{bad}");
        }
    }
}
