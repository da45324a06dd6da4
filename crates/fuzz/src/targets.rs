//! Every decoder of outside bytes, with good inputs to start from.

use crate::Target;

mod changes;
mod consensus;
mod indexes;
mod language;
mod login;
mod network;
mod permit;
mod rights;
mod secure;
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
    storage::BACKUP,
    storage::LOG_FRAME,
    storage::LOG_SEGMENT,
    storage::LOG_RECORD,
    tree::TREE_PAGE,
    tree::TREE_FILTER,
    tree::TREE_NODE,
    changes::NOTES,
    changes::TOKEN,
    changes::DIFF,
    consensus::RAFT_MESSAGE,
    consensus::RAFT_STATE,
    consensus::REPLICA_FRAME,
    consensus::LINK_HELLO,
    consensus::LINK_ANSWER,
    consensus::SET_DOCUMENT,
    login::LOGIN,
    login::KEY_FILE,
    login::ACCOUNT,
    login::OLD_USER,
    rights::GRANTS,
    rights::NEEDS,
    rights::PREAUTH,
    permit::PERMIT,
    secure::FIRST_BYTES,
    secure::CERTIFICATE,
    secure::ENCRYPTED_PAGE,
    secure::ENCRYPTED_ROOT,
    secure::KEYS,
    secure::MASTER_KEY,
];

/// The target of that name.
pub fn find(name: &str) -> Option<&'static Target> {
    ALL.iter().chain([&PLANTED]).find(|target| target.name == name)
}

/// A bug for the fuzzer to find, behind four bytes that no input has: shows that it is led by what is
/// compared. Only run where it is asked for by its name.
const PLANTED: Target = Target {
    name: "planted",
    corpus: || vec![vec![0; 16]],
    start: || {
        Box::new(|bytes| {
            let magic = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            assert!(magic != Some(0x6E52_6546), "the planted bug was found");
        })
    },
};
