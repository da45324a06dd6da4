//! The log: its files, and its records from the checkpoint to the tail.

use std::collections::BTreeMap;
use std::path::PathBuf;

use engine::format::{RecordKind, RootFacts, read_record};
use os::OpenOptions;
use telemetry::Registry;
use wal::format::{HEADER_BYTES, SegmentHeader, segment_number};
use wal::{Error, Lsn, Replay, Wal, WalOptions};

use crate::directory::DataDirectory;
use crate::findings::{Damage, Findings};

/// One file of the log.
pub(crate) struct LogFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// None: made ahead, or left from before, and not part of the log.
    pub(crate) header: Option<SegmentHeader>,
}

/// What the log holds behind the checkpoint.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) files: Vec<LogFile>,
    /// Where reading began: where the checkpoint says.
    pub(crate) from: Lsn,
    /// Where it ends.
    pub(crate) end: Lsn,
    pub(crate) records: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) commits: u64,
    pub(crate) chunks: u64,
    pub(crate) aborts: u64,
    pub(crate) entries: u64,
    pub(crate) cuts: u64,
    pub(crate) puts: u64,
    pub(crate) deletes: u64,
    pub(crate) creates: u64,
    pub(crate) drops: u64,
    pub(crate) reshapes: u64,
    pub(crate) tombstones: u64,
    pub(crate) first_commit: Option<u64>,
    pub(crate) last_commit: Option<u64>,
    /// Everything between was read.
    pub(crate) whole: bool,
}

impl Log {
    /// Reads the log from `from`, where a checkpoint says so, to its tail.
    pub(crate) fn read(
        directory: &DataDirectory,
        from: Option<Lsn>,
        root: Option<&RootFacts>,
        findings: &mut Findings,
    ) -> Self {
        let mut log = Self { files: files(directory, findings), whole: true, ..Self::default() };
        let metrics = wal::Metrics::new(&Registry::new());
        let opened = Wal::open(&directory.os, &directory.log, WalOptions::default(), metrics);
        let mut reader = Reader { directory, findings, order: Order::new(root), log: &mut log };
        match opened.and_then(|replay| replay.with_keys(directory.keys.clone())) {
            Ok(replay) => reader.all(replay, from, root),
            Err(e) => reader.damage(e),
        }
        log
    }
}

fn files(directory: &DataDirectory, findings: &mut Findings) -> Vec<LogFile> {
    let paths = match directory.os.vfs.list_dir(&directory.log) {
        Ok(paths) => paths,
        Err(e) => {
            findings.damage(Damage::of(&directory.log, format!("cannot be listed: {e}")));
            return Vec::new();
        }
    };
    let mut files = Vec::new();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(number) = name.and_then(segment_number) else { continue };
        match read_header(directory, number, path, findings) {
            Ok(file) => files.push(file),
            Err(damage) => findings.damage(damage),
        }
    }
    files.sort_by_key(|file| file.header.map_or(u64::MAX, |header| header.first_lsn));
    files
}

/// Either copy of a header is enough to read the log; a damaged one is named all the same.
fn read_header(
    directory: &DataDirectory,
    number: u64,
    path: PathBuf,
    findings: &mut Findings,
) -> Result<LogFile, Damage> {
    let file = directory.os.vfs.open(&path, OpenOptions::read_only());
    let read = file.and_then(|file| {
        let mut head = vec![0; HEADER_BYTES.min(file.len()? as usize)];
        file.read_exact_at(&mut head, 0)?;
        Ok((head, file.len()?))
    });
    let (head, bytes) = read.map_err(|e| Damage::of(&path, format!("cannot be read: {e}")))?;
    let (first, second) = head.split_at(head.len().min(HEADER_BYTES / 2));
    let copies = [first, second].map(|copy| SegmentHeader::decode(number, copy));
    for (at, (copy, bytes)) in copies.iter().zip([first, second]).enumerate() {
        let other = copies[1 - at];
        // a file made ahead is zeros, one to be used again has the header of its old number
        let spare = bytes.iter().all(|byte| *byte == 0) || is_header_of_another(bytes);
        if copy.is_none() && (other.is_some() || !spare) {
            let what = format!("copy {} of the header is damaged", at + 1);
            findings.damage(Damage::of(&path, what).at((at * HEADER_BYTES / 2) as u64));
        }
    }
    Ok(LogFile { path, bytes, header: copies[0].or(copies[1]) })
}

fn is_header_of_another(bytes: &[u8]) -> bool {
    let number = bytes.get(16..).and_then(|rest| rest.first_chunk::<8>());
    number.is_some_and(|n| SegmentHeader::decode(u64::from_le_bytes(*n), bytes).is_some())
}

struct Reader<'a> {
    directory: &'a DataDirectory,
    findings: &'a mut Findings,
    order: Order,
    log: &'a mut Log,
}

impl Reader<'_> {
    fn all(&mut self, mut replay: Replay, from: Option<Lsn>, root: Option<&RootFacts>) {
        self.log.from = replay.first_lsn();
        if let Some(from) = from {
            match replay.seek(from) {
                Ok(()) => self.log.from = from,
                Err(e) => {
                    self.damage(e);
                    self.order.lost = true;
                }
            }
        }
        self.log.end = self.log.from;
        loop {
            match self.next(&mut replay) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => {
                    let corrupt = matches!(e, Error::Corruption { .. });
                    self.damage(e);
                    self.order.start_again();
                    if !corrupt || !matches!(replay.skip_damage(), Ok(Some(_))) {
                        break;
                    }
                }
            }
        }
        if self.log.whole
            && let Ok(end) = replay.find_end()
        {
            self.log.end = self.log.end.max(end);
        }
        if let Some(root) = root.filter(|root| root.log_end > self.log.end) {
            let (end, synced) = (self.log.end, root.log_end);
            let what = format!(
                "the log ends at {end}, but was synced up to {synced} before the checkpoint"
            );
            self.at(end, &what);
        }
    }

    /// Looks at the next record, as far as there is a key for it; false at the log's end.
    fn next(&mut self, replay: &mut Replay) -> Result<bool, Error> {
        if self.directory.keys.is_none() && replay.is_encrypted() {
            let Some((_, end)) = replay.skip_record()? else { return Ok(false) };
            self.log.end = end;
            self.log.records += 1;
            return Ok(true);
        }
        let Some(record) = replay.next_record()? else { return Ok(false) };
        self.log.end = record.end;
        self.record(record.lsn, record.payload);
        Ok(true)
    }

    fn record(&mut self, lsn: Lsn, payload: &[u8]) {
        self.log.records += 1;
        self.log.payload_bytes += payload.len() as u64;
        let facts = match read_record(payload) {
            Ok(facts) => facts,
            Err(what) => return self.at(lsn, &format!("record: {what}")),
        };
        self.log.puts += facts.puts;
        self.log.deletes += facts.deletes;
        self.log.creates += facts.creates;
        self.log.drops += facts.drops;
        self.log.reshapes += facts.reshapes;
        self.log.tombstones += facts.tombstones;
        match facts.kind {
            RecordKind::Abort => self.log.aborts += 1,
            RecordKind::Chunk { .. } => self.log.chunks += 1,
            RecordKind::Entry { .. } => self.log.entries += 1,
            RecordKind::Cut { .. } => self.log.cuts += 1,
            RecordKind::Commit { timestamp, .. } => {
                self.log.commits += 1;
                self.log.first_commit.get_or_insert(timestamp.0);
                self.log.last_commit = Some(timestamp.0);
            }
        }
        if let Some(what) = self.order.next(facts.txn, facts.kind) {
            self.at(lsn, &what);
        }
    }

    /// Damage at a position of the log.
    fn at(&mut self, lsn: Lsn, what: &str) {
        let holds = |header: &SegmentHeader| (header.first_lsn..header.end_lsn()).contains(&lsn);
        let mut files = self.log.files.iter().rev().filter_map(|f| Some((&f.path, f.header?)));
        let what = format!("log position {lsn}: {what}");
        let damage = match files.find(|(_, header)| holds(header)) {
            Some((path, header)) => {
                Damage::of(path, what).at(HEADER_BYTES as u64 + (lsn - header.first_lsn))
            }
            None => Damage::of(&self.directory.log, what),
        };
        self.findings.damage(damage);
        self.log.whole = false;
    }

    fn damage(&mut self, error: Error) {
        self.findings.damage(match error {
            Error::Corruption { file, offset, lsn, what } => {
                Damage::of(&file, format!("log position {lsn}: {what}")).at(offset)
            }
            Error::Missing { wanted, first, end, .. } => {
                let what =
                    format!("holds {first}..{end}, and the checkpoint needs it from {wanted}");
                Damage::of(&self.directory.log, what)
            }
            other => Damage::of(&self.directory.log, other.to_string()),
        });
        self.log.whole = false;
    }
}

/// In which order records may come: as recovery wants them.
struct Order {
    /// The newest commit, once it is known.
    newest: Option<u64>,
    /// The first commit may repeat some that every tree has.
    first: bool,
    /// Commits up to this are in every tree.
    flushed: u64,
    /// Transactions without a commit yet → their chunks.
    open: BTreeMap<u64, u32>,
    /// Records are missing before what is read.
    lost: bool,
    /// A commit may come twice, the first one being void, and its chunks once.
    has_cuts: bool,
}

impl Order {
    fn new(root: Option<&RootFacts>) -> Self {
        let flushed = root.map_or(0, |root| {
            let trees = root.dictionaries.iter().map(|dictionary| dictionary.flushed.0);
            trees.min().unwrap_or(0).min(root.timestamp.0)
        });
        let newest = Some(flushed);
        let open = BTreeMap::new();
        Self { newest, first: true, flushed, open, lost: false, has_cuts: false }
    }

    /// After a gap.
    fn start_again(&mut self) {
        self.open.clear();
        self.newest = None;
        self.lost = true;
    }

    /// What is wrong with the next record's place.
    fn next(&mut self, txn: u64, kind: RecordKind) -> Option<String> {
        match kind {
            RecordKind::Abort => {
                self.open.remove(&txn);
                None
            }
            RecordKind::Entry { .. } => None,
            RecordKind::Cut { timestamp, .. } => {
                // Others come under the same numbers.
                self.newest = Some(timestamp.0);
                self.has_cuts = true;
                None
            }
            RecordKind::Chunk { number } => {
                if number == 0 {
                    self.open.insert(txn, 0);
                }
                let there = self.open.get_mut(&txn)?;
                let expected = *there;
                *there = number.saturating_add(1);
                (expected != number).then(|| format!("chunk {number} of {txn} is out of order"))
            }
            RecordKind::Commit { timestamp, chunks } => {
                let there = self.open.remove(&txn).unwrap_or(0);
                let newest = self.newest.replace(timestamp.0);
                let follows = newest.is_none_or(|newest| {
                    let next = newest.saturating_add(1);
                    timestamp.0 == next || self.first && timestamp.0 <= next
                });
                self.first = false;
                if timestamp.0 == 0 || !follows && !self.lost {
                    let newest = newest.unwrap_or(0);
                    return Some(format!("commit {} follows commit {newest}", timestamp.0));
                }
                let known = !(self.lost || self.has_cuts && there == 0);
                let missing = there != chunks && timestamp.0 > self.flushed && known;
                missing.then(|| format!("chunks of commit {} are missing", timestamp.0))
            }
        }
    }
}
