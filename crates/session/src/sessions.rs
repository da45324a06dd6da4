//! Logical sessions: which `lsid`s live, and when each was last used.
//!
//! A client's driver makes the id by itself and sends it with each command; a session exists from
//! its first use. It ends by `endSessions`, by a kill, or 30 minutes after the last use.
//!
//! What is always true: a session in the map was used within [`Sessions::TIMEOUT`] as of the last
//! call of [`Sessions::expire`], and the map never exceeds [`Sessions::MAX`] entries. Where it is full
//! a new session takes the place of one that was not used for long and holds nothing, so that a client
//! that names millions of sessions keeps nobody else out: an id costs nothing to make, and a session
//! that lost its place gets another with its next use. A user who logged in has one share of [`SHARES`] at most, and
//! beyond that takes the places of its own sessions, so that its sessions that hold something keep no other user out.

use errors::{Code, Error, Result};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Whose a session, cursor or operation is: SHA-256 of `user@db`, and of nothing where nobody logged in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UserDigest(pub [u8; 32]);

impl UserDigest {
    /// Nobody's: who did not log in, or need not.
    pub const NOBODY: Self = Self([
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9,
        0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52,
        0xb8, 0x55,
    ]);
}

impl Default for UserDigest {
    fn default() -> Self {
        Self::NOBODY
    }
}

/// The name of a logical session: a UUID the client made, and whose it is. The same UUID of another user is another
/// session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// What the client made.
    pub id: [u8; 16],
    /// Who made it.
    pub user: UserDigest,
}

impl SessionId {
    /// A session of who did not log in.
    pub const fn of_nobody(id: [u8; 16]) -> Self {
        Self { id, user: UserDigest::NOBODY }
    }

    /// Under which its records are stored: the UUID of nobody's session, and of a user's what no other user's UUID
    /// comes to.
    pub fn key(&self) -> [u8; 16] {
        if self.user == UserDigest::NOBODY {
            return self.id;
        }
        let mut hash = Sha256::new();
        hash.update(self.id);
        hash.update(self.user.0);
        let mut key = [0; 16];
        key.copy_from_slice(&hash.finalize()[..16]);
        key
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.id.iter().enumerate() {
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

/// How many sessions of a full shard are looked at to find the one that was not used for longest.
const SAMPLE: usize = 64;

/// How many of those are asked about, the oldest first, before a new session is refused.
const CANDIDATES: usize = 8;

/// A user's share of all sessions is one of so many.
const SHARES: usize = 16;

/// The sessions of one part, each with its last use.
#[derive(Default)]
struct Shard {
    sessions: BTreeMap<SessionId, Duration>,
    /// How many of them are each user's.
    of_users: BTreeMap<UserDigest, usize>,
    /// Where the next sample begins, so that it goes round.
    hand: Option<SessionId>,
}

impl Shard {
    fn insert(&mut self, id: SessionId, now: Duration) {
        if self.sessions.insert(id, now).is_none() && id.user != UserDigest::NOBODY {
            *self.of_users.entry(id.user).or_default() += 1;
        }
    }

    fn remove(&mut self, id: SessionId) -> bool {
        let lived = self.sessions.remove(&id).is_some();
        if lived {
            self.forget_one_of(id.user);
        }
        lived
    }

    fn forget_one_of(&mut self, user: UserDigest) {
        if let Some(count) = self.of_users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.of_users.remove(&user);
            }
        }
    }

    /// Whether a user has its share. Who does not log in has no share of others.
    fn is_at_share(&self, user: UserDigest, room: usize) -> bool {
        let share = (room / SHARES).max(1);
        self.of_users.get(&user).is_some_and(|count| *count >= share)
    }

    /// Sessions that may lose their place, those first that were not used for longest: those of a user, or of
    /// everybody. A user that has its share has one of [`SHARES`] sessions, so that a sample of them is soon found.
    fn candidates(&mut self, of: Option<UserDigest>) -> Vec<(Duration, SessionId)> {
        let from = self.hand.unwrap_or(SessionId::of_nobody([0; 16]));
        let round = self.sessions.range(from..).chain(self.sessions.range(..from));
        let round = round.filter(|(id, _)| of.is_none_or(|user| id.user == user));
        let mut sample: Vec<_> =
            round.take(SAMPLE).map(|(id, last_use)| (*last_use, *id)).collect();
        self.hand = sample.last().map(|(_, id)| *id);
        sample.sort_unstable();
        sample.truncate(CANDIDATES);
        sample
    }
}

/// The sessions that live. Each shard's lock guards its sessions.
pub struct Sessions {
    shards: [Mutex<Shard>; SHARDS],
    /// Which shard an id belongs to depends on it: clients choose ids, and must not choose shards.
    seed: u64,
    most: usize,
}

impl Default for Sessions {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Sessions {
    /// How long a session lives after its last use.
    pub const TIMEOUT: Duration = Duration::from_mins(30);
    /// How many sessions may live at once, where memory has room for them.
    pub const MAX: usize = 1_000_000;
    /// About what a session takes: its entry here, the state of its newest numbered request, and the
    /// numbers of some statements of that.
    pub const BYTES: usize = 320;

    /// None yet. `seed` is random, so that clients cannot tell which ids share a shard.
    pub fn new(seed: u64) -> Self {
        Self::with_room(seed, Self::MAX)
    }

    /// None yet, and never more than `most` or [`Sessions::MAX`].
    pub fn with_room(seed: u64, most: usize) -> Self {
        let most = most.clamp(SHARDS, Self::MAX);
        Self { shards: std::array::from_fn(|_| Mutex::default()), seed, most }
    }

    /// How many may live at once.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Notes a use of `id` at `now`, creating the session on its first. Where there is no room
    /// `give_up` is asked of old sessions, outside the locks: a session that holds nothing loses its
    /// place, and the caller forgets what it knows of it.
    pub fn touch(
        &self,
        id: SessionId,
        now: Duration,
        mut give_up: impl FnMut(SessionId) -> bool,
    ) -> Result<()> {
        let Some(candidates) = self.touch_or_candidates(id, now) else { return Ok(()) };
        for (last_use, old) in candidates {
            if !give_up(old) {
                continue;
            }
            let mut shard = self.shard(id).lock();
            if shard.sessions.get(&old) == Some(&last_use) {
                shard.remove(old);
            }
            if shard.sessions.len() < self.room() && !shard.is_at_share(id.user, self.room()) {
                shard.insert(id, now);
                return Ok(());
            }
        }
        Err(Error::new(
            Code::TOO_MANY_LOGICAL_SESSIONS,
            format!(
                "Unable to add session ID {id} into the cache because the number of active sessions is too high"
            ),
        ))
    }

    /// Notes a use of `id`, or names who might make room for it.
    fn touch_or_candidates(
        &self,
        id: SessionId,
        now: Duration,
    ) -> Option<Vec<(Duration, SessionId)>> {
        let mut shard = self.shard(id).lock();
        if let Some(last_use) = shard.sessions.get_mut(&id) {
            *last_use = now;
            return None;
        }
        if shard.is_at_share(id.user, self.room()) {
            return Some(shard.candidates(Some(id.user)));
        }
        if shard.sessions.len() >= self.room() {
            return Some(shard.candidates(None));
        }
        shard.insert(id, now);
        None
    }

    /// How many may live in a shard.
    fn room(&self) -> usize {
        self.most / SHARDS
    }

    /// Notes a use of `id` only if it lives.
    pub fn refresh(&self, id: SessionId, now: Duration) {
        if let Some(last_use) = self.shard(id).lock().sessions.get_mut(&id) {
            *last_use = now;
        }
    }

    /// Whether `id` lives.
    pub fn lives(&self, id: SessionId) -> bool {
        self.shard(id).lock().sessions.contains_key(&id)
    }

    /// The keys of the sessions of users, by which their records are known.
    pub fn keys_of_users(&self) -> BTreeSet<[u8; 16]> {
        let mut keys = BTreeSet::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let of_users = shard.sessions.keys().filter(|id| id.user != UserDigest::NOBODY);
            keys.extend(of_users.map(SessionId::key));
        }
        keys
    }

    /// Ends `id`; says whether it lived.
    pub fn end(&self, id: SessionId) -> bool {
        self.shard(id).lock().remove(id)
    }

    /// Ends the sessions idle for longer than [`Sessions::TIMEOUT`] and names them, so that the
    /// caller can close what they own.
    pub fn expire(&self, now: Duration) -> Vec<SessionId> {
        let mut dead = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = dead.len();
            shard.sessions.retain(|id, last_use| {
                let lives = now.saturating_sub(*last_use) < Self::TIMEOUT;
                if !lives {
                    dead.push(*id);
                }
                lives
            });
            for id in &dead[before..] {
                shard.forget_one_of(id.user);
            }
        }
        dead
    }

    /// How many live.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().sessions.len()).sum()
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
            let infos = shard.sessions.iter();
            all.extend(infos.map(|(id, last_use)| SessionInfo { id: *id, last_use: *last_use }));
        }
        all
    }

    fn shard(&self, id: SessionId) -> &Mutex<Shard> {
        /// Odd, its bits without a pattern: the golden ratio's.
        const MIX: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        let bits = u128::from_le_bytes(id.id) ^ (u128::from(self.seed) << 32 | 1);
        let mixed = bits.wrapping_mul(MIX) ^ u128::from(self.seed) << 64;
        let mixed = mixed ^ (mixed >> 67);
        &self.shards[(mixed.wrapping_mul(MIX) >> 96) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn session_idle_for_thirty_minutes_is_ended() {
        let sessions = Sessions::default();
        let (old, young) = (SessionId::of_nobody([1; 16]), SessionId::of_nobody([2; 16]));
        sessions.touch(old, Duration::ZERO, |_| false).unwrap();
        sessions.touch(young, MINUTE, |_| false).unwrap();
        assert_eq!(sessions.expire(MINUTE * 30), [old]);
        assert_eq!(sessions.list().iter().map(|s| s.id).collect::<Vec<_>>(), [young]);
    }

    #[test]
    fn refresh_keeps_only_living_sessions() {
        let sessions = Sessions::default();
        sessions.refresh(SessionId::of_nobody([1; 16]), MINUTE);
        assert!(sessions.is_empty());
        sessions.touch(SessionId::of_nobody([1; 16]), Duration::ZERO, |_| false).unwrap();
        sessions.refresh(SessionId::of_nobody([1; 16]), MINUTE * 20);
        assert!(sessions.expire(MINUTE * 40).is_empty());
        assert!(sessions.end(SessionId::of_nobody([1; 16])));
        assert!(!sessions.end(SessionId::of_nobody([1; 16])));
    }

    fn id(number: u64) -> SessionId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_le_bytes());
        SessionId::of_nobody(id)
    }

    #[test]
    fn security_finding_4_a_flood_of_sessions_keeps_nobody_out() {
        let sessions = Sessions::with_room(7, 1600);
        let held = id(1 << 40);
        sessions.touch(held, Duration::ZERO, |_| true).unwrap();
        for number in 0..10_000 {
            let now = Duration::from_millis(1 + number);
            sessions.touch(id(number), now, |old| old != held).unwrap();
        }
        assert!(sessions.len() <= 1600);
        assert!(sessions.lives(held), "what holds a transaction or a cursor stays");
        let honest = id(1 << 50);
        sessions.touch(honest, MINUTE, |old| old != held).unwrap();
        assert!(sessions.lives(honest));
        // Only where all that are asked hold something is a new one refused.
        let refused =
            (0..100).filter(|n| sessions.touch(id(1 << 60 | n), MINUTE, |_| false).is_err());
        assert!(refused.count() > 50);
    }

    #[test]
    fn a_user_has_its_share_of_all_sessions_and_takes_no_places_of_others() {
        let sessions = Sessions::with_room(7, 16 * 16 * 10);
        let of = |user: u8, number| SessionId { user: UserDigest([user; 32]), ..id(number) };
        let count = |user: u8| {
            sessions.list().iter().filter(|one| one.id.user == UserDigest([user; 32])).count()
        };
        // One whose sessions all hold something is refused once it has its share, and nobody else is.
        let refused =
            (0..5000).filter(|n| sessions.touch(of(1, *n), MINUTE, |_| false).is_err()).count();
        assert_eq!(count(1), 160);
        assert_eq!(refused, 5000 - 160);
        for number in 0..100 {
            sessions.touch(id(1 << 50 | number), MINUTE, |_| false).unwrap();
        }
        sessions.touch(of(2, 1), MINUTE, |_| false).unwrap();
        // One whose sessions hold nothing goes on in the places of its own.
        for number in 0..5000 {
            let gives = |old: SessionId| {
                assert_eq!(old.user, UserDigest([2; 32]), "the places of others are theirs");
                true
            };
            sessions.touch(of(2, number), MINUTE * 2, gives).unwrap();
        }
        assert_eq!(count(2), 160);
        // What ends, by itself or by its client, makes room.
        for one in sessions.list().iter().filter(|one| one.id.user == UserDigest([2; 32])) {
            assert!(sessions.end(one.id));
        }
        assert_eq!(sessions.expire(MINUTE * 60).len(), 160 + 100);
        let (mut room, mut number) = (0, 0);
        while room < 160 {
            assert!(number < 20_000, "there is room for its share again");
            room += usize::from(sessions.touch(of(1, 1 << 40 | number), MINUTE, |_| false).is_ok());
            number += 1;
        }
        // Who does not log in is everybody at once, and has all the room there is.
        let all = (0..5000).filter(|n| sessions.touch(id(1 << 52 | n), MINUTE, |_| false).is_ok());
        assert!(all.count() > 2000);
    }

    #[test]
    fn security_finding_4_clients_do_not_choose_the_shard() {
        // All ids end with the same byte.
        let shards_of = |seed| {
            let sessions = Sessions::new(seed);
            let list: Vec<usize> = (0..64)
                .map(|n| {
                    sessions.touch(id(n), MINUTE, |_| false).unwrap();
                    sessions.shards.iter().position(|s| s.lock().sessions.contains_key(&id(n)))
                })
                .map(|at| at.expect("it was put somewhere"))
                .collect();
            list
        };
        let (one, other) = (shards_of(1), shards_of(0x1234_5678_9abc_def0));
        assert_ne!(one, other);
        for list in [one, other] {
            let used: BTreeSet<_> = list.iter().collect();
            assert!(used.len() > SHARDS / 2, "{list:?}");
        }
    }

    #[test]
    fn session_id_prints_as_uuid() {
        let id = SessionId::of_nobody([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(id.to_string(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
