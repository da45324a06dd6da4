//! `fern import`: files of documents into a collection.
//!
//! A thread reads files and makes batches of them (`input`, `json`, `extended`, `table`), the caller sends them (`target`):
//! into a bulk load where the collection is new, and by plain inserts where it is there.
//!
//! What is always true:
//! - Of what goes into a load nothing is seen before all of it is there: whatever ends the import leaves nothing.
//! - What was not imported is told with its file and line, and counted.
//! - Memory is bounded: a batch is read, one waits, one is sent.

mod extended;
mod input;
mod json;
mod options;
mod table;
mod target;

pub use input::FileType;
pub use options::ImportOptions;

use crate::progress::Progress;
use crate::server::parse;
use anyhow::{Context, Result, anyhow, bail};
use bson::RawDocumentBuf;
use indicatif::HumanCount;
use input::{Reader, by_name, is_standard_input};
use options::Asked;
use os::{OpenOptions, Os};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use target::{NOTHING, Refused, Target, Way};

/// What is sent at once: far below the longest message, and enough that a round trip does not count.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_DOCUMENTS: usize = 5000;
/// So much of what was not imported is told by its place; the rest is counted.
const TOLD: u64 = 20;
const DUPLICATE_KEY: i32 = 11000;

/// Documents that are sent at once, and what was left out before them.
#[derive(Default)]
struct Batch {
    documents: Vec<RawDocumentBuf>,
    /// Where each comes from.
    places: Vec<u64>,
    bytes: usize,
    file: Arc<str>,
    unit: &'static str,
    skipped: Vec<String>,
}

/// What is read, and from where.
struct Files {
    os: Os,
    /// Each with its kind, and whether it is compressed.
    each: Vec<(PathBuf, FileType, bool)>,
    skip_invalid: bool,
    read: Arc<AtomicU64>,
}

/// What became of the documents.
#[derive(Default)]
struct Counts {
    imported: u64,
    duplicates: u64,
    refused: u64,
    skipped: u64,
}

/// Imports; says whether all was imported.
///
/// # Errors
/// A file or the server cannot be read, what is no document, or what a load does not take.
pub fn run(os: &Os, given: &ImportOptions) -> Result<bool> {
    let asked = given.read()?;
    let (files, total) = look_at(os, given, &asked)?;
    let (options, shown) = parse(asked.uri.as_deref(), &given.login)?;
    let target = Target::new(options, shown, asked.name.clone())?;
    let way = target.begin(&asked, given.drop, given.no_load)?;
    let progress = Progress::new(os);
    if let Way::Load(load) = &way
        && let Some(note) = &load.note
    {
        progress.say(note);
    }
    let began = os.clock.monotonic();
    progress.begin("importing", total, 0);
    let mut counts = Counts::default();
    let read = files.read.clone();
    let sent = send_all(os, files, &target, &way, (&progress, &read, &mut counts));
    progress.end();
    if let Err(error) = sent {
        Target::abandon(&way);
        return Err(error.context(match &way {
            Way::Load(_) => NOTHING.to_owned(),
            Way::Inserts(..) => {
                format!("after {} documents were imported", HumanCount(counts.imported))
            }
        }));
    }
    let is_load = matches!(way, Way::Load(_));
    match &way {
        Way::Load(_) => progress.say("writing documents and indexes"),
        Way::Inserts(_, indexes) if !indexes.is_empty() => progress.say("building indexes"),
        Way::Inserts(..) => {}
    }
    if let Err(error) = target.finish(&way) {
        Target::abandon(&way);
        return Err(error);
    }
    let time = os.clock.monotonic().saturating_sub(began);
    writeln!(std::io::stdout(), "{}: {}", asked.name, counts.line(is_load, time))?;
    Ok(counts.refused + counts.duplicates + counts.skipped == 0)
}

/// Which files there are, what they are, and how long together; 0 where that cannot be told.
fn look_at(os: &Os, given: &ImportOptions, asked: &Asked) -> Result<(Files, u64)> {
    let (mut files, mut total, mut is_known) = (Vec::new(), 0, true);
    for path in &asked.files {
        let (kind, is_compressed) = match (given.kind, by_name(path)) {
            (Some(kind), _) => (kind, crate::files::is_compressed(path)),
            (None, named) => named?,
        };
        if is_standard_input(path) {
            is_known = false;
        } else {
            // Before anything is dropped or made.
            let file = os.vfs.open(path, OpenOptions::read_only());
            let file = file.map_err(|error| anyhow!("{}: {error}", path.display()))?;
            total += file.len().with_context(|| path.display().to_string())?;
        }
        files.push((path.clone(), kind, is_compressed || given.gzip));
    }
    let files = Files {
        os: os.clone(),
        each: files,
        skip_invalid: given.skip_invalid,
        read: Arc::default(),
    };
    Ok((files, if is_known { total } else { 0 }))
}

/// Sends what a thread reads.
fn send_all(
    os: &Os,
    files: Files,
    target: &Target,
    way: &Way,
    (progress, read, counts): (&Progress, &AtomicU64, &mut Counts),
) -> Result<()> {
    let (sender, batches) = sync_channel(1);
    let job = move || {
        if let Err(error) = files.read_all(&sender) {
            // Who waits for it is there, or has ended with an error of its own.
            let _gone = sender.send(Err(error));
        }
    };
    let reader = os.spawner.spawn("import-reader", Box::new(job))?;
    send(&batches, target, way, (progress, read, counts))?;
    reader.join()?;
    Ok(())
}

fn send(
    batches: &Receiver<Result<Batch>>,
    target: &Target,
    way: &Way,
    (progress, read, counts): (&Progress, &AtomicU64, &mut Counts),
) -> Result<()> {
    let mut shown = 0;
    for batch in batches {
        let batch = batch?;
        for line in &batch.skipped {
            counts.skipped += 1;
            tell(progress, counts.skipped, &format!("left out: {line}"));
        }
        if !batch.documents.is_empty() {
            let refused = target.insert(way, &batch.documents)?;
            counts.imported += (batch.documents.len() - refused.len()) as u64;
            for one in refused {
                note_refused(&batch, &one, way, progress, counts)?;
            }
        }
        let done = read.load(Ordering::Relaxed);
        progress.add(done - shown, &format!("{} documents", HumanCount(counts.imported)));
        shown = done;
    }
    Ok(())
}

/// What a server refuses ends a load, and is counted elsewhere.
fn note_refused(
    batch: &Batch,
    one: &Refused,
    way: &Way,
    progress: &Progress,
    counts: &mut Counts,
) -> Result<()> {
    let place = batch.places.get(one.at).copied().unwrap_or_default();
    let line = format!("{}: {} {place}: {} (code {})", batch.file, batch.unit, one.text, one.code);
    if matches!(way, Way::Load(_)) {
        bail!(line);
    }
    let count =
        if one.code == DUPLICATE_KEY { &mut counts.duplicates } else { &mut counts.refused };
    *count += 1;
    tell(progress, *count, &format!("refused: {line}"));
    Ok(())
}

fn tell(progress: &Progress, count: u64, line: &str) {
    match count {
        0..=TOLD => progress.say(line),
        _ if count == TOLD + 1 => progress.say("more of this kind are counted, and not shown"),
        _ => {}
    }
}

impl Files {
    fn read_all(&self, sender: &SyncSender<Result<Batch>>) -> Result<()> {
        for (path, kind, is_compressed) in &self.each {
            let shown = if is_standard_input(path) { Path::new("standard input") } else { path };
            let shown = shown.display().to_string();
            let mut reader =
                Reader::open(&self.os, path, *kind, *is_compressed, self.read.clone())?;
            if !self.read_file(&mut reader, &shown, sender)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether whoever takes the batches is there.
    fn read_file(
        &self,
        reader: &mut Reader,
        shown: &str,
        sender: &SyncSender<Result<Batch>>,
    ) -> Result<bool> {
        let unit = reader.unit();
        let empty = || Batch { file: shown.into(), unit, ..Batch::default() };
        let mut batch = empty();
        loop {
            let next = reader.next().with_context(|| shown.to_owned())?;
            match next {
                Some(Ok((place, document))) => batch.push(place, document),
                Some(Err(broken)) => {
                    let line = format!("{shown}: {}: {}", broken.place, broken.what);
                    if !self.skip_invalid {
                        bail!(line);
                    }
                    if broken.is_last {
                        bail!("{line}; nothing tells where the next document begins");
                    }
                    batch.skipped.push(line);
                }
                None => return Ok(sender.send(Ok(batch)).is_ok()),
            }
            if batch.is_full() && sender.send(Ok(std::mem::replace(&mut batch, empty()))).is_err() {
                return Ok(false);
            }
        }
    }
}

impl Batch {
    fn push(&mut self, place: u64, document: RawDocumentBuf) {
        self.bytes += document.as_bytes().len();
        self.documents.push(document);
        self.places.push(place);
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.documents.len() + self.skipped.len() >= BATCH_DOCUMENTS
    }
}

impl Counts {
    fn line(&self, is_load: bool, time: Duration) -> String {
        let (seconds, how) =
            (time.as_secs_f64().max(0.001), if is_load { "loaded" } else { "inserted" });
        let rate = HumanCount((self.imported as f64 / seconds).round() as u64);
        let mut line = format!(
            "{} documents {how} in {} ({rate}/s)",
            HumanCount(self.imported),
            clock(seconds)
        );
        for (count, what) in [
            (self.duplicates, "refused for a key that is there"),
            (self.refused, "refused"),
            (self.skipped, "left out, as no documents"),
        ] {
            if count > 0 {
                line.push_str(", ");
                line.push_str(&HumanCount(count).to_string());
                line.push(' ');
                line.push_str(what);
            }
        }
        line
    }
}

fn clock(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    indicatif::FormattedDuration(Duration::from_secs(seconds.round() as u64)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_tells_what_was_left_out() {
        let mut counts = Counts { imported: 12_000, ..Counts::default() };
        let line = counts.line(true, Duration::from_secs(4));
        assert_eq!(line, "12,000 documents loaded in 4.0 s (3,000/s)");
        (counts.duplicates, counts.skipped) = (2, 1);
        let line = counts.line(false, Duration::from_secs(61));
        assert_eq!(
            line,
            "12,000 documents inserted in 00:01:01 (197/s), 2 refused for a key that is there, 1 left out, as no documents"
        );
    }
}
