//! The filter of a partial index: refused until `expr` has filters.

use bson::raw::RawDocument;
use errors::{Code, Error, Result};

/// A parsed filter; none can be made yet.
#[derive(Clone, Debug)]
pub struct Filter(());

impl Filter {
    pub(crate) fn parse(_: &RawDocument) -> Result<Self> {
        Err(Error::new(Code::CANNOT_CREATE_INDEX, "partial indexes are not supported yet"))
    }

    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "the shape of expr's filter")]
    pub(crate) fn matches(&self, _: &RawDocument) -> Result<bool> {
        Ok(true)
    }
}
