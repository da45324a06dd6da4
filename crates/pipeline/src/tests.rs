//! Whole pipelines over documents in memory.
