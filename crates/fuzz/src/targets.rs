//! Every decoder of outside bytes, with good inputs to start from.

use crate::Target;

mod indexes;
mod language;
mod network;
mod storage;
mod tree;

/// All targets.
pub const ALL: &[Target] = &[
    network::FRAME,
    network::COMPRESSED,
    network::DOCUMENT,
    language::LANGUAGE,
    indexes::INDEXES,
    storage::KEY,
    storage::PAGE,
    storage::SUPERBLOCK,
    storage::TRANSLATION,
    storage::LOG_FRAME,
    storage::LOG_SEGMENT,
    tree::TREE_PAGE,
    tree::TREE_FILTER,
    tree::TREE_NODE,
];
