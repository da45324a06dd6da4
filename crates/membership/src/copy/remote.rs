//! Asking another server for its data, over the clients' port: the commands and what they say.
//!
//! ```text
//! {_fernCopyBegin: 1, source: long, receiver: long, founder: long}
//!                                                                {copy: long, fileBytes: long, superblocks: bin, taken: bin, master: "fingerprint"?}
//! {_fernCopyRead: 1, copy, log: "name"?, offset, length, known: bin?}   {bytes: bin, checksum: bin} or {known: true}
//! {_fernCopyLog: 1, copy, keysFor: bin?}                         {files: [{name, bytes, length}], document: bin, keys: bin?}
//! {_fernCopyEnd: 1, copy}                                        {}
//! ```
//!
//! Checksums are 16 bytes, `taken` pairs of 8 bytes (from, to), all little-endian; without `log` it is the data file.

use super::{Arrived, Beginning, LogFile, LogPlan, PART_BYTES, Part, PublicKey, Request, Source};
use bson::raw::{CStr, cstr};
use bson::spec::BinarySubtype;
use bson::{RawBinaryRef, RawBsonRef, RawDocument, RawDocumentBuf};
use engine::{CopiedFile, FileParts};
use links::{Connection, Dialer, HostAndPort};
use quorum::MemberId;
use std::ops::Range;
use std::time::Duration;

/// What a server says and understands of these commands; another version is refused.
pub const VERSION: i32 = 1;
/// How long an answer may take: a begin writes a checkpoint.
const ANSWERS: Duration = Duration::from_mins(2);
/// How long it may take to connect and to log in.
const CONNECTS: Duration = Duration::from_secs(10);
/// An answer has as many bytes at most: what it brings, and more.
const MOST_BYTES: usize = PART_BYTES + (8 << 20);

/// Who copies whose data. The source refuses where it is not that member: another server may listen at its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    /// The member whose data is copied.
    pub source: MemberId,
    /// Who receives the copy.
    pub receiver: MemberId,
    /// Who has founded the set of both.
    pub founder: MemberId,
}

/// Another server as a source.
pub struct Remote<'a> {
    dialer: Dialer,
    to: HostAndPort,
    between: Between,
    ended: &'a dyn Fn() -> bool,
    copy: Option<i64>,
    /// Kept from one question to the next, until one fails.
    connection: Option<Connection>,
}

fn wrong(what: &str) -> String {
    format!("what it says of the copy cannot be read: {what}")
}

fn binary<'a>(answer: &'a RawDocument, name: &str) -> Result<&'a [u8], String> {
    match answer.get(name) {
        Ok(Some(RawBsonRef::Binary(binary))) => Ok(binary.bytes),
        _ => Err(wrong(name)),
    }
}

fn unsigned(answer: &RawDocument, name: &str) -> Result<u64, String> {
    let number = answer.get_i64(name).ok().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| wrong(name))
}

/// Bytes as a value.
pub(super) fn bytes_of(bytes: &[u8]) -> RawBinaryRef<'_> {
    RawBinaryRef { subtype: BinarySubtype::Generic, bytes }
}

impl<'a> Remote<'a> {
    /// The server at a port. `ended` says whether nobody waits for an answer any more.
    pub fn new(
        dialer: &Dialer,
        to: HostAndPort,
        between: Between,
        ended: &'a dyn Fn() -> bool,
    ) -> Self {
        Self { dialer: dialer.clone(), to, between, ended, copy: None, connection: None }
    }

    fn command(&self, name: &CStr) -> RawDocumentBuf {
        let mut command = RawDocumentBuf::new();
        command.append(name, VERSION);
        if let Some(copy) = self.copy {
            command.append(cstr!("copy"), copy);
        }
        command
    }

    fn ask(&mut self, command: RawDocumentBuf) -> Result<RawDocumentBuf, String> {
        self.send(command)?;
        self.receive_by(|connection, ended| connection.receive(ANSWERS, MOST_BYTES, ended))
    }

    fn send(&mut self, mut command: RawDocumentBuf) -> Result<(), String> {
        command.append(cstr!("$db"), "admin");
        let mut connection = match self.connection.take() {
            Some(open) => open,
            None => Connection::open(&self.dialer, &self.to, CONNECTS, self.ended)?,
        };
        connection.send(&command, ANSWERS, self.ended)?;
        self.connection = Some(connection);
        Ok(())
    }

    /// The answer to the oldest question that has none; the connection is kept where there is one.
    fn receive_by<T>(
        &mut self,
        receive: impl FnOnce(&mut Connection, &dyn Fn() -> bool) -> Result<T, String>,
    ) -> Result<T, String> {
        let Some(mut connection) = self.connection.take() else {
            return Err("the connection is lost".to_owned());
        };
        let answer = receive(&mut connection, self.ended)?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

impl Source for Remote<'_> {
    fn begin(&mut self) -> Result<Beginning, String> {
        self.copy = None;
        let mut command = self.command(cstr!("_fernCopyBegin"));
        let Between { source, receiver, founder } = self.between;
        command.append(cstr!("source"), source.0.cast_signed());
        command.append(cstr!("receiver"), receiver.0.cast_signed());
        command.append(cstr!("founder"), founder.0.cast_signed());
        let answer = self.ask(command)?;
        self.copy = Some(answer.get_i64("copy").map_err(|_| wrong("copy"))?);
        let (pairs, rest) = binary(&answer, "taken")?.as_chunks::<16>();
        let ranges = pairs.iter().map(|pair| {
            let pair = u128::from_le_bytes(*pair);
            pair as u64..(pair >> 64) as u64
        });
        let taken: Vec<Range<u64>> = ranges.collect();
        let file_bytes = unsigned(&answer, "fileBytes")?;
        let superblocks = binary(&answer, "superblocks")?.to_vec();
        let mut end = superblocks.len() as u64;
        let in_order = taken.iter().all(|range| {
            let follows = range.start >= end && range.start < range.end;
            end = range.end;
            follows
        });
        if !rest.is_empty() || !in_order || end > file_bytes {
            return Err(wrong("taken"));
        }
        let master = answer.get_str("master").ok().map(str::to_owned);
        Ok(Beginning { parts: FileParts { superblocks, taken, file_bytes }, master })
    }

    fn ask_part(&mut self, file: &CopiedFile, request: Request) -> Result<(), String> {
        let Request { offset, length, known } = request;
        let mut command = self.command(cstr!("_fernCopyRead"));
        if let CopiedFile::Log(name) = file {
            command.append(cstr!("log"), name.as_str());
        }
        command.append(cstr!("offset"), offset.cast_signed());
        command.append(cstr!("length"), length as i64);
        let known = known.map(u128::to_le_bytes);
        if let Some(known) = &known {
            command.append(cstr!("known"), bytes_of(known));
        }
        self.send(command)
    }

    fn next_part(&mut self, mut memory: Vec<u8>) -> Result<Arrived, String> {
        let length = self.receive_by(|connection, ended| {
            connection.receive_into(&mut memory, ANSWERS, MOST_BYTES, ended)
        })?;
        let answer = links::body_of(memory.get(..length).unwrap_or_default())?;
        if answer.get_bool("known").unwrap_or(false) {
            return Ok(Arrived { memory, part: Part::Known });
        }
        let sum = binary(answer, "checksum")?.as_array().ok_or_else(|| wrong("checksum"))?;
        let sum = u128::from_le_bytes(*sum);
        let bytes = binary(answer, "bytes")?;
        // They lie in the memory that was received into.
        let start = bytes.as_ptr().addr() - memory.as_ptr().addr();
        let range = start..start + bytes.len();
        Ok(Arrived { memory, part: Part::Bytes(range, sum) })
    }

    fn log(&mut self, keys_for: Option<&PublicKey>) -> Result<LogPlan, String> {
        let mut command = self.command(cstr!("_fernCopyLog"));
        if let Some(public) = keys_for {
            command.append(cstr!("keysFor"), bytes_of(public));
        }
        let answer = self.ask(command)?;
        let document = binary(&answer, "document")?.to_vec();
        let mut files = Vec::new();
        for file in answer.get_array("files").map_err(|_| wrong("files"))? {
            let Ok(RawBsonRef::Document(file)) = file else { return Err(wrong("files")) };
            let name = file.get_str("name").map_err(|_| wrong("name"))?.to_owned();
            let (bytes, length) = (unsigned(file, "bytes")?, unsigned(file, "length")?);
            if bytes > length {
                return Err(wrong("bytes"));
            }
            files.push(LogFile { name, bytes, length });
        }
        let has_keys = answer.get("keys").is_ok_and(|keys| keys.is_some());
        let keys = has_keys.then(|| binary(&answer, "keys")).transpose()?.map(<[u8]>::to_vec);
        Ok(LogPlan { files, document, keys })
    }

    fn end(&mut self) {
        // A copy that nobody reads ends by itself.
        let _later = self.ask(self.command(cstr!("_fernCopyEnd")));
        self.copy = None;
    }
}
