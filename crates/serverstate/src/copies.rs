//! Copies of this member's data that others make, and the one that it makes of its primary's.
//!
//! Always true: what others copy is held for as long as they go on asking, and no longer than [`IDLE`] beyond.

use crate::rate::Rate;
use engine::Engine;
use errors::{Code, Error, Result};
use membership::MemberId;
use membership::copy::{Outgoing, Progress};
use os::Os;
use os::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Who copies and has asked nothing for so long has gone.
const IDLE: Duration = Duration::from_mins(5);
/// Copies that are made of this member at once, at most.
const MOST: usize = 4;

struct HeldCopy {
    receiver: MemberId,
    data: Arc<Outgoing>,
    used: Duration,
}

/// Copies, in both directions.
#[derive(Default)]
pub struct Copies {
    outgoing: Mutex<BTreeMap<i64, HeldCopy>>,
    /// One begins at a time.
    beginning: Mutex<()>,
    /// How far the copy is that this member makes.
    pub(crate) incoming: Mutex<Option<Progress>>,
    pub(crate) makes_one: AtomicBool,
    /// How fast this member may copy (`initialSyncThrottle`).
    pub rate: Rate,
}

impl Copies {
    /// Holds this member's data as it is now, under a number by which it is asked for. Waits for a checkpoint. What
    /// was held for the same receiver is let go of: it was interrupted.
    pub fn begin(
        &self,
        receiver: MemberId,
        engine: &Engine,
        os: &Os,
    ) -> Result<(i64, Arc<Outgoing>)> {
        let _one_at_a_time = self.beginning.lock();
        let now = os.clock.monotonic();
        self.forget_where(|held| held.receiver == receiver);
        self.forget_idle(now);
        if self.outgoing.lock().len() >= MOST {
            let text = format!("{MOST} copies of this member are being made already");
            return Err(Error::new(Code::CONFLICTING_OPERATION_IN_PROGRESS, text));
        }
        let data = Outgoing::begin(engine).map_err(catalog::from_engine)?;
        let data = Arc::new(data);
        let number = (os.entropy.next_u64() >> 1).cast_signed();
        let used = os.clock.monotonic();
        let held = HeldCopy { receiver, data: Arc::clone(&data), used };
        self.outgoing.lock().insert(number, held);
        Ok((number, data))
    }

    /// What is held under a number.
    pub fn get(&self, number: i64, now: Duration) -> Result<Arc<Outgoing>> {
        let mut outgoing = self.outgoing.lock();
        let held = outgoing.get_mut(&number).ok_or_else(|| {
            let text = "this member holds no such copy (any more): begin again";
            Error::new(Code::CURSOR_NOT_FOUND, text)
        })?;
        held.used = now;
        Ok(Arc::clone(&held.data))
    }

    /// Lets go of what is held under a number.
    pub fn end(&self, number: i64) {
        let ended = self.outgoing.lock().remove(&number);
        drop(ended);
    }

    /// Lets go of what nobody asks for any more.
    pub fn forget_idle(&self, now: Duration) {
        self.forget_where(|held| now.saturating_sub(held.used) > IDLE);
    }

    fn forget_where(&self, is_over: impl Fn(&HeldCopy) -> bool) {
        let mut outgoing = self.outgoing.lock();
        let over: Vec<i64> =
            outgoing.iter().filter(|(_, held)| is_over(held)).map(|(number, _)| *number).collect();
        let over: Vec<_> = over.iter().filter_map(|number| outgoing.remove(number)).collect();
        // What they held is let go of with no lock held.
        drop(outgoing);
        drop(over);
    }

    /// How far the copy is that this member makes, while it makes one.
    pub fn progress(&self) -> Option<Progress> {
        *self.incoming.lock()
    }
}
