//! The redo log: segments, frames, group commit, replay.
#![forbid(unsafe_code)]
