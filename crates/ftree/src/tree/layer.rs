//! What lies between the active memtable and the root, in the order it was committed.

use crate::error::Result;
use crate::memtable::{MemIter, MemTable};
use crate::merge::MergeSource;
use crate::message::{Direction, Place};
use crate::overlay::{Overlay, OverlayIter};
use std::sync::Arc;

/// One layer; drained oldest first.
#[derive(Clone)]
pub(crate) enum Layer {
    /// A memtable that takes no more inserts.
    Table(Arc<MemTable>),
    /// A transaction that was too large for memory.
    Overlay(Arc<Overlay>),
}

impl Layer {
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Layer::Table(one), Layer::Table(other)) => Arc::ptr_eq(one, other),
            (Layer::Overlay(one), Layer::Overlay(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub(crate) fn table(&self) -> Option<&Arc<MemTable>> {
        match self {
            Layer::Table(table) => Some(table),
            Layer::Overlay(_) => None,
        }
    }

    /// Every commit up to here is drained once this layer and all older ones are.
    pub(crate) fn flushed_ts(&self) -> u64 {
        match self {
            Layer::Table(table) => table.flushed_ts(),
            Layer::Overlay(overlay) => overlay.flushed_ts(),
        }
    }

    /// A timestamp at or above all in it; 0 where nobody asks for one.
    pub(crate) fn newest_ts(&self) -> u64 {
        match self {
            Layer::Table(table) => table.newest_ts(),
            Layer::Overlay(overlay) => overlay.ts(),
        }
    }

    pub(crate) fn raise_flushed_ts(&self, flushed_ts: u64) {
        match self {
            Layer::Table(table) => table.raise_flushed_ts(flushed_ts),
            Layer::Overlay(overlay) => overlay.raise_flushed_ts(flushed_ts),
        }
    }

    /// Its entries from `place` on, in a direction. An overlay reads the disk.
    pub(crate) fn source(
        &self,
        place: Option<Place<'_>>,
        direction: Direction,
    ) -> Result<MergeSource> {
        Ok(match self {
            Layer::Table(table) => memory(Arc::clone(table), place, direction),
            Layer::Overlay(overlay) => {
                MergeSource::Overlay(Box::new(OverlayIter::new(overlay, place, direction)?))
            }
        })
    }
}

/// A memtable's entries from `place` on.
pub(crate) fn memory(
    table: Arc<MemTable>,
    place: Option<Place<'_>>,
    direction: Direction,
) -> MergeSource {
    MergeSource::Memory(match direction {
        Direction::Forward => MemIter::forward(table, place),
        Direction::Backward => MemIter::backward(table, place),
    })
}
