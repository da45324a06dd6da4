//! What monitors read: the history, the newest sample, Prometheus' page.

use super::Client;
use crate::diagnostics::sampler::Sampler;
use bson::{Bson, DateTime, doc};
use history::{History, Number};
use std::path::Path;
use std::sync::Arc;

const START: i64 = 1_800_000_000_000;

/// A host that keeps a history.
struct Keeping(Arc<History>);

impl serverstate::Host for Keeping {
    fn log(&self, _event: &serverstate::LogEvent<'_>) {}

    fn recent_log(&self, _name: &str) -> Option<(Vec<String>, u64)> {
        None
    }

    fn rotate_log(&self) -> Result<(), String> {
        Ok(())
    }

    fn shut_down(&self, _timeout: std::time::Duration) {}

    fn network(&self) -> serverstate::Network {
        serverstate::Network::default()
    }

    fn history(&self) -> Option<Arc<History>> {
        Some(Arc::clone(&self.0))
    }
}

fn keeping() -> (Client, Arc<History>) {
    let os = os::sim::SimOs::new(1).os();
    let history = Arc::new(History::open(&os, Path::new("/data")).unwrap());
    (Client::with_host(Arc::new(Keeping(Arc::clone(&history)))), history)
}

#[test]
fn history_is_told_by_name_and_time() {
    let (client, history) = keeping();
    for second in 0..100 {
        let row = [("a.b".to_owned(), Number::Whole(second)), ("c".to_owned(), Number::Real(0.5))];
        history.add(START + second * 1000, &row).unwrap();
    }
    let date = |second: i64| Bson::DateTime(DateTime::from_millis(START + second * 1000));
    let names = client.ok("admin", doc! { "serverHistory": 1 });
    assert_eq!(names.get_array("names").unwrap(), &[Bson::from("a.b"), Bson::from("c")]);
    assert_eq!(names.get("newest"), Some(&date(99)));
    let told = client.ok(
        "admin",
        doc! { "serverHistory": 1, "from": date(58), "to": date(60), "names": ["a.b", "no", "a.b"] },
    );
    assert_eq!(told.get_array("times").unwrap(), &[date(58), date(59), date(60)]);
    let series = told.get_document("series").unwrap();
    assert_eq!(*series, doc! { "a.b": [58.0, 59.0, 60.0], "no": [null, null, null] });
    let coarse = client.ok(
        "admin",
        doc! { "serverHistory": 1, "from": date(0), "to": date(99), "step": 50, "names": ["c"] },
    );
    assert_eq!(coarse.get_array("times").unwrap().len(), 2);
    let before = DateTime::from_millis(i64::MIN);
    let none = client.ok("admin", doc! { "serverHistory": 1, "to": before, "names": ["c"] });
    assert!(none.get_array("times").unwrap().is_empty(), "the beginning of time is no overflow");
}

#[test]
fn what_cannot_be_told_is_refused() {
    let (client, _history) = keeping();
    for (command, code) in [
        (doc! { "serverHistory": 1, "step": 0, "names": ["a"] }, 2),
        (doc! { "serverHistory": 1, "names": [1] }, 2),
        (doc! { "serverHistory": 1, "names": vec!["a"; 3], "until": 1 }, 40415),
        (doc! { "serverHistory": 1, "from": 5, "names": ["a"] }, 14),
    ] {
        assert_eq!(
            client.run("admin", command.clone()).get_i32("code").ok(),
            Some(code),
            "{command}"
        );
    }
    let nowhere = Client::new().run("admin", doc! { "serverHistory": 1 });
    assert_eq!(nowhere.get_i32("code").ok(), Some(20));
    assert_eq!(client.run("test", doc! { "serverHistory": 1 }).get_i32("code").ok(), Some(13));
}

#[test]
fn a_row_has_the_figures_and_counts_as_no_command() {
    let client = Client::new();
    let mut sampler = Sampler::new(&client.service);
    client.ok("test", doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }] });
    client.ok("test", doc! { "find": "c" });
    let row = sampler.take();
    let number = |row: &[(String, Number)], name: &str| {
        let found = row.iter().find(|(other, _)| other == name);
        found.unwrap_or_else(|| panic!("{name}")).1
    };
    assert_eq!(number(&row, "opcounters.insert"), Number::Whole(2));
    assert_eq!(number(&row, "metrics.commands.insert.total"), Number::Whole(1));
    assert_eq!(number(&row, "latency.writes.count"), Number::Whole(1));
    assert_eq!(number(&row, "engine.TXN_COMMIT"), number(&sampler.take(), "engine.TXN_COMMIT"));
    let again = sampler.take();
    assert_eq!(number(&again, "latency.writes.count"), Number::Whole(0));
    assert_eq!(number(&again, "opcounters.command"), number(&row, "opcounters.command"));
    let names: std::collections::BTreeSet<_> = row.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), row.len(), "each name once");
}

#[test]
fn the_newest_sample_has_mongodbs_shape() {
    let client = Client::new();
    let reply = client.ok("admin", doc! { "getDiagnosticData": 1 });
    let data = reply.get_document("data").unwrap();
    assert!(data.get_datetime("start").is_ok() && data.get_datetime("end").is_ok());
    let status = data.get_document("serverStatus").unwrap();
    for section in ["opcounters", "connections", "ft", "mem"] {
        assert!(status.get_document(section).is_ok(), "{section}");
    }
    assert!(status.get_datetime("start").is_ok());
}

#[test]
fn latencies_come_with_histograms_where_asked_for() {
    let client = Client::new();
    client.ok("test", doc! { "insert": "c", "documents": [{}] });
    let plain = client.ok("admin", doc! { "serverStatus": 1 });
    let writes = |reply: &bson::Document| {
        reply.get_document("opLatencies").unwrap().get_document("writes").unwrap().clone()
    };
    assert_eq!(writes(&plain).get_i64("ops").ok(), Some(1));
    assert!(!writes(&plain).contains_key("histogram"));
    let asked = doc! { "serverStatus": 1, "opLatencies": { "histograms": true } };
    let histogram = writes(&client.ok("admin", asked)).get_array("histogram").unwrap().clone();
    assert_eq!(histogram.len(), 1);
    assert_eq!(histogram[0].as_document().unwrap().get_i64("count").ok(), Some(1));
}

#[test]
fn prometheus_page_tells_each_family_once() {
    let client = Client::new();
    client.ok("test", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    let page = client.service.metrics_page();
    let mut families = std::collections::BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("# TYPE ")) {
        assert!(families.insert(line), "{line}");
    }
    assert!(families.len() > 80, "{}", families.len());
    for line in [
        "fern_operations_total{type=\"insert\"} 1",
        "fern_command_duration_seconds_count{class=\"writes\"} 1",
        "fern_collection_operations_total{ns=\"test.c\",type=\"insert\"} 1",
        "# TYPE fern_wal_sync_seconds histogram",
        "# TYPE fern_cache_hits_total counter",
        "fern_engine_commits_total ",
    ] {
        assert!(page.contains(line), "{line}");
    }
}
