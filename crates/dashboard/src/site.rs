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

use crate::{Source, json};
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
    source: Arc<dyn Source>,
}

impl Site {
    pub(crate) fn new(names: Vec<String>, source: Arc<dyn Source>) -> Self {
        Self { names, source }
    }

    /// The answer to a request. Waits for what the commands behind it wait for.
    pub(crate) fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !self.is_for_us(request.uri(), request.headers()) {
            let text = "This name is not one of this server's: use an address or localhost.\n";
            return plain(StatusCode::MISDIRECTED_REQUEST, text);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD.\n");
        }
        match request.uri().path() {
            "/" => self.page(),
            "/metrics" => {
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                respond(StatusCode::OK, kind, self.source.metrics())
            }
            "/api/now" => as_json(&self.now()),
            "/api/collections" => as_json(&self.collections()),
            "/api/history" => self.history(request.uri().query().unwrap_or_default()),
            _ => plain(StatusCode::NOT_FOUND, "There is nothing here.\n"),
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

    fn page(&self) -> Response<Full<Bytes>> {
        // Only the script that stands in this very answer may run on the page.
        let mut secret = [0; 16];
        self.source.entropy(&mut secret);
        let nonce = format!("{:032x}", u128::from_be_bytes(secret));
        let page = PAGE
            .replace("{{nonce}}", &nonce)
            .replace("{{style}}", STYLE)
            .replace("{{script}}", SCRIPT);
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

    fn admin(&self, command: &Document) -> RawDocumentBuf {
        self.source.command("admin", command)
    }

    fn now(&self) -> Value {
        let ask = |command: Document| json::object(&self.admin(&command));
        let log = self.admin(&doc! { "getLog": "global" });
        json!({
            "build": ask(doc! { "buildInfo": 1 }),
            "status": ask(doc! { "serverStatus": 1, "none": 1, "opcounters": 1, "connections": 1 }),
            "operations": ask(doc! { "currentOp": 1, "$all": true })["inprog"],
            "waiting": ask(doc! { "showPendingLockRequests": 1 })["requests"],
            "transactions": ask(doc! { "showLiveTransactions": 1 })["transactions"],
            "warnings": parsed(&self.admin(&doc! { "getLog": "startupWarnings" }), |_| true),
            "slow": parsed(&log, |line| line.contains("\"id\":51803,")),
        })
    }

    fn collections(&self) -> Value {
        let mut all = Vec::new();
        let databases = self.admin(&doc! { "listDatabases": 1, "nameOnly": true });
        for database in documents(&databases, &["databases"]) {
            let Ok(database) = database.get_str("name") else { continue };
            let list = self.source.command(
                database,
                &doc! { "listCollections": 1, "nameOnly": true, "filter": { "type": "collection" },
                "cursor": { "batchSize": MAX_COLLECTIONS as i32 } },
            );
            for collection in documents(&list, &["cursor", "firstBatch"]) {
                let Ok(name) = collection.get_str("name") else { continue };
                if all.len() == MAX_COLLECTIONS {
                    return json!({ "collections": all, "more": true });
                }
                let stats = self.source.command(database, &doc! { "collStats": name });
                all.push(json::object(&stats));
            }
        }
        json!({ "collections": all, "more": false })
    }

    fn history(&self, query: &str) -> Response<Full<Bytes>> {
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
        as_json(&json::object(&self.admin(&command)))
    }
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

    /// Answers each command with itself, and remembers it.
    #[derive(Default)]
    struct Echo(Mutex<Vec<String>>);

    impl Source for Echo {
        fn command(&self, database: &str, command: &Document) -> RawDocumentBuf {
            self.0.lock().push(format!("{database} {command}"));
            RawDocumentBuf::try_from(command).unwrap()
        }

        fn metrics(&self) -> String {
            "fern_up 1\n".to_owned()
        }

        fn entropy(&self, bytes: &mut [u8]) {
            bytes.fill(0xab);
        }
    }

    fn ask(method: Method, host: &str, path: &str) -> (Response<Full<Bytes>>, Vec<String>) {
        let echo = Arc::new(Echo::default());
        let site = Site::new(vec!["db.example".to_owned()], Arc::clone(&echo) as Arc<dyn Source>);
        let request = Request::builder().method(method).uri(path).header(header::HOST, host);
        let response = site.answer(&request.body(()).unwrap());
        let asked = echo.0.lock().clone();
        (response, asked)
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
