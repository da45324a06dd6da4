//! Whether a node can begin with what it is given.

use crate::check::content;
use crate::entry::{Configuration, MemberId};
use crate::error::{Error, Result};
use crate::outcome::{Settings, Start};
use crate::state::MAX_COUNT;

/// What contradicts itself in it is an error: it comes from a disk.
pub(super) fn verify_start(settings: &Settings, start: &Start) -> Result<()> {
    let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(Error::Start(what)) };
    ensure(settings.id != MemberId(0), "a member has an id")?;
    let ticks = settings.heartbeat_ticks > 0
        && settings.heartbeat_ticks < settings.election_ticks
        && settings.election_ticks < 1 << 20;
    ensure(ticks, "heartbeats are more frequent than elections")?;
    let bounds = settings.max_in_flight > 0 && settings.max_entries > 0;
    ensure(bounds && settings.max_message_bytes > 0, "bounds are above zero")?;
    let Start { hard_state, base, entries, applied, configuration, .. } = start;
    ensure(hard_state.term < MAX_COUNT, "its term cannot be")?;
    let known = (base.index == 0) == (base.term == 0) && base.index < MAX_COUNT;
    ensure(known, "its first entry cannot be")?;
    let mut before = *base;
    for entry in entries {
        let follows = entry.index == before.index + 1 && entry.term >= before.term.max(1);
        ensure(follows, "its entries are out of order")?;
        content(&entry.content).map_err(Error::Start)?;
        before = entry.position();
    }
    ensure(before.term < MAX_COUNT && before.index < MAX_COUNT, "a counter is out of range")?;
    let applied = (base.index..=before.index).contains(applied);
    ensure(applied, "what was applied is not in its log")?;
    if configuration == &Configuration::default() {
        return ensure(before.index == 0, "it has entries and no configuration");
    }
    ensure(base.index > 0, "a configuration stands behind an entry")?;
    configuration.verify().map_err(Error::Start)
}
