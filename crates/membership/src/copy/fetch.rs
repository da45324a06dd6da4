//! Fetches the parts of a copy's files, many asked for ahead.
//!
//! ```text
//!  questions under way: PARTS_AHEAD ──▶ source reads, hashes, sends ──▶ next_part ── checked ──▶ WriteBehind ──▶ file
//! ```
//!
//! Always true: a part is written at the place that it was asked for, and only as it was read; what counts as done is
//! written, or was there.

use super::write_behind::WriteBehind;
use super::{CopyError, PART_BYTES, Part, Progress, Request, Source, Watch, checksum};
use engine::{CopiedFile, ReceivedFile, Receiving};
use os::Os;
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes that are asked for at once. A part of this size stays in the processor's cache while it is read, checked and
/// sent, and what it takes is small enough for the allocator to keep.
const ASKED_BYTES: usize = 512 << 10;
const _: () = assert!(ASKED_BYTES <= PART_BYTES, "no more is asked for than is given");
/// Parts that are asked for before the first of them has come, so that the source is never without work. What waits of
/// them lies with the source and the sockets.
const PARTS_AHEAD: usize = 16;
/// How often a part that is not what was read is asked for.
const ATTEMPTS: u32 = 5;

/// A copy that is being fetched.
pub(super) struct Fetch<'a> {
    pub(super) receiving: Receiving,
    pub(super) source: &'a mut dyn Source,
    pub(super) progress: Progress,
    watch: &'a dyn Watch,
    writes: WriteBehind<ReceivedFile>,
}

/// A part that was asked for, and how often.
struct Asked {
    request: Request,
    attempt: u32,
}

/// Ranges of a file in parts, in order.
fn parts_of(ranges: &[Range<u64>]) -> impl Iterator<Item = (u64, usize)> + '_ {
    ranges.iter().flat_map(|range| {
        range.clone().step_by(ASKED_BYTES).map(move |offset| {
            let left = usize::try_from(range.end - offset).unwrap_or(ASKED_BYTES);
            (offset, left.min(ASKED_BYTES))
        })
    })
}

impl<'a> Fetch<'a> {
    /// Nothing is there yet.
    pub(super) fn new(
        os: &Os,
        receiving: Receiving,
        source: &'a mut dyn Source,
        watch: &'a dyn Watch,
    ) -> Self {
        let writes = WriteBehind::new(&*os.spawner);
        Self { receiving, source, progress: Progress::default(), watch, writes }
    }

    /// Fetches ranges of a file. When it returns they are written.
    pub(super) fn fetch(
        &mut self,
        file: &CopiedFile,
        ranges: &[Range<u64>],
    ) -> Result<(), CopyError> {
        let to = self.receiving.file(file)?;
        let mut parts = parts_of(ranges);
        let mut asked = VecDeque::new();
        loop {
            while asked.len() < PARTS_AHEAD
                && let Some((offset, length)) = parts.next()
            {
                let known = self.receiving.known(file, offset, length)?;
                let known = known.map(|bytes| checksum(&bytes));
                let request = Request { offset, length, known };
                self.source.ask_part(file, request).map_err(CopyError::Source)?;
                asked.push_back(Asked { request, attempt: 1 });
            }
            let Some(Asked { request, attempt }) = asked.pop_front() else { break };
            if self.watch.has_ended() {
                return Err(CopyError::Ended);
            }
            if self.take_part(&to, request)? {
                if self.watch.at(self.progress) {
                    to.note_held_back();
                }
                continue;
            }
            let Request { offset, length, .. } = request;
            if attempt == ATTEMPTS {
                let text =
                    format!("{length} bytes of {file:?} at {offset} do not come as they were read");
                return Err(CopyError::Source(text));
            }
            tracing::warn!(target: "REPL", ?file, offset, length,
                "A part of the copy came damaged: it is asked for again");
            self.source.ask_part(file, request).map_err(CopyError::Source)?;
            asked.push_back(Asked { request, attempt: attempt + 1 });
        }
        self.progress.done += self.writes.settle()?;
        self.watch.at(self.progress);
        Ok(())
    }

    /// Takes the next part that comes, which was asked for by this request. Says whether it came as it was read.
    fn take_part(&mut self, to: &ReceivedFile, request: Request) -> Result<bool, CopyError> {
        let Request { offset, length, known } = request;
        let arrived = self.source.next_part(self.writes.memory()).map_err(CopyError::Source)?;
        match arrived.part {
            Part::Known => {
                self.writes.give_back(arrived.memory);
                if known.is_some() {
                    self.progress.done += length as u64;
                }
                Ok(known.is_some())
            }
            Part::Bytes(_, sum) => {
                let bytes = arrived.bytes();
                self.progress.received += bytes.len() as u64;
                let is_whole = bytes.len() == length && checksum(bytes) == sum;
                if is_whole {
                    self.progress.done += self.writes.write(to.clone(), offset, arrived)?;
                } else {
                    self.writes.give_back(arrived.memory);
                }
                Ok(is_whole)
            }
        }
    }
}
