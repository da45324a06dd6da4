//! Does what consensus says: another role, entries and terms to be written, messages, and what is decided.

use super::{Event, OF_WHAT_IS_APPLIED, Replica};
use crate::error::{Error, Result};
use crate::frame::{Frame, MAX_FRAME};
use crate::journal::Journal;
use crate::links::Links;
use crate::state_file::Promises;
use quorum::{Body, Content, Entry, Message, Ready};
use std::time::Duration;

/// Payloads in one frame: what a frame holds, less room for the message.
const MAX_PAYLOADS: u64 = (MAX_FRAME as u64) - (8 << 20);

impl<J: Journal, L: Links, P: Promises> Replica<J, L, P> {
    /// Does what consensus says until it says nothing more.
    pub(super) fn work(&mut self) -> Result<()> {
        while let Some(ready) = self.node.ready() {
            self.take_role(&ready)?;
            self.write(&ready)?;
            self.send(ready.send)?;
            self.apply(&ready.committed)?;
            self.events.extend(ready.reads.into_iter().map(Event::Read));
        }
        Ok(())
    }

    fn take_role(&mut self, ready: &Ready) -> Result<()> {
        let Some(now) = ready.role else { return Ok(()) };
        let leads = now.leader == Some(self.id);
        if self.leads || leads {
            // What was open belongs to no entry, and never will.
            self.journal.discard_open()?;
            self.writable = false;
        }
        self.leads = leads;
        if leads {
            self.led = now.term;
            (self.made, self.decided) = ((0, Duration::ZERO), None);
        }
        self.events.push(Event::Role(now));
        Ok(())
    }

    fn write(&mut self, ready: &Ready) -> Result<()> {
        if let Some(hard) = ready.hard_state {
            self.promises.keep(hard, ready.commit)?;
        }
        if let Some(snapshot) = &ready.snapshot {
            self.journal.begin_anew(snapshot.position, &snapshot.configuration)?;
            self.applied = Entry {
                term: snapshot.position.term,
                index: snapshot.position.index,
                content: Content::Fence,
            };
        }
        if let Some(index) = ready.cut {
            self.journal.cut(index)?;
        }
        for entry in &ready.entries {
            match self.arriving.remove(&entry.position()) {
                Some(payload) => self.journal.append(entry, &payload, ready.commit)?,
                None if entry.term == self.led => {
                    self.journal.write_entry(entry, ready.commit)?;
                    self.made.0 = entry.index;
                }
                None => {
                    let what = format!("the records of {:?} did not come", entry.position());
                    return Err(Error::Journal(what));
                }
            }
        }
        if let Some(number) = ready.persist {
            self.journal.begin_sync(number)?;
            self.syncing.push_back(number);
        }
        // Beside the sync.
        self.journal.apply_appended()
    }

    pub(super) fn send(&mut self, messages: Vec<Message>) -> Result<()> {
        for mut message in messages {
            let to = message.to;
            if let Body::Snapshot(snapshot) = &mut message.body
                && self.kinds.witnesses.contains(&to)
                && !self.tell_what_is_applied(snapshot)
            {
                // It is told once the leader knows what is decided.
                self.node.snapshot_sent(to, false);
                continue;
            }
            let tells_where_the_log_begins = matches!(message.body, Body::Snapshot(_));
            match self.with_payloads(message)? {
                Some(frame) => {
                    self.links.send(to, frame);
                    if tells_where_the_log_begins {
                        // It is told again with the next heartbeat, until the member has what it needs.
                        self.node.snapshot_sent(to, false);
                    }
                }
                // The log has been cut since, or reaches less far back than consensus thinks.
                None => self.node.unreachable(to),
            }
        }
        Ok(())
    }

    /// A witness gets the place up to which this leader has applied, and the configuration that counts there.
    fn tell_what_is_applied(&self, snapshot: &mut quorum::Snapshot) -> bool {
        let Some(at) = self.node.applied_position() else { return false };
        if !self.leads || at.term != self.led || at.index < snapshot.position.index {
            return false;
        }
        snapshot.position = at;
        snapshot.configuration = (**self.node.configuration()).clone();
        snapshot.data = OF_WHAT_IS_APPLIED.to_vec();
        true
    }

    /// The message with what belongs to its entries; as many of those as fit into a frame.
    fn with_payloads(&self, mut message: Message) -> Result<Option<Frame>> {
        let mut payloads = Vec::new();
        if let Body::Append { entries, .. } = &mut message.body {
            let mut bytes = 0;
            for entry in entries.iter() {
                let Some(payload) = self.journal.payload(entry.position())? else { break };
                bytes += payload.len() as u64;
                if bytes > MAX_PAYLOADS && !payloads.is_empty() {
                    break;
                }
                payloads.push(payload);
            }
            if payloads.is_empty() && !entries.is_empty() {
                return Ok(None);
            }
            entries.truncate(payloads.len());
        }
        Ok(Some(Frame::Consensus { message, payloads }))
    }

    fn apply(&mut self, committed: &[Entry]) -> Result<()> {
        let Some(last) = committed.last() else { return Ok(()) };
        self.journal.committed(committed, self.node.configuration())?;
        self.events.extend(committed.iter().filter_map(|entry| match &entry.content {
            Content::Configuration { document, .. } => {
                Some(Event::Configured { at: entry.position(), document: document.clone() })
            }
            _ => None,
        }));
        if let Some(records) =
            committed.iter().rev().find(|entry| matches!(entry.content, Content::Records(_)))
        {
            self.applied.content = records.content.clone();
        }
        (self.applied.term, self.applied.index) = (last.term, last.index);
        self.take_writes_where_due()
    }

    /// A leader takes writes once it has applied what the leaders before it decided.
    pub(super) fn take_writes_where_due(&mut self) -> Result<()> {
        let leads = self.leads && !self.writable && self.applied.term == self.led;
        if leads && self.may_take_writes() {
            self.journal.lead()?;
            self.writable = true;
            self.events.push(Event::Writable);
        }
        Ok(())
    }
}
