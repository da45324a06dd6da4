//! What a node wants done, and what it is told of it: the only place where consensus' decisions leave.

use raft::StateRole;

use super::Node;
use crate::entry::{Change, Content, Entry, MemberId};
use crate::message::{Body, Message};
use crate::outcome::{HardState, ReadPoint, Ready};
use crate::translate::{change_in, entry_out, message_out, read_out, snapshot_out};

impl Node {
    /// What is to be done now, if anything.
    pub fn ready(&mut self) -> Option<Ready> {
        let now = self.role_state();
        if !self.raft.has_ready() && now == self.role_state {
            return None;
        }
        let mut raw = self.raft.ready();
        self.newest = raw.number();
        let mut ready = Ready { commit: self.raft.raft.raft_log.committed, ..Ready::default() };
        let raft = &self.raft.raft;
        let hard_state = HardState {
            term: raft.term,
            vote: Some(MemberId(raft.vote)).filter(|vote| *vote != MemberId(0)),
        };
        if hard_state != self.hard_state {
            self.hard_state = hard_state;
            self.hard_written = self.newest;
            ready.hard_state = Some(hard_state);
        }
        if !raw.snapshot().is_empty() {
            let snapshot = snapshot_out(raw.snapshot());
            self.raft.mut_store().restart(snapshot.position);
            self.installing = Some((self.newest, snapshot.position.index));
            ready.snapshot = Some(snapshot);
        }
        let entries = raw.take_entries();
        let log = self.raft.mut_store();
        ready.cut = entries.first().map(|entry| entry.index).filter(|index| *index <= log.last());
        log.append(&entries);
        ready.entries = entries.iter().filter_map(|entry| entry_out(entry).ok()).collect();
        assert!(ready.entries.len() == entries.len(), "what was checked and kept can be read");
        let committed = raw.take_committed_entries();
        let reads = raw.take_read_states();
        let mut messages = raw.take_messages();
        messages.extend(raw.take_persisted_messages());
        self.raft.advance_append_async(raw);

        if ready.hard_state.is_some() || ready.snapshot.is_some() || !ready.entries.is_empty() {
            self.written = self.newest;
            ready.persist = Some(self.newest);
        }
        ready.send = self.hold(messages.iter().filter_map(message_out).collect());
        if self.written <= self.synced {
            self.raft.on_persist_ready(self.newest);
        }
        ready.committed = committed.iter().filter_map(|entry| entry_out(entry).ok()).collect();
        self.apply(&ready.committed);
        let point = |state: raft::ReadState| {
            let read = read_out(&state.request_ctx)?;
            Some(ReadPoint { read, index: state.index })
        };
        ready.reads = reads.into_iter().filter_map(point).collect();
        self.settle(false);
        let now = self.role_state();
        if now != self.role_state {
            self.role_state = now;
            ready.role = Some(now);
        }
        Some(ready)
    }

    /// Holds messages until what they promise is on disk, and returns those that may be sent now. A
    /// leader's messages depend on its term and vote only, not on its log. The same holds for the
    /// answer to a heartbeat: it must not wait for a slow disk, or the leader would take this
    /// member for dead.
    fn hold(&mut self, messages: Vec<Message>) -> Vec<Message> {
        let leads = self.leads();
        let of_term =
            |message: &Message| leads || matches!(message.body, Body::HeartbeatAnswer { .. });
        let (of_term, of_log): (Vec<_>, Vec<_>) = messages.into_iter().partition(of_term);
        let mut go = Vec::new();
        for (needs, messages) in [(self.hard_written, of_term), (self.written, of_log)] {
            if needs <= self.synced {
                go.extend(messages);
            } else if !messages.is_empty() {
                self.held.push_back((needs, messages));
            }
        }
        go
    }

    /// Changes of members count from when they are decided.
    fn apply(&mut self, committed: &[Entry]) {
        let Some(last) = committed.last() else { return };
        let mut is_changed = false;
        for entry in committed {
            let changes: &[Change] = match &entry.content {
                Content::Configuration { changes, .. } if !changes.is_empty() => changes,
                Content::Joined => &[],
                _ => continue,
            };
            // One that cannot be applied changes nothing, on each member alike: the leader has
            // tried it before it proposed it.
            let _unchanged = self.raft.apply_conf_change(&change_in(changes)).is_err();
            is_changed = true;
        }
        if is_changed {
            self.look_at_configuration();
        }
        let before = self.raft.raft.raft_log.last_index();
        self.raft.advance_apply_to(last.index);
        if self.leads() && self.raft.raft.raft_log.last_index() > before {
            // Raft has appended the end of a change of members, and would send it with the next heartbeat.
            self.raft.raft.bcast_append();
        }
        while self.uncommitted.front().is_some_and(|(index, _)| *index <= last.index) {
            let bytes = self.uncommitted.pop_front().map_or(0, |(_, bytes)| bytes);
            self.uncommitted_bytes -= bytes;
        }
        let raft = &mut self.raft.raft;
        if raft.state == StateRole::Leader && !raft.promotable() {
            let term = raft.term;
            raft.become_follower(term, raft::INVALID_ID);
        }
        let kept = self.raft.store().len();
        if kept > self.settings.max_entries {
            let excess = (kept - self.settings.max_entries) as u64;
            self.compact_to(self.raft.store().base().index + excess);
        }
    }

    /// All that was to be written up to this ready is synced. Returns what may be sent now.
    pub fn persisted(&mut self, number: u64) -> Vec<Message> {
        assert!(number <= self.written, "only what was asked for is synced");
        self.synced = self.synced.max(number);
        // Readies with nothing to write wait for those before them.
        let up_to = if self.synced == self.written { self.newest } else { number };
        self.raft.on_persist_ready(up_to);
        if let Some((_, index)) = self.installing.take_if(|(by, _)| *by <= number) {
            self.raft.advance_apply_to(index);
        }
        self.settle(false);
        let mut messages = Vec::new();
        while self.held.front().is_some_and(|(needs, _)| *needs <= self.synced) {
            messages.extend(self.held.pop_front().map(|(_, held)| held).unwrap_or_default());
        }
        messages
    }
}
