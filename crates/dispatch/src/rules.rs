//! What is known of a command without its code: its name and the rules that hold for it.
//!
//! Always true: what reads requests and what routes them decide by these rules alone.

use crate::field_types::{self, FieldTypes};

/// What a command counts as in `serverStatus.opcounters`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// Inserted documents.
    Insert,
    /// Finds and counts.
    Query,
    /// Updates.
    Update,
    /// Deletes.
    Delete,
    /// Further batches.
    GetMore,
    /// Anything else.
    Command,
}

/// What a command counts as in `serverStatus.opLatencies` and `top`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It reads documents.
    Read,
    /// It writes documents.
    Write,
    /// Neither.
    Other,
}

/// A command's name and rules.
#[expect(clippy::struct_excessive_bools, reason = "independent rules, not states")]
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Its name.
    pub name: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    /// One line for `listCommands` and `docs/COMPAT.md`.
    pub about: &'static str,
    /// What it counts as.
    pub counter: Counter,
    /// What its time counts as.
    pub class: Class,
    /// Only `admin` may be asked.
    pub admin_only: bool,
    /// It belongs to API version 1.
    pub api_v1: bool,
    /// It takes a write concern: the service, not the command's code, waits before the reply until
    /// what was done is as durable as the client asks. Without this or the next a command writes
    /// nothing; the service checks that.
    pub takes_write_concern: bool,
    /// What it does is durable before it is acknowledged, whatever is asked.
    pub is_always_durable: bool,
    /// It takes a read concern.
    pub takes_read_concern: bool,
    /// It goes by the read concern of the command that opened its cursors: another one is looked at, and means nothing.
    pub goes_by_its_cursors: bool,
    /// Exists only for clients that write with the opcodes from before OP_MSG (`getLastError`).
    pub is_legacy_protocol_only: bool,
    /// The profiler tells of it.
    pub is_profiled: bool,
    /// The kind 1 sections it takes.
    pub sequences: &'static [&'static str],
    /// What its fields take, where that is known without its code.
    pub field_types: Option<&'static FieldTypes>,
}

impl Rules {
    /// The commonest rules.
    pub const fn new(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            aliases: &[],
            about,
            counter: Counter::Command,
            class: Class::Other,
            admin_only: false,
            api_v1: false,
            takes_write_concern: false,
            is_always_durable: false,
            takes_read_concern: false,
            goes_by_its_cursors: false,
            is_legacy_protocol_only: false,
            is_profiled: true,
            sequences: &[],
            field_types: field_types::of_command(name),
        }
    }

    /// Whether it may leave something behind; then its reply waits for the disk.
    pub const fn writes_data(&self) -> bool {
        self.takes_write_concern || self.is_always_durable
    }
}
