//! A copy of a member's data and log for one that its log does not reach back to.
//!
//! ```text
//!  who has                                  who lacks
//!  Outgoing: a backup, held     ◄─ begin ─  receive, on a thread of its own
//!    parts of the data file     ◄─ read ──    each part with the checksum of what an interrupted copy left of it:
//!    "you have it", or bytes    ── … ────►    what is the same does not come again; many are asked for ahead, and what
//!                                             came is written while the next is checked (`fetch`, `write_behind`)
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

mod fetch;
mod outgoing;
mod remote;
mod write_behind;

pub use outgoing::{LogFile, Outgoing, OutgoingPart};
pub use remote::{Between, Remote, VERSION};

use crate::delay_log;
use crate::set_document::SetDocument;
use crate::set_file;
use crypt::KeyRequest;
use engine::{CopiedFile, FileParts, Options, Receiving};
use fetch::Fetch;
use os::Os;
use quorum::MemberId;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_128;

/// The name of `fern.keys` in the directory.
const KEYS_NAME: &str = crypt::FILE_NAME;
/// Bytes of one part, at most.
pub const PART_BYTES: usize = 4 << 20;

/// By what two sides know that they have the same.
pub fn checksum(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

/// A part of a file, as the source answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Who asks has it already.
    Known,
    /// Its bytes, which lie there in the answer, and their checksum where they were read.
    Bytes(Range<usize>, u128),
}

/// An answer about a part, in the memory that it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The answer, and what else the memory had.
    pub memory: Vec<u8>,
    /// What it says.
    pub part: Part,
}

impl Arrived {
    /// The part's bytes; none where they are known.
    pub fn bytes(&self) -> &[u8] {
        match &self.part {
            Part::Known => &[],
            Part::Bytes(range, _) => self.memory.get(range.clone()).unwrap_or_default(),
        }
    }
}

/// A part that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where it begins in its file, in bytes.
    pub offset: u64,
    /// Its length in bytes, at most [`PART_BYTES`].
    pub length: usize,
    /// The checksum of what the receiver has of it already.
    pub known: Option<u128>,
}

/// What of the log has to be copied, and the set's document by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlan {
    /// The files, in order.
    pub files: Vec<LogFile>,
    /// The set's newest decided document, encoded.
    pub document: Vec<u8>,
    /// `fern.keys`, where the files are encrypted; where that was asked for the data keys for a public key.
    pub keys: Option<Vec<u8>>,
}

/// Made by who receives a copy, for the source to encrypt its data keys for.
pub type PublicKey = [u8; crypt::PUBLIC_KEY_BYTES];

/// What a source says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// What of the data file is to be copied.
    pub parts: FileParts,
    /// The fingerprint of the master key that its files are encrypted with, if they are.
    pub master: Option<String>,
}

/// Where a copy comes from. An error is one line that says why there is no answer.
pub trait Source {
    /// Holds the data as it is now; answers what of the data file is to be copied. What was held for the same
    /// receiver before is let go of.
    fn begin(&mut self) -> Result<Beginning, String>;

    /// Asks for a part of a file, and does not wait for it.
    fn ask_part(&mut self, file: &CopiedFile, request: Request) -> Result<(), String>;

    /// The oldest part that was asked for and has not come yet, in memory that is used again.
    fn next_part(&mut self, memory: Vec<u8>) -> Result<Arrived, String>;

    /// What of the log is to be copied, now that the data file is. With `keys_for` the data keys are wanted for that
    /// public key, and not as the source's own master key has wrapped them.
    fn log(&mut self, keys_for: Option<&PublicKey>) -> Result<LogPlan, String>;

    /// Lets go of what is held.
    fn end(&mut self);
}

/// Who sees how far a copy is.
pub trait Watch {
    /// Whether nobody wants the copy any more.
    fn has_ended(&self) -> bool;

    /// Bytes that are here, of how many there will be, as far as that is known; and those of them that came now. Waits
    /// where the copy is faster than it may be, and says whether it did.
    fn at(&self, progress: Progress) -> bool;
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
    /// The thread that writes what has come is gone.
    #[error("the thread that writes it has ended")]
    NobodyWrites,
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
    let mut copy = Fetch::new(os, Receiving::begin(os, options)?, source, watch);
    let Beginning { parts, master } = copy.source.begin().map_err(CopyError::Source)?;
    let request = key_request(os, options, master.as_deref())?;
    copy.progress.total = parts.taken.iter().map(|range| range.end - range.start).sum();
    copy.fetch(&CopiedFile::Data, &parts.taken)?;
    copy.receiving.finish_data(&parts)?;
    let keys_for = request.as_ref().map(KeyRequest::public);
    let plan = copy.source.log(keys_for).map_err(CopyError::Source)?;
    let document = SetDocument::decode(&plan.document);
    let document = document.map_err(|error| CopyError::Source(error.to_string()))?;
    if document.id_of(receiver).is_none() {
        let text = "its configuration does not have this member any more";
        return Err(CopyError::Source(text.to_owned()));
    }
    for LogFile { name, bytes, length } in &plan.files {
        copy.progress.total += bytes;
        copy.fetch(&CopiedFile::Log(name.clone()), std::slice::from_ref(&(0..*bytes)))?;
        copy.receiving.finish_log(name, *bytes, *length)?;
    }
    let state = set_file::encode_document(&document);
    let state = state.map_err(|error| CopyError::Source(error.to_string()))?;
    let log: Vec<String> = plan.files.into_iter().map(|file| file.name).collect();
    let mut beside = vec![(set_file::NAME.to_owned(), state)];
    match (plan.keys, master) {
        (Some(keys), Some(_)) => {
            let keys = wrapped(os, options, request.as_ref(), keys)?;
            beside.push((KEYS_NAME.to_owned(), keys));
        }
        (None, None) => {}
        _ => return Err(CopyError::Source("its keys do not come with its files".to_owned())),
    }
    let was_delayed = delay_log::exists(os, &options.dir);
    if was_delayed.map_err(|error| CopyError::Source(error.to_string()))? {
        beside.push((delay_log::VOID.to_owned(), Vec::new()));
    }
    copy.receiving.finish(&log, &beside)?;
    copy.source.end();
    Ok(())
}

/// The files come as the source has them, so that both have to be encrypted, or neither: a member writes nothing that its
/// own key does not hide. Where their master keys are not the same the data keys are asked for.
fn key_request(
    os: &Os,
    options: &Options,
    source: Option<&str>,
) -> Result<Option<KeyRequest>, CopyError> {
    let own = options.master.as_ref().map(|master| master.fingerprint().to_string());
    match (own.as_deref(), source) {
        (own, source) if own == source => Ok(None),
        (Some(_), Some(_)) => Ok(Some(KeyRequest::new(&*os.entropy))),
        (own, source) => {
            let said =
                |master: Option<&str>| if master.is_some() { "encrypted" } else { "not encrypted" };
            Err(CopyError::Source(format!(
                "its data is {}, and this member's is {}: the members of a set encrypt what they keep (--enableEncryption), \
                 all of them or none",
                said(source),
                said(own)
            )))
        }
    }
}

/// `fern.keys` as it belongs to the copy: as it came, or the data keys that came wrapped by this member's master key.
fn wrapped(
    os: &Os,
    options: &Options,
    request: Option<&KeyRequest>,
    came: Vec<u8>,
) -> Result<Vec<u8>, CopyError> {
    let (Some(request), Some(master)) = (request, &options.master) else { return Ok(came) };
    let wrapped = request.open(&came).and_then(|ring| ring.to_file(master, &*os.entropy));
    wrapped.map_err(|error| CopyError::Source(format!("its data keys cannot be taken: {error}")))
}
