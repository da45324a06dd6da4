//! The commands of Atlas Search, which is no part of a server: each is refused as a MongoDB without
//! Atlas refuses it, so that drivers tell their users what is wrong.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::{Error, Result};

pub(crate) const CREATE_SEARCH_INDEXES: Command = Command::new(
    "createSearchIndexes",
    "Refused: there is no Atlas Search.",
    Needs::Collection(&[Action::CreateSearchIndexes]),
    refuse,
);
pub(crate) const DROP_SEARCH_INDEX: Command = Command::new(
    "dropSearchIndex",
    "Refused: there is no Atlas Search.",
    Needs::Collection(&[Action::DropSearchIndex]),
    refuse,
);
pub(crate) const LIST_SEARCH_INDEXES: Command = Command::new(
    "listSearchIndexes",
    "Refused: there is no Atlas Search.",
    Needs::Collection(&[Action::ListSearchIndexes]),
    refuse,
);
pub(crate) const UPDATE_SEARCH_INDEX: Command = Command::new(
    "updateSearchIndex",
    "Refused: there is no Atlas Search.",
    Needs::Collection(&[Action::UpdateSearchIndex]),
    refuse,
);

fn refuse(_: &mut Context<'_>, _: &[Field<'_>]) -> Result<()> {
    Err(Error::location(
        31082,
        "Search index commands are only supported with Atlas; text indexes and $text are here",
    ))
}
