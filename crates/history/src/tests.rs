//! Rows in, rows out: over blocks, files, restarts, crashes and damage.

use super::*;
use crate::block::{decode, encode};
use os::sim::SimOs;
use proptest::prelude::*;

const START: i64 = 1_800_000_000_000;

fn folder() -> &'static Path {
    Path::new("/data/diagnostic.data")
}

fn numbers(n: i64) -> Vec<(String, Number)> {
    vec![
        ("opcounters.insert".to_owned(), Number::Whole(n * 100)),
        ("ratio".to_owned(), Number::Real(n as f64 / 4.0)),
        ("constant".to_owned(), Number::Whole(-7)),
    ]
}

fn fill(history: &History, seconds: std::ops::Range<i64>) {
    for n in seconds {
        history.add(START + n * 1000, &numbers(n)).unwrap();
    }
}

fn inserts(history: &History) -> Vec<(i64, f64)> {
    let series = history.read(START, i64::MAX, 1000, &["opcounters.insert"]).unwrap();
    let values = series.columns[0].iter().map(|value| value.unwrap());
    series.times.iter().map(|at| (at - START) / 1000).zip(values).collect()
}

fn expected(seconds: std::ops::Range<i64>) -> Vec<(i64, f64)> {
    seconds.map(|n| (n, n as f64 * 100.0)).collect()
}

#[test]
fn what_was_added_is_read_from_memory_and_disk() {
    let os = SimOs::new(1).os();
    let history = History::open(&os, folder()).unwrap();
    fill(&history, 0..150);
    assert_eq!(inserts(&history), expected(0..150));
    assert_eq!(history.names(), ["opcounters.insert", "ratio", "constant"]);
    assert_eq!(history.newest(), Some(START + 149_000));
    let series = history.read(START + 58_000, START + 61_000, 1000, &["ratio", "no", "constant"]);
    let series = series.unwrap();
    assert_eq!(series.columns[0], [58, 59, 60, 61].map(|n| Some(f64::from(n) / 4.0)));
    assert_eq!(series.columns[1], [None; 4]);
    assert_eq!(series.columns[2], [Some(-7.0); 4]);
}

#[test]
fn a_step_has_its_last_row() {
    let os = SimOs::new(1).os();
    let history = History::open(&os, folder()).unwrap();
    fill(&history, 0..200);
    let series = history.read(START, START + 200_000, 60_000, &["opcounters.insert"]).unwrap();
    assert_eq!(series.times, [59, 119, 179, 199].map(|n| START + n * 1000));
    assert_eq!(series.columns[0][0], Some(5900.0));
    assert!(matches!(
        history.read(START, START + 200_000, 1, &[]).map(|series| series.times.len()),
        Ok(200)
    ));
}

#[test]
fn a_step_tells_what_its_last_row_hides() {
    let os = SimOs::new(1).os();
    let history = History::open(&os, folder()).unwrap();
    // a counter that stands still in second 30 and jumps in 31, and starts again in second 90
    let mut sum = 0;
    for n in 0..120 {
        sum = match n {
            90 => 7,
            30 => sum,
            31 => sum + 500,
            _ => sum + 100,
        };
        let busy = if n == 45 { 9 } else { 2 };
        let row =
            [("sum".to_owned(), Number::Whole(sum)), ("busy".to_owned(), Number::Whole(busy))];
        history.add(START + n * 1000, &row).unwrap();
    }
    let names = [
        "most(busy)",
        "least(busy)",
        "slowest(sum)",
        "fastest(sum)",
        "busy",
        "most(no)",
        "odd(busy)",
    ];
    let series = history.read(START, i64::MAX, 60_000, &names).unwrap();
    assert_eq!(series.columns[0], [Some(9.0), Some(2.0)]);
    assert_eq!(series.columns[1], [Some(2.0), Some(2.0)]);
    assert_eq!(series.columns[2], [Some(0.0), Some(100.0)], "a new start is no growth");
    assert_eq!(series.columns[3], [Some(500.0), Some(100.0)]);
    assert_eq!(series.columns[4], [Some(2.0), Some(2.0)]);
    assert_eq!(series.columns[5..], [[None, None], [None, None]]);
    // the first row of a stretch grew from the one before it
    let series = history.read(START + 31_000, START + 31_000, 1000, &["fastest(sum)", "sum"]);
    assert_eq!(series.unwrap().columns[0], [Some(500.0)]);
    // one request asks for so much and no more
    let many = vec!["sum"; MAX_VALUES / 119];
    let refused = history.read(START, i64::MAX, 1000, &many);
    assert!(matches!(refused, Err(Error::TooManyValues)), "{refused:?}");
    // after a gap there is nothing to tell
    history.add(START + 1_000_000, &[("sum".to_owned(), Number::Whole(1 << 40))]).unwrap();
    let series = history.read(START, i64::MAX, 60_000, &["fastest(sum)"]).unwrap();
    assert_eq!(series.columns[0], [Some(500.0), Some(100.0), None]);
}

#[test]
fn a_restart_goes_on_where_it_was() {
    let os = SimOs::new(1).os();
    let history = History::open(&os, folder()).unwrap();
    fill(&history, 0..75);
    history.flush().unwrap();
    drop(history);
    let history = History::open(&os, folder()).unwrap();
    assert_eq!(inserts(&history), expected(0..75));
    fill(&history, 75..140);
    assert_eq!(inserts(&history), expected(0..140));
    assert_eq!(os.vfs.list_dir(folder()).unwrap().len(), 1);
}

#[test]
fn columns_may_change_and_time_may_go_back() {
    let os = SimOs::new(1).os();
    let history = History::open(&os, folder()).unwrap();
    fill(&history, 0..5);
    history.add(START + 5000, &[("other".to_owned(), Number::Whole(1))]).unwrap();
    fill(&history, 3..8);
    let series = history.read(START, i64::MAX, 1000, &["opcounters.insert", "other"]).unwrap();
    assert_eq!(series.times.len(), 8);
    assert_eq!(series.columns[0].iter().flatten().count(), 7);
    assert_eq!(series.columns[1][5], Some(1.0));
}

#[test]
fn files_are_an_hour_long_and_a_day_old_at_most() {
    let os = SimOs::new(1).os();
    let history = History::open(&os, folder()).unwrap();
    // A row every 30 seconds for 30 hours.
    for n in 0..30 * 120 {
        history.add(START + n * 30_000, &numbers(n)).unwrap();
    }
    let files = os.vfs.list_dir(folder()).unwrap().len();
    assert!((24..=26).contains(&files), "{files} files");
    let series = history.read(START, i64::MAX, 60_000, &["constant"]).unwrap();
    assert!(series.times.len() >= 24 * 60, "{}", series.times.len());
}

#[test]
fn killed_process_loses_the_rows_since_the_last_write() {
    let sim = SimOs::new(1);
    let history = History::open(&sim.os(), folder()).unwrap();
    fill(&history, 0..98);
    // The file as it is, without what the process had in memory.
    drop(history);
    let history = History::open(&sim.os(), folder()).unwrap();
    assert_eq!(inserts(&history), expected(0..90));
}

#[test]
fn crash_at_any_call_keeps_every_synced_block() {
    for call in 0..60 {
        let sim = SimOs::new(call);
        let history = History::open(&sim.os(), folder()).unwrap();
        fill(&history, 0..60);
        sim.crash_after(call);
        let mut added = 60;
        while added < 400 && history.add(START + added * 1000, &numbers(added)).is_ok() {
            added += 1;
        }
        sim.crash();
        let os = sim.reboot();
        let history = History::open(&os, folder()).unwrap();
        let found = inserts(&history);
        let whole = added / 60 * 60;
        assert!(found.len() as i64 >= whole, "call {call}: {} of {added}", found.len());
        assert_eq!(found, expected(0..found.len() as i64), "call {call}");
        fill(&history, added..added + 61);
        assert_eq!(inserts(&history).last(), expected(added..added + 61).last());
    }
}

#[test]
fn a_damaged_file_is_read_up_to_the_damage() {
    let sim = SimOs::new(1);
    let history = History::open(&sim.os(), folder()).unwrap();
    fill(&history, 0..180);
    let path = sim.os().vfs.list_dir(folder()).unwrap()[0].clone();
    let length = sim.os().vfs.open(&path, os::OpenOptions::default()).unwrap().len().unwrap();
    for offset in 16..length {
        sim.flip_bit(&path, offset, 3).unwrap();
        let found = inserts(&History::open(&sim.os(), folder()).unwrap());
        assert!(found.len() < 180 && found == expected(0..found.len() as i64), "at {offset}");
        sim.flip_bit(&path, offset, 3).unwrap();
    }
}

#[test]
fn another_version_is_refused_by_name() {
    let sim = SimOs::new(1);
    fill(&History::open(&sim.os(), folder()).unwrap(), 0..60);
    let path = sim.os().vfs.list_dir(folder()).unwrap()[0].clone();
    sim.flip_bit(&path, 8, 1).unwrap();
    let error = History::open(&sim.os(), folder()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("version 3, not 1"), "{error}");
}

#[test]
fn the_golden_file_is_read() {
    let sim = SimOs::new(1);
    let history = History::open(&sim.os(), folder()).unwrap();
    fill(&history, 0..61);
    history.flush().unwrap();
    let written = sim.files().into_values().next().unwrap();
    let committed =
        testkit::golden_to_decode(env!("CARGO_MANIFEST_DIR"), "history-v1.bin", &written);
    let path = folder().join("history-golden.fern");
    let os = SimOs::new(2).os();
    os.vfs.create_dir_all(folder()).unwrap();
    let file = os.vfs.open(&path, os::OpenOptions::create()).unwrap();
    file.write_all_at(&committed, 0).unwrap();
    assert_eq!(inserts(&History::open(&os, folder()).unwrap()), expected(0..61));
    // Compressed bytes may differ with the library's release; what they hold may not.
    let (header, payload) = frame::decode(&committed[16..]).unwrap();
    assert_eq!(
        frame::unpack(&header, payload).unwrap(),
        b"iopcounters.insert\nmratio\niconstant\n"
    );
}

proptest! {
    #[test]
    fn any_rows_come_back(
        rows in (0_usize..5).prop_flat_map(|width| prop::collection::vec(
            (any::<i64>(), prop::collection::vec(any::<i64>(), width)), 1..20))
    ) {
        let rows: Vec<Row> =
            rows.into_iter().map(|(at_ms, values)| Row { at_ms, values }).collect();
        let bytes = encode(&rows);
        let width = rows[0].values.len();
        prop_assert_eq!(decode(&bytes, rows.len(), width), Some(rows.clone()));
        prop_assert!(decode(&bytes[..bytes.len() - 1], rows.len(), width).is_none());
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _any = frame::decode(&bytes);
        let _any = decode(&bytes, 3, 2);
        let _any = frame::decode_names(&bytes);
    }
}
