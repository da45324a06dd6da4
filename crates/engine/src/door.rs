//! What the engine asks of a tree beyond memory, until `ftree` answers it itself: a tree lives in
//! its memtables only, so the log is never trimmed and recovery replays all of it.

use crate::Result;
use ftree::{Context, Tree, TreeOptions, Visibility};
use std::sync::Arc;

pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    pub(crate) flushed_ts: u64,
}

pub(crate) struct Progress {
    pub(crate) more: bool,
}

#[derive(Default)]
pub(crate) struct Debt {
    pub(crate) sealed_bytes: u64,
    pub(crate) buffered_bytes: u64,
}

impl Debt {
    pub(crate) fn total(&self) -> u64 {
        self.sealed_bytes + self.buffered_bytes
    }
}

#[derive(Default)]
pub(crate) struct TreeStats {
    pub(crate) entries: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) stored_bytes: u64,
}

pub(crate) fn open(context: &Arc<Context>, id: u64, shape: TreeOptions) -> Arc<Tree> {
    Tree::create(context, id, shape)
}

pub(crate) trait Door {
    fn image(&self, _watermark: u64) -> Image {
        Image { bytes: Vec::new(), flushed_ts: 0 }
    }
    fn work(&self, _visibility: &Visibility) -> Result<Progress> {
        Ok(Progress { more: false })
    }
    fn clean(&self, _visibility: &Visibility) -> Result<()> {
        Ok(())
    }
    fn debt(&self) -> Debt {
        Debt::default()
    }
    fn flushed_ts(&self) -> u64 {
        0
    }
    fn segments(&self) -> Vec<blockfile::SegmentId> {
        Vec::new()
    }
    fn drop_all(&self) {}
    fn verify(&self) -> Result<()> {
        Ok(())
    }
    fn stats(&self) -> TreeStats {
        TreeStats::default()
    }
}

impl Door for Arc<Tree> {}
