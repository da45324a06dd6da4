//! What is in the log's directory: which files make up the log, which are only spare.
//!
//! The log is a chain: every header names the segment before. A file behind the newest valid header
//! was never begun, or nothing in it was ever synced, since a sync takes the header along. A file the chain does not
//! name is a leftover of a trim, or held the torn end of an older epoch. Both are spares. A file that the
//! chain names and whose header is damaged is neither: it stays as it is for as long as the chain begins
//! with the one behind it, so that every start finds the damage, also where one was cut off that had found it.
//! (Replay cannot be positioned before it, and no spare is touched before replay is done.)

use std::io;
use std::path::{Path, PathBuf};

use os::{File, OpenOptions, Os};

use crate::Lsn;
use crate::error::{Error, Result};
use crate::segment::{
    EpochKey, HEADER_BYTES, HeaderError, PREPARED_NAME, SegmentHeader, VERSION, is_free,
    segment_number,
};

/// One segment of the log.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
}

/// What one start of the log wrote: consecutive segments with one salt.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    pub(crate) segments: Vec<Segment>,
    /// One past the last position that belongs to it: where the next epoch begins, or where the
    /// last segment is full.
    pub(crate) end: Lsn,
}

impl Epoch {
    pub(crate) fn salt(&self) -> u64 {
        self.segments[0].header.salt
    }

    /// Where its key comes from; none where its payloads are plain.
    pub(crate) fn key(&self) -> Option<EpochKey> {
        self.segments[0].header.key
    }

    pub(crate) fn first(&self) -> Lsn {
        self.segments[0].header.first_lsn
    }

    /// Everything before this was synced before the segment here was begun.
    pub(crate) fn last_segment_first(&self) -> Lsn {
        self.segments.last().map_or(0, |segment| segment.header.first_lsn)
    }

    pub(crate) fn segment_at(&self, lsn: Lsn) -> Option<&Segment> {
        let at = self.segments.partition_point(|segment| segment.header.first_lsn <= lsn);
        self.segments[..at].last().filter(|segment| lsn < segment.header.end_lsn())
    }
}

/// The log as found.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogScan {
    /// In order; none is without segments.
    pub(crate) epochs: Vec<Epoch>,
    /// Files that hold nothing of the log.
    pub(crate) spares: Vec<PathBuf>,
    /// The file that the log would begin with, were its header not damaged.
    pub(crate) damaged: Option<PathBuf>,
}

impl LogScan {
    /// The number of the newest segment, 0 for none.
    pub(crate) fn last_number(&self) -> u64 {
        self.segments().last().map_or(0, |segment| segment.header.number)
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.epochs.iter().flat_map(|epoch| &epoch.segments)
    }
}

pub(crate) fn scan(os: &Os, dir: &Path) -> Result<LogScan> {
    let names = match os.vfs.list_dir(dir) {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(LogScan::default()),
        Err(e) => return Err(Error::io("list", dir, e)),
    };
    let prepared = dir.join(PREPARED_NAME);
    let prepared = names.contains(&prepared).then_some(prepared);
    let mut found = scan_files(os, names)?;
    found.spares.extend(prepared);
    Ok(found)
}

/// The log that these files make up, wherever each of them lies.
pub(crate) fn scan_files(os: &Os, names: Vec<PathBuf>) -> Result<LogScan> {
    let mut found = LogScan::default();
    let number_of = |path: &PathBuf| segment_number(path.file_name()?.to_str()?);
    let mut files: Vec<(u64, PathBuf)> =
        names.into_iter().filter_map(|path| Some((number_of(&path)?, path))).collect();
    files.sort_unstable();
    let mut chain: Vec<Segment> = Vec::new();
    for (number, path) in files.into_iter().rev() {
        let header = read_header(os, number, &path)?;
        let in_chain =
            |header: &SegmentHeader| chain.last().is_none_or(|next| precedes(header, &next.header));
        if let Some(header) = header.filter(in_chain) {
            chain.push(Segment { path, header });
        } else {
            found.spares.push(path);
        }
    }
    let before = chain.last().map_or(0, |oldest| oldest.header.previous);
    let is_before = |path: &PathBuf| before > 0 && number_of(path) == Some(before);
    if let Some(at) = found.spares.iter().position(is_before)
        && has_damaged_header(os, before, &found.spares[at])?
    {
        found.damaged = Some(found.spares.swap_remove(at));
    }
    chain.reverse();
    for segment in chain {
        let (first, end) = (segment.header.first_lsn, segment.header.end_lsn());
        match found.epochs.last_mut() {
            Some(epoch) if epoch.salt() == segment.header.salt => {
                epoch.segments.push(segment);
                epoch.end = end;
            }
            previous => {
                if let Some(epoch) = previous {
                    epoch.end = first;
                }
                found.epochs.push(Epoch { segments: vec![segment], end });
            }
        }
    }
    let in_order = |epoch: &Epoch| !epoch.segments.is_empty() && epoch.first() <= epoch.end;
    debug_assert!(
        found.epochs.iter().all(in_order),
        "an epoch has segments, and ends behind its start"
    );
    Ok(found)
}

/// Whether a segment is the one that `next` continues, and reaches it.
fn precedes(header: &SegmentHeader, next: &SegmentHeader) -> bool {
    let reaches = if header.salt == next.salt {
        header.end_lsn() == next.first_lsn
    } else {
        header.first_lsn <= next.first_lsn && next.first_lsn <= header.end_lsn()
    };
    header.number == next.previous && reaches
}

/// Whether what stands where the header should be is neither one nor what a file that was let go of
/// has there. (Zeros are damage, too: every file that another one names as the one before had a header.)
fn has_damaged_header(os: &Os, number: u64, path: &Path) -> Result<bool> {
    let (bytes, got) = header_bytes(os, path)?;
    let found = SegmentHeader::decode_either(number, &bytes[..got]);
    Ok(found == Err(HeaderError::Invalid) && !is_free(&bytes[..got]))
}

fn header_bytes(os: &Os, path: &Path) -> Result<([u8; HEADER_BYTES], usize)> {
    let failed = |what| move |e| Error::io(what, path, e);
    let file = os.vfs.open(path, OpenOptions::read_only()).map_err(failed("open"))?;
    let mut bytes = [0; HEADER_BYTES];
    let got = read_up_to(&*file, &mut bytes, 0).map_err(failed("read"))?;
    Ok((bytes, got))
}

pub(crate) fn read_header(os: &Os, number: u64, path: &Path) -> Result<Option<SegmentHeader>> {
    let (bytes, got) = header_bytes(os, path)?;
    match SegmentHeader::decode_either(number, &bytes[..got]) {
        Ok(header) => Ok(Some(header)),
        Err(HeaderError::Invalid) => Ok(None),
        Err(HeaderError::Version(found)) => {
            Err(Error::Version { file: path.to_path_buf(), found, known: VERSION })
        }
    }
}

/// Fills as much of `buf` as the file has.
pub(crate) fn read_up_to(file: &dyn File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
