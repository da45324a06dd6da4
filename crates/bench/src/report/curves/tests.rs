//! What a curve is shown as, and what it is judged to be.

use super::*;
use crate::figures::{Latency, ServerFigures, Steadiness};
use crate::phase::Point;
use std::collections::BTreeMap;

fn phase(at: u64, operation: &'static str, cpu_us: f64, threads: u64) -> PhaseFigures {
    PhaseFigures {
        phase: format!("connections {at}: {operation}"),
        unit: "operations",
        clients: at as usize,
        shown: true,
        seconds: 1.0,
        units: 1_000,
        units_per_s: 1_000.0,
        latency: Latency {
            operations: 1_000,
            units: 1_000,
            mean_us: 90.0,
            p50_us: 80,
            p95_us: 100,
            p99_us: 1_200 * at,
            max_us: 2_000,
        },
        operations: BTreeMap::new(),
        steadiness: Steadiness::default(),
        cpu_us_per_unit: Some(cpu_us),
        read_bytes_per_unit: None,
        written_bytes_per_unit: None,
        cache_misses_per_unit: None,
        resident_bytes: None,
        disk_bytes: None,
        disk_bytes_per_unit: None,
        checkpoints: None,
        threads: Some(threads),
        resident_bytes_per_unit: Some(4_096.4),
        point: Some(Point {
            curve: "connections",
            operation,
            at,
            allowed: Allowed::Logarithm,
            is_held: operation == "open one",
        }),
    }
}

fn report(phases: Vec<PhaseFigures>) -> Report {
    let server = ServerFigures {
        server: "server",
        hosts: "127.0.0.1:27017".to_owned(),
        product: "FernDB 0.1.0".to_owned(),
        cache_limit_bytes: Some(256 << 20),
        phases,
        rounds: Vec::new(),
        seconds: Vec::new(),
    };
    Report {
        format: 1,
        experiment: "curves".to_owned(),
        question: String::new(),
        started: "2026-11-28 21:00:00".to_owned(),
        command: "fern bench curves --only connections".to_owned(),
        seed: 1,
        machine: Machine { processor: "a processor".to_owned(), cores: 2, memory_bytes: 8 << 30 },
        servers: vec![server],
    }
}

fn measured() -> Vec<CurveFigures> {
    let mut phases = Vec::new();
    for (at, steep) in [(1, 20.0), (10, 60.0), (100, 600.0), (1_000, 6_000.0)] {
        phases.push(phase(at, "open one", 150.0, 9));
        phases.push(phase(at, "find by _id", 18.0, 11));
        phases.push(phase(at, "$inc", steep, 13));
    }
    of(&report(phases))
}

#[test]
fn a_table_tells_what_grows_and_how() {
    let text = text(&measured());
    for row in [
        "find by _id: CPU µs     18.0   18.0     18.0       18.0     n^0.0  as it may",
        "$inc: CPU µs            20.0   60.0    600.0      6,000     n^1.0    STEEPER",
        "open one: p99 µs       1,200  12,000  120,000  1,200,000     n^1.0",
        "open one: memory B     4,096   4,096    4,096      4,096",
        "threads of the server     13      13       13         13",
    ] {
        let found = text.lines().any(|line| words(line) == words(row));
        assert!(found, "{row}\n{text}");
    }
    assert_eq!(text.matches("memory B").count(), 1, "a find leaves nothing open\n{text}");
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn few_operations_tell_nothing() {
    let mut few = phase(1, "open one", 150.0, 9);
    (few.units, few.latency.operations) = (99, 19);
    let point = LinePoint::of(&few, 1);
    assert_eq!((point.cpu_us, point.p99_us, point.held_bytes), (None, None, None));
}

#[test]
fn the_page_has_the_curves_of_earlier_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = measured();
    other[0].curve = "snapshots".to_owned();
    write(&other, folder.path()).unwrap();
    write(&measured(), folder.path()).unwrap();
    let page = std::fs::read_to_string(folder.path().join("README.md")).unwrap();
    let (first, second) = (page.find("\n## connections\n"), page.find("\n## snapshots\n"));
    assert!(first.is_some() && first < second, "{page}");
    for name in ["connections", "snapshots"] {
        let svg = std::fs::read_to_string(folder.path().join(format!("{name}.svg"))).unwrap();
        assert!(svg.contains("find by _id") && svg.contains("<circle"), "{svg}");
    }
    std::fs::write(folder.path().join("data.json"), "{}").unwrap();
    let error = write(&measured(), folder.path()).unwrap_err();
    assert!(format!("{error:#}").contains("data.json"), "{error:#}");
}

#[test]
fn numbers_have_commas() {
    for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(thousands(number), text);
    }
    assert_eq!((power(-0.02), power(0.96)), ("n^0.0".to_owned(), "n^1.0".to_owned()));
}
