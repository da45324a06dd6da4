//! Stored bytes of several pages, read at the same time: what somebody is going to need.
//!
//! Always true: a page's bytes are here only where all of them were read, from where the segment lay before the read
//! and after it.

use crate::UNIT;
use crate::inner::{AlignedRead, Inner};
use crate::segment::PageRef;
use crate::translation::SegmentId;
use os::{AlignedBuf, ReadRequest};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// What was read.
pub struct PageBatch {
    buf: AlignedBuf,
    waited: usize,
    /// Where each page lies in it; none where it was not read.
    ranges: Vec<Option<Range<usize>>>,
}

impl PageBatch {
    /// How many of the reads had to wait for the disk.
    pub fn waited(&self) -> usize {
        self.waited
    }

    /// Stored bytes of the pages in the order they were asked for, for [`crate::BlockFile::decode`]; none of a page that could not be
    /// read: whoever reads it alone learns why.
    pub fn pages(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.ranges.iter().map(|range| Some(&self.buf[range.clone()?]))
    }
}

/// Where one page's read goes in the buffer.
struct Planned {
    first: usize,
    read: AlignedRead,
}

impl Inner {
    pub(crate) fn read_pages(&self, pages: &[(SegmentId, PageRef)]) -> PageBatch {
        let moves = self.moves.load(Ordering::Acquire);
        let mut bytes = 0;
        let plan = |(id, page): &(SegmentId, PageRef)| {
            let entry = self.locate(*id, page.offset, u64::from(page.len)).ok()?;
            let read = self.aligned(entry.unit * UNIT + page.offset, page.len as usize);
            let planned = Planned { first: bytes, read };
            // A multiple of the alignment: the next one begins where direct reads may write to.
            bytes += read.length;
            Some(planned)
        };
        let planned: Vec<_> = pages.iter().map(plan).collect();
        let mut buf = AlignedBuf::zeroed(bytes);
        let (done, waited) = self.read_planned(planned.iter().flatten(), &mut buf);
        let mut done = done.into_iter();
        // Compaction may have moved a segment and given its old place away meanwhile.
        let moved = moves != self.moves.load(Ordering::Acquire);
        let range = |(planned, (_, page)): (Option<Planned>, &(SegmentId, PageRef))| {
            let Planned { first, read } = planned?;
            let is_read = done.next() == Some(true) && !moved;
            let first = first + read.within;
            is_read.then(|| first..first + page.len as usize)
        };
        let ranges = planned.into_iter().zip(pages).map(range).collect();
        PageBatch { buf, waited, ranges }
    }

    /// Does the reads; says which succeeded, and how many had to wait.
    fn read_planned<'p>(
        &self,
        planned: impl Iterator<Item = &'p Planned>,
        mut buf: &mut [u8],
    ) -> (Vec<bool>, usize) {
        let mut requests = Vec::new();
        for planned in planned {
            let (own, behind) = buf.split_at_mut(planned.read.length);
            requests.push(ReadRequest::new(planned.read.start, own));
            buf = behind;
        }
        let start = self.os.clock.monotonic();
        self.file.read_many(&mut requests);
        let took = self.os.clock.monotonic().saturating_sub(start);
        self.metrics.read_time.record_micros(took);
        for request in &requests {
            self.metrics.reads.inc();
            self.metrics.read_bytes.add(request.buf.len() as u64);
        }
        let waited = requests.iter().filter(|request| !request.was_at_hand).count();
        (requests.into_iter().map(|request| request.result.is_ok()).collect(), waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_takes_whole_parts_of_the_alignment() {
        let read = |offset, length, alignment| {
            let AlignedRead { start, within, length } = AlignedRead::of(offset, length, alignment);
            (start, within, length)
        };
        assert_eq!(read(10_000, 5_000, 1), (10_000, 0, 5_000));
        assert_eq!(read(10_000, 5_000, 512), (9_728, 272, 5_632));
        assert_eq!(read(10_000, 5_000, 4_096), (8_192, 1_808, 8_192));
        assert_eq!(read(8_192, 4_096, 4_096), (8_192, 0, 4_096));
        assert_eq!(read(8_191, 2, 4_096), (4_096, 4_095, 8_192));
    }
}
