//! Aggregation stages over a source; no storage.
//!
//! [`Pipeline::parse`] reads the client's stages, [`Pipeline::optimize`] rearranges them, and
//! [`Pipeline::execute`] lays sources over a source. Documents flow as raw bytes, pulled one at a
//! time. What a stage needs from the world (other collections, temporary files, interruption)
//! it asks from [`Env`], which the floors above implement.
//!
//! Always true:
//! 1. A stage that gathers (sort, group, facet) counts its memory and, past the limit, spills or
//!    fails with `QueryExceededMemoryLimitNoDiskUseAllowed`.
//! 2. A parsed pipeline holds no state of a run: it can be executed again with other variables,
//!    which is how a correlated `$lookup` works.
//! 3. Spilled or not, the result is the same.
#![forbid(unsafe_code)]

mod env;
mod memory;
mod optimize;
mod parse;
mod read_ahead;
mod source;
pub mod spill;
pub mod stage;
mod text_score;
mod transform;
mod update_pipeline;

#[cfg(test)]
mod tests;

pub use env::{CollectionName, Env, ExecOptions, LookupHint, OutWriter};
pub use parse::{Pipeline, PipelineContext};
pub use read_ahead::{MOST_BYTES_AHEAD, ReadAheadWindow};
pub use source::{DocumentSource, EmptySource, VecSource};
pub use spill::SpillStorage;
pub use stage::PipelineStage;
pub use text_score::stripped;
pub use transform::Transform;
pub use update_pipeline::UpdatePipeline;

/// The most a stage holds in memory before it spills.
pub const MEMORY_LIMIT_BYTES: usize = 100 << 20;

/// The largest document a stage may hand on: 16 MiB and what internal fields may add.
pub const MAX_INTERNAL_DOCUMENT_BYTES: usize = (16 << 20) + (16 << 10);

/// How deep pipelines may nest in `$lookup`, `$unionWith` and `$facet`.
pub const MAX_NESTING: usize = 20;

/// The most stages a pipeline may have.
pub const MAX_STAGES: usize = 1000;
