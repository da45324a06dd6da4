//! Making segment files: the order in which name, space and header reach the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use os::{File, OpenOptions, Os};

use crate::directory::Segment;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::segment::{HEADER_BYTES, SegmentHeader, segment_name};
use crate::{Lsn, WalOptions};

/// Makes segment files, from spare ones where there are some.
pub(crate) struct SegmentMaker<'a> {
    pub(crate) os: &'a Os,
    pub(crate) dir: &'a Path,
    pub(crate) options: WalOptions,
    pub(crate) metrics: &'a Metrics,
}

/// What a new segment's header will say.
#[derive(Clone, Copy)]
pub(crate) struct Begin {
    pub(crate) number: u64,
    pub(crate) salt: u64,
    pub(crate) first_lsn: Lsn,
    pub(crate) previous: u64,
}

impl SegmentMaker<'_> {
    /// Begins a segment: the file has its name, its space and its header, all on disk.
    pub(crate) fn begin(
        &self,
        begin: Begin,
        spares: &mut Vec<PathBuf>,
    ) -> Result<(Segment, Arc<dyn File>)> {
        let Begin { number, salt, first_lsn, previous } = begin;
        let path = self.dir.join(segment_name(number));
        let bytes = self.options.file_bytes();
        let failed = |what| {
            let path = path.clone();
            move |e| Error::io(what, &path, e)
        };
        let vfs = &self.os.vfs;
        // a full disk must not cost the spare: it leaves the list when the segment is begun
        let spare = spares.iter().position(|spare| *spare == path);
        let spare = spare.or(spares.len().checked_sub(1));
        if let Some(spare) = spare.map(|at| &mut spares[at]).filter(|spare| **spare != path) {
            vfs.rename(spare, &path).map_err(failed("rename a spare to"))?;
            spare.clone_from(&path);
        }
        let file = vfs.open(&path, OpenOptions::create()).map_err(failed("make"))?;
        if file.len().map_err(failed("size of"))? > bytes {
            file.set_len(bytes).map_err(failed("cut"))?;
        }
        file.allocate(0, bytes).map_err(failed("reserve"))?;
        vfs.sync_dir(self.dir).map_err(failed("sync the directory of"))?;
        let body_bytes = bytes - HEADER_BYTES as u64;
        let header = SegmentHeader { number, salt, first_lsn, body_bytes, previous };
        file.write_all_at(&header.encode(), 0).map_err(failed("write"))?;
        file.sync_all().map_err(failed("sync"))?;
        if let Some(at) = spare {
            spares.remove(at);
            self.metrics.segments_recycled.inc();
        } else {
            self.metrics.segments_made.inc();
        }
        Ok((Segment { path, header }, file))
    }
}
