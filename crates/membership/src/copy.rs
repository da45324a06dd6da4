//! A copy of a member's data and log for one that its log does not reach back to.
//!
//! ```text
//!  who has                                  who lacks
//!  Outgoing: a backup, held     ◄─ begin ─  receive, on a thread of its own
//!    parts of the data file     ◄─ read ──    each part with the checksum of what an interrupted copy left of it:
//!    "you have it", or bytes    ── … ────►    what is the same does not come again
//!    the log as it is by then   ◄─ log ───
//!                               ◄─ end ───  complete: the next start takes it
//! ```
//!
//! The four questions are commands of the clients' port; `remote` asks them, the commands answer. What a copy has
//! beside the engine's files is `set.state`, as the source has it when the log was looked at. `raft.state` is never
//! copied: who receives stays who it is.
//!
//! Always true: every part is checked when it comes, and one that is not what was read is asked for again; whoever
//! answers is the member that was meant, of the same set, and his configuration has the one who receives.

mod outgoing;
mod remote;

pub use outgoing::{LogFile, Outgoing};
pub use remote::{Between, Remote, VERSION};

use crate::set_document::SetDocument;
use crate::set_file;
use engine::{CopiedFile, FileParts, Options, Receiving};
use os::Os;
use quorum::MemberId;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of one part, at most.
pub const PART_BYTES: usize = 4 << 20;
/// How often a part that is not what was read is asked for.
const ATTEMPTS: u32 = 5;

/// By what two sides know that they have the same.
pub fn checksum(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

/// A part of a file, as the source answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Who asks has it already.
    Known,
    /// Its bytes, and their checksum where they were read.
    Bytes(Vec<u8>, u128),
}

/// What of the log has to be copied, and the set's document by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlan {
    /// The files, in order.
    pub files: Vec<LogFile>,
    /// The set's newest decided document, encoded.
    pub document: Vec<u8>,
}

/// Where a copy comes from. An error is one line that says why there is no answer.
pub trait Source {
    /// Holds the data as it is now; answers what of the data file is to be copied. What was held for the same
    /// receiver before is let go of.
    fn begin(&mut self) -> Result<FileParts, String>;

    /// A part of a file. `known` is the checksum of what who asks has of it.
    fn read(
        &mut self,
        file: &CopiedFile,
        offset: u64,
        length: usize,
        known: Option<u128>,
    ) -> Result<Part, String>;

    /// What of the log is to be copied, now that the data file is.
    fn log(&mut self) -> Result<LogPlan, String>;

    /// Lets go of what is held.
    fn end(&mut self);
}

/// Who sees how far a copy is.
pub trait Watch {
    /// Whether nobody wants the copy any more.
    fn has_ended(&self) -> bool;

    /// Bytes that are here, of how many there will be, as far as that is known; and those of them that came now.
    fn at(&self, progress: Progress);
}

/// How far a copy is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What is there.
    pub done: u64,
    /// What there will be, as far as it is known: the log's files are counted when they come.
    pub total: u64,
    /// What came over the wire.
    pub received: u64,
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The source does not answer, or refuses.
    #[error("{0}")]
    Source(String),
    /// This machine's disk.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// Nobody wants it any more.
    #[error("it was ended")]
    Ended,
}

/// Receives a copy for the directory of these options. When it returns, the copy is complete and on disk; the next
/// start takes it ([`engine::take_received`]). What came before an error need not come again.
pub fn receive(
    os: &Os,
    options: &Options,
    receiver: MemberId,
    source: &mut dyn Source,
    watch: &dyn Watch,
) -> Result<(), CopyError> {
    let mut copy = Copy {
        receiving: Receiving::begin(os, options)?,
        source,
        watch,
        progress: Progress::default(),
    };
    let parts = copy.source.begin().map_err(CopyError::Source)?;
    copy.progress.total = parts.taken.iter().map(|range| range.end - range.start).sum();
    for range in &parts.taken {
        copy.fetch(&CopiedFile::Data, range.start, range.end)?;
    }
    copy.receiving.finish_data(&parts)?;
    let plan = copy.source.log().map_err(CopyError::Source)?;
    let document = SetDocument::decode(&plan.document);
    let document = document.map_err(|error| CopyError::Source(error.to_string()))?;
    if document.id_of(receiver).is_none() {
        let text = "its configuration does not have this member any more";
        return Err(CopyError::Source(text.to_owned()));
    }
    for LogFile { name, bytes, length } in &plan.files {
        copy.progress.total += bytes;
        copy.fetch(&CopiedFile::Log(name.clone()), 0, *bytes)?;
        copy.receiving.finish_log(name, *bytes, *length)?;
    }
    let state = set_file::encode_document(&document);
    let state = state.map_err(|error| CopyError::Source(error.to_string()))?;
    let log: Vec<String> = plan.files.into_iter().map(|file| file.name).collect();
    copy.receiving.finish(&log, &[(set_file::NAME.to_owned(), state)])?;
    copy.source.end();
    Ok(())
}

struct Copy<'a> {
    receiving: Receiving,
    source: &'a mut dyn Source,
    watch: &'a dyn Watch,
    progress: Progress,
}

impl Copy<'_> {
    fn fetch(&mut self, file: &CopiedFile, from: u64, to: u64) -> Result<(), CopyError> {
        let mut at = from;
        while at < to {
            if self.watch.has_ended() {
                return Err(CopyError::Ended);
            }
            let length = usize::try_from(to - at).map_or(PART_BYTES, |left| left.min(PART_BYTES));
            self.fetch_part(file, at, length)?;
            at += length as u64;
            self.progress.done += length as u64;
            self.watch.at(self.progress);
        }
        Ok(())
    }

    fn fetch_part(&mut self, file: &CopiedFile, at: u64, length: usize) -> Result<(), CopyError> {
        let known = self.receiving.known(file, at, length)?.map(|bytes| checksum(&bytes));
        for _ in 0..ATTEMPTS {
            match self.source.read(file, at, length, known).map_err(CopyError::Source)? {
                Part::Known if known.is_some() => return Ok(()),
                Part::Known => break,
                Part::Bytes(bytes, sum) => {
                    self.progress.received += bytes.len() as u64;
                    if bytes.len() == length && checksum(&bytes) == sum {
                        self.receiving.write(file, at, &bytes)?;
                        return Ok(());
                    }
                    tracing::warn!(target: "REPL", ?file, offset = at, length,
                        "A part of the copy came damaged: it is asked for again");
                }
            }
        }
        let text = format!("{length} bytes of {file:?} at {at} do not come as they were read");
        Err(CopyError::Source(text))
    }
}
