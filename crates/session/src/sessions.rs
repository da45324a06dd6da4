//! Logical sessions: which `lsid`s live, and when each was last used.
//!
//! A client's driver makes the id by itself and sends it with each command; a session exists from
//! its first use. It ends by `endSessions`, by a kill, or 30 minutes after the last use.
//!
//! What is always true: a session in the map was used within [`Sessions::TIMEOUT`] as of the last
//! call of [`Sessions::expire`], and the map never exceeds [`Sessions::MAX`] entries.

use errors::{Code, Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The name of a logical session: a UUID the client made. (The user digest joins with users.)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// A session as `$listLocalSessions` shows it.
#[derive(Clone, Copy, Debug)]
pub struct SessionInfo {
    /// Its name.
    pub id: SessionId,
    /// Server time of its last use.
    pub last_use: Duration,
}

const SHARDS: usize = 16;

/// The sessions that live. Each shard's lock guards its map.
#[derive(Default)]
pub struct Sessions {
    shards: [Mutex<BTreeMap<SessionId, Duration>>; SHARDS],
}

impl Sessions {
    /// How long a session lives after its last use.
    pub const TIMEOUT: Duration = Duration::from_mins(30);
    /// How many sessions may live at once.
    pub const MAX: usize = 1_000_000;

    /// Notes a use of `id` at `now`, creating the session on its first.
    pub fn touch(&self, id: SessionId, now: Duration) -> Result<()> {
        let mut shard = self.shard(id).lock();
        if let Some(last_use) = shard.get_mut(&id) {
            *last_use = now;
            return Ok(());
        }
        if shard.len() >= Self::MAX / SHARDS {
            return Err(Error::new(
                Code::TOO_MANY_LOGICAL_SESSIONS,
                format!(
                    "Unable to add session ID {id} into the cache because the number of active sessions is too high"
                ),
            ));
        }
        shard.insert(id, now);
        Ok(())
    }

    /// Notes a use of `id` only if it lives.
    pub fn refresh(&self, id: SessionId, now: Duration) {
        if let Some(last_use) = self.shard(id).lock().get_mut(&id) {
            *last_use = now;
        }
    }

    /// Whether `id` lives.
    pub fn lives(&self, id: SessionId) -> bool {
        self.shard(id).lock().contains_key(&id)
    }

    /// Ends `id`; says whether it lived.
    pub fn end(&self, id: SessionId) -> bool {
        self.shard(id).lock().remove(&id).is_some()
    }

    /// Ends the sessions idle for longer than [`Sessions::TIMEOUT`] and names them, so that the
    /// caller can close what they own.
    pub fn expire(&self, now: Duration) -> Vec<SessionId> {
        let mut dead = Vec::new();
        for shard in &self.shards {
            shard.lock().retain(|id, last_use| {
                let lives = now.saturating_sub(*last_use) < Self::TIMEOUT;
                if !lives {
                    dead.push(*id);
                }
                lives
            });
        }
        dead
    }

    /// How many live.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether none lives.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All that live.
    pub fn list(&self) -> Vec<SessionInfo> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            all.extend(
                shard.iter().map(|(id, last_use)| SessionInfo { id: *id, last_use: *last_use }),
            );
        }
        all
    }

    fn shard(&self, id: SessionId) -> &Mutex<BTreeMap<SessionId, Duration>> {
        &self.shards[usize::from(id.0[15]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn session_idle_for_thirty_minutes_is_ended() {
        let sessions = Sessions::default();
        let (old, young) = (SessionId([1; 16]), SessionId([2; 16]));
        sessions.touch(old, Duration::ZERO).unwrap();
        sessions.touch(young, MINUTE).unwrap();
        assert_eq!(sessions.expire(MINUTE * 30), [old]);
        assert_eq!(sessions.list().iter().map(|s| s.id).collect::<Vec<_>>(), [young]);
    }

    #[test]
    fn refresh_keeps_only_living_sessions() {
        let sessions = Sessions::default();
        sessions.refresh(SessionId([1; 16]), MINUTE);
        assert!(sessions.is_empty());
        sessions.touch(SessionId([1; 16]), Duration::ZERO).unwrap();
        sessions.refresh(SessionId([1; 16]), MINUTE * 20);
        assert!(sessions.expire(MINUTE * 40).is_empty());
        assert!(sessions.end(SessionId([1; 16])));
        assert!(!sessions.end(SessionId([1; 16])));
    }

    #[test]
    fn session_id_prints_as_uuid() {
        let id = SessionId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(id.to_string(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
