//! The moments of an archive: lines of one length beside each file of the log.
//!
//! ```text
//! FernDB log times, format 1                       spaces up to 47 bytes, newline
//! milliseconds since 1970 (17 digits) position (20 digits) crc32c of both, with the spaces (8 hex digits)
//! ```
//!
//! While nothing is written the last line but one stays, and the last is written over, so that an idle
//! server shows that it was there and the file does not grow.

use crate::Lsn;
use crate::directory::read_up_to;
use crate::error::{Error, Result};
use os::{File, OpenOptions, Os};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TITLE: &str = "FernDB log times, format 1";
/// Bytes of a line, its newline included.
const LINE_BYTES: usize = 48;
/// How often an idle server says that it is there.
const IDLE_MS: i64 = 5000;
/// Bytes that are read at once: whole lines.
const READ_BYTES: usize = LINE_BYTES * 4096;

/// At a moment, how far the log was on disk, and in the archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Milliseconds since 1970 by the server's clock.
    pub wall_ms: i64,
    /// Everything before this was on disk.
    pub position: Lsn,
}

/// The moments of the file that grows.
pub(super) struct Times {
    file: Arc<dyn File>,
    path: PathBuf,
    bytes: u64,
    last: Option<Moment>,
    /// The last two lines have one position.
    is_repeated: bool,
}

pub(super) fn times_name(number: u64) -> String {
    format!("log.{number:08}.times")
}

pub(super) fn is_times_name(name: &str) -> Option<u64> {
    let number = name.strip_prefix("log.")?.strip_suffix(".times")?.parse().ok()?;
    (times_name(number) == name).then_some(number)
}

fn title_line() -> String {
    format!("{TITLE:<width$}\n", width = LINE_BYTES - 1)
}

fn line(moment: Moment) -> String {
    let facts = format!("{:017} {:020} ", moment.wall_ms.max(0), moment.position);
    let crc = crc32c::crc32c(facts.as_bytes());
    format!("{facts}{crc:08x}\n")
}

fn parse(bytes: &[u8]) -> Option<Moment> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (wall_ms, rest) = text.split_once(' ')?;
    let (position, _) = rest.split_once(' ')?;
    let moment = Moment { wall_ms: wall_ms.parse().ok()?, position: position.parse().ok()? };
    (line(moment).as_bytes() == bytes).then_some(moment)
}

impl Times {
    /// Opens the moments of a file of the log, or begins them.
    pub(super) fn open(os: &Os, dir: &Path, number: u64) -> Result<Self> {
        let path = dir.join(times_name(number));
        let failed = |what| {
            let path = path.clone();
            move |e| Error::io(what, &path, e)
        };
        let file = os.vfs.open(&path, OpenOptions::create()).map_err(failed("open"))?;
        let length = file.len().map_err(failed("size of"))?;
        let lines = (length / LINE_BYTES as u64).max(1);
        let bytes = lines * LINE_BYTES as u64;
        file.write_all_at(title_line().as_bytes(), 0).map_err(failed("write"))?;
        file.set_len(bytes).map_err(failed("cut"))?;
        file.sync_all().map_err(failed("sync"))?;
        os.vfs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
        Ok(Self { file, path, bytes, last: None, is_repeated: false })
    }

    /// Everything before `position` was on disk at a moment, and is in the archive.
    pub(super) fn note(&mut self, wall_ms: i64, position: Lsn) -> Result<()> {
        let moment = Moment { wall_ms, position };
        let (at, repeated) = match self.last {
            Some(last) if last.position == position => {
                if wall_ms.saturating_sub(last.wall_ms).abs() < IDLE_MS {
                    return Ok(());
                }
                let over = if self.is_repeated { LINE_BYTES as u64 } else { 0 };
                (self.bytes - over, true)
            }
            _ => (self.bytes, false),
        };
        debug_assert!(at >= LINE_BYTES as u64, "the title stays");
        debug_assert!(at.is_multiple_of(LINE_BYTES as u64), "lines have one length");
        let written = self.file.write_all_at(line(moment).as_bytes(), at);
        written.map_err(|e| Error::io("write", &self.path, e))?;
        self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e))?;
        self.bytes = at + LINE_BYTES as u64;
        self.last = Some(moment);
        self.is_repeated = repeated;
        Ok(())
    }
}

/// The moments in a file. A line that is not whole, or damaged, is left out.
pub(super) fn read(os: &Os, path: &Path) -> Result<Vec<Moment>> {
    let failed = |what| move |e| Error::io(what, path, e);
    let file = os.vfs.open(path, OpenOptions::read_only()).map_err(failed("open"))?;
    let mut moments = Vec::new();
    let (mut buffer, mut at) = (vec![0; READ_BYTES], 0);
    loop {
        let got = read_up_to(&*file, &mut buffer, at).map_err(failed("read"))?;
        moments.extend(buffer[..got].chunks_exact(LINE_BYTES).filter_map(parse));
        if got < READ_BYTES {
            return Ok(moments);
        }
        at += got as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_as_it_was_written_and_a_damaged_one_does_not() {
        let moment = Moment { wall_ms: 1_795_839_447_123, position: 77_000 };
        let text = line(moment);
        assert_eq!(text, "00001795839447123 00000000000000077000 2ad33c1e\n");
        assert_eq!((text.len(), title_line().len()), (LINE_BYTES, LINE_BYTES));
        assert_eq!(parse(text.as_bytes()), Some(moment));
        for at in 0..LINE_BYTES {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(parse(&bytes), None, "byte {at}");
        }
        assert_eq!(parse(title_line().as_bytes()), None);
        assert_eq!(is_times_name(&times_name(7)), Some(7));
        assert_eq!(is_times_name("log.7.times"), None);
    }
}
