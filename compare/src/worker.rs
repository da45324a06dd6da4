//! The worker: one process, one engine, told what to do line by line on standard input; each line is
//! answered by one JSON object. Between lines the engine is idle but for its background work.
//!
//! `load ROWS SECONDS` · `fill ROWS` (each table in key order, for an engine that random order would
//! take hours) · `count` (all tables agree, ids without gaps; sets the rows) · `read SECONDS THREADS` · `upsert SECONDS THREADS` · `rmw SECONDS THREADS` ·
//! `mixed SECONDS` (one reader beside one unthrottled writer; counts the reader) ·
//! `counters ROWS`, `add SECONDS`, `add-by-reading SECONDS`, `read-counters SECONDS` ([`counters`]) ·
//! `scan SECONDS ENTRIES` · `fullscan SECONDS` · `throttle SEEKS MEGABYTES` (a second, of the disk from
//! now on; 0 ends it) · `settle` · `space` · `quit`

mod counters;

use crate::data::{self, Random, VALUE_BYTES};
use crate::measure::{Tally, Usage};
use crate::store::{self, Conflict, Session, Settings, Store};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const BATCH: u64 = 1000;
/// A slice's last batch may take so much longer than the slice; an engine that needs seconds for a
/// row would make everybody wait for its thousand.
const PATIENCE: Duration = Duration::from_secs(5);

struct Worker {
    store: Arc<dyn Store>,
    directory: PathBuf,
    rows: Arc<AtomicU64>,
    seed: u64,
    /// What was added to each counter.
    added: Vec<u32>,
}

/// Runs until `quit` or the end of input.
pub fn serve(name: &str, directory: &Path, settings: &Settings) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut answers = answers()?;
    let opening = Instant::now();
    let store = store::open(name, directory, settings)?;
    writeln!(answers, "{}", json!({ "opened_ms": opening.elapsed().as_secs_f64() * 1000.0 }))?;
    let stop = Arc::new(AtomicBool::new(false));
    let flusher = {
        let (store, stop) = (store.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                if let Err(error) = store.flush_log() {
                    eprintln!("flush_log: {error:#}");
                }
            }
        })
    };
    let directory = directory.to_path_buf();
    let mut worker = Worker { store, directory, rows: Arc::default(), seed: 1, added: Vec::new() };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        if words == ["quit"] {
            break;
        }
        let started = milliseconds();
        let answer = worker.run(&words);
        let mut answer = answer.unwrap_or_else(|e| json!({ "error": format!("{e:#}") }));
        if answer.get("each_second").is_some() {
            answer["checkpoints"] = json!(worker.checkpoints_since(started));
        }
        writeln!(answers, "{answer}")?;
    }
    stop.store(true, Ordering::Relaxed);
    let _ = flusher.join();
    worker.store.close()
}

/// Standard output, which nobody else writes to from here on: WiredTiger puts its messages there.
fn answers() -> Result<File> {
    let answers = rustix::io::dup(std::io::stdout())?;
    rustix::stdio::dup2_stdout(std::io::stderr())?;
    Ok(File::from(answers))
}

fn milliseconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as i64
}

impl Worker {
    /// Checkpoints that ran since `started`: begin and end, in seconds from then.
    fn checkpoints_since(&self, started: i64) -> Vec<(f64, f64)> {
        let seconds = |at: i64| (at - started) as f64 / 1000.0;
        let all = self.store.checkpoints().into_iter().filter(|(_, end)| *end >= started);
        all.map(|(begin, end)| (seconds(begin).max(0.0), seconds(end))).collect()
    }

    fn run(&mut self, words: &[&str]) -> Result<Value> {
        self.seed += 1;
        let number = |at: usize| -> Result<u64> {
            Ok(words.get(at).context("a number is missing")?.parse::<f64>()? as u64)
        };
        match words.first().copied() {
            Some("load") => self.load(number(1)?, number(2)?),
            Some("fill") => self.fill(number(1)?),
            Some("count") => self.count(),
            Some("read") => self.threads(number(1)?, number(2)?, read),
            Some("upsert") => self.threads(number(1)?, number(2)?, upsert),
            Some("rmw") => self.threads(number(1)?, number(2)?, read_modify_write),
            Some("counters") => self.fill_counters(number(1)?),
            Some("add") => self.count_on(number(1)?, counters::add),
            Some("add-by-reading") => self.count_on(number(1)?, counters::add_by_reading),
            Some("read-counters") => self.count_on(number(1)?, counters::read),
            Some("mixed") => self.mixed(number(1)?),
            Some("scan") => {
                let entries = number(2)?;
                self.threads(number(1)?, 1, move |job| scan(job, entries))
            }
            Some("throttle") => {
                crate::measure::throttle(number(1)?, number(2)? << 20);
                Ok(json!({ "throttled": number(1)? > 0 }))
            }
            Some("fullscan") => self.threads(number(1)?, 1, full_scan),
            Some("settle") => {
                self.store.settle()?;
                Ok(json!({ "settled": true }))
            }
            Some("space") => Ok(json!({
                "disk_bytes": disk_bytes(&self.directory)?,
                "rows": self.rows.load(Ordering::Relaxed),
                "bytes_per_row":
                    disk_bytes(&self.directory)? as f64 / self.rows.load(Ordering::Relaxed) as f64,
                "resident": crate::measure::resident().0,
                "peak_resident": crate::measure::resident().1,
                "counters": self.store.counters(),
            })),
            other => bail!("no command {other:?}"),
        }
    }

    /// Loads up to `rows` more rows in batches, for at most `seconds`.
    fn load(&self, rows: u64, seconds: u64) -> Result<Value> {
        let (before, started) = (Usage::now(), Instant::now());
        let until = started + Duration::from_secs(seconds);
        let mut session = self.store.clone().session()?;
        let mut tally = Tally::new(started);
        let first = self.rows.load(Ordering::Relaxed);
        let mut next = first;
        while next < first + rows && Instant::now() < until {
            let (inserted, commit) = insert_batch(&mut *session, next, until + PATIENCE)?;
            next += inserted;
            self.rows.store(next, Ordering::Relaxed);
            tally.note(inserted, Instant::now() - commit);
        }
        Ok(tally.report(started.elapsed(), before))
    }

    /// Rows in key order, then each index in key order, a part of its range at a time.
    fn fill(&self, rows: u64) -> Result<Value> {
        const PARTS: u64 = 16;
        let started = Instant::now();
        let mut session = self.store.clone().session()?;
        let mut value = [0; VALUE_BYTES];
        for first in (0..rows).step_by(BATCH as usize) {
            transact(&mut *session, |session| {
                for id in first..(first + BATCH).min(rows) {
                    data::value(id, 0, &mut value);
                    session.put(0, &data::key(id), &value)?;
                }
                Ok(())
            })?;
        }
        for (table, part) in (1..4).flat_map(|table| (0..PARTS).map(move |part| (table, part))) {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            for id in 0..rows {
                data::entries(id, |of, key| {
                    if of == table && data::part(of, key, PARTS) == part {
                        keys.push(key.to_vec());
                    }
                });
            }
            keys.sort_unstable();
            for batch in keys.chunks(BATCH as usize) {
                transact(&mut *session, |session| {
                    batch.iter().try_for_each(|key| session.put(table, key, &[]))
                })?;
            }
        }
        self.rows.store(rows, Ordering::Relaxed);
        Ok(json!({ "rows": rows, "seconds": started.elapsed().as_secs_f64() }))
    }

    /// What a kill left: batches are there whole or not at all, and only the last are missing.
    fn count(&self) -> Result<Value> {
        let mut session = self.store.clone().session()?;
        let counts = (0..4)
            .map(|table| Ok(session.scan(table, &[], u64::MAX)?.0))
            .collect::<Result<Vec<u64>>>()?;
        let rows = counts[0];
        ensure!(counts.iter().all(|count| *count == rows), "tables disagree: {counts:?}");
        ensure!(rows % BATCH == 0, "{rows} rows: part of a transaction");
        if rows > 0 {
            let mut found = Vec::new();
            ensure!(session.get(0, &data::key(rows - 1), &mut found)?, "a gap in the rows");
            self.rows.store(rows, Ordering::Relaxed);
        }
        Ok(json!({ "rows": rows }))
    }

    fn threads(
        &self,
        seconds: u64,
        threads: u64,
        work: impl Fn(&mut Job) -> Result<u64> + Copy + Send + 'static,
    ) -> Result<Value> {
        ensure!(self.rows.load(Ordering::Relaxed) > 0, "load first");
        let (before, started) = (Usage::now(), Instant::now());
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let mut job = self.job(started, thread)?;
                Ok(std::thread::spawn(move || -> Result<Tally> {
                    job.until(Duration::from_secs(seconds), work)?;
                    Ok(job.tally)
                }))
            })
            .collect::<Result<_>>()?;
        let mut total = Tally::new(started);
        for thread in running {
            total.merge(&thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??);
        }
        Ok(total.report(started.elapsed(), before))
    }

    fn mixed(&self, seconds: u64) -> Result<Value> {
        let (before, started) = (Usage::now(), Instant::now());
        // New rows would make it a question of how much an engine can write before its cache is
        // full: the data stays as large as it is.
        let mut writer = self.job(started, 1)?;
        let writer = std::thread::spawn(move || -> Result<u64> {
            writer.until(Duration::from_secs(seconds), |job| overwrite(job, BATCH))?;
            Ok(writer.tally.operations)
        });
        let mut job = self.job(started, 0)?;
        job.until(Duration::from_secs(seconds), read)?;
        let written = writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        let mut report = job.tally.report(started.elapsed(), before);
        report["written_per_second"] = json!(written as f64 / started.elapsed().as_secs_f64());
        Ok(report)
    }

    fn job(&self, started: Instant, thread: u64) -> Result<Job> {
        Ok(Job {
            session: self.store.clone().session()?,
            random: Random(self.seed << 32 | thread << 8),
            rows: self.rows.load(Ordering::Relaxed),
            tally: Tally::new(started),
            found: Vec::new(),
            value: [0; VALUE_BYTES],
        })
    }
}

/// One thread's work in a slice.
struct Job {
    session: Box<dyn Session>,
    random: Random,
    rows: u64,
    tally: Tally,
    found: Vec<u8>,
    value: [u8; VALUE_BYTES],
}

impl Job {
    fn until(
        &mut self,
        duration: Duration,
        mut work: impl FnMut(&mut Self) -> Result<u64>,
    ) -> Result<()> {
        let mut now = Instant::now();
        let end = now + duration;
        while now < end {
            let operations = work(self)?;
            now = self.tally.note(operations, now);
        }
        Ok(())
    }
}

/// Returns the rows and how long their commit took. A batch that goes on until `patience` ends is
/// committed as it is.
fn insert_batch(
    session: &mut dyn Session,
    first: u64,
    patience: Instant,
) -> Result<(u64, Duration)> {
    let mut value = [0; VALUE_BYTES];
    let mut inserted = 0;
    let commit = transact(session, |session| {
        inserted = 0;
        while inserted < BATCH && (inserted == 0 || Instant::now() < patience) {
            let id = first + inserted;
            inserted += 1;
            data::value(id, 0, &mut value);
            session.put(0, &data::key(id), &value)?;
            let mut outcome = Ok(());
            data::entries(id, |table, key| {
                if outcome.is_ok() {
                    outcome = session.put(table, key, &[]);
                }
            });
            outcome?;
        }
        Ok(())
    })?;
    Ok((inserted, commit))
}

/// Runs `work` in a transaction, again where it met another one; returns how long the commit took.
fn transact(
    session: &mut dyn Session,
    mut work: impl FnMut(&mut dyn Session) -> Result<()>,
) -> Result<Duration> {
    loop {
        session.begin()?;
        let mut from = None;
        let failed = match work(session) {
            Ok(()) => {
                from = Some(Instant::now());
                session.commit().err()
            }
            Err(error) => {
                session.abort();
                Some(error)
            }
        };
        match failed {
            None => return Ok(from.map_or(Duration::ZERO, |from| from.elapsed())),
            Some(error) if error.is::<Conflict>() => {}
            Some(error) => return Err(error),
        }
    }
}

fn read(job: &mut Job) -> Result<u64> {
    let id = job.random.below(job.rows);
    ensure!(job.session.get(0, &data::key(id), &mut job.found)?, "row {id} is lost");
    ensure!(job.found.len() == VALUE_BYTES && job.found[..8] == data::key(id), "row {id} is wrong");
    Ok(1)
}

fn upsert(job: &mut Job) -> Result<u64> {
    overwrite(job, 10)
}

/// New values for so many rows, in one transaction.
fn overwrite(job: &mut Job, count: u64) -> Result<u64> {
    let Job { session, random, rows, value, .. } = job;
    transact(&mut **session, |session| {
        for _ in 0..count {
            let id = random.below(*rows);
            data::value(id, random.0 >> 24, value);
            session.put(0, &data::key(id), value)?;
        }
        Ok(())
    })?;
    Ok(count)
}

fn read_modify_write(job: &mut Job) -> Result<u64> {
    if job.random.next() & 1 == 0 {
        return read(job);
    }
    let id = job.random.below(job.rows);
    let Job { session, random, value, found, .. } = job;
    transact(&mut **session, |session| {
        ensure!(session.get(0, &data::key(id), found)?, "row {id} is lost");
        data::value(id, random.0 >> 24, value);
        session.put(0, &data::key(id), value)
    })?;
    Ok(1)
}

/// One range of the first index, each entry's row fetched.
fn scan(job: &mut Job, entries: u64) -> Result<u64> {
    let id = job.random.below(job.rows);
    let mut from = Vec::new();
    data::entries(id, |table, key| {
        if table == 1 {
            from = key.to_vec();
        }
    });
    let found = job.session.fetch(&from, entries, &mut job.found)?;
    ensure!(found > 0 && job.found.len() >= VALUE_BYTES, "the range is empty");
    Ok(found)
}

fn full_scan(job: &mut Job) -> Result<u64> {
    let (entries, bytes) = job.session.scan(0, &[], u64::MAX)?;
    ensure!(entries >= job.rows, "a full scan found {entries} of {} rows", job.rows);
    Ok(bytes)
}

/// Blocks of every file but the logs.
pub fn disk_bytes(directory: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    const LOGS: [&str; 5] = ["journal", "log.", ".log", "tigerlog", "preplog"];
    let mut total = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let metadata = entry.metadata()?;
        if LOGS.iter().any(|log| name.contains(log)) {
            continue;
        }
        total += match metadata.is_dir() {
            true => disk_bytes(&entry.path())?,
            false => metadata.blocks() * 512,
        };
    }
    Ok(total)
}
