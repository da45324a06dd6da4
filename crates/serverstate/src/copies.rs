//! Copies of this member's data that others make, and the one that it makes of its primary's.
//!
//! Always true: what others copy is held for as long as they go on asking, and no longer than [`IDLE`] beyond.

use engine::Engine;
use errors::{Code, Error, Result};
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
    data: Arc<Outgoing>,
    used: Duration,
}

/// Copies, in both directions.
#[derive(Default)]
pub struct Copies {
    outgoing: Mutex<BTreeMap<i64, HeldCopy>>,
    /// How far the copy is that this member makes.
    pub(crate) incoming: Mutex<Option<Progress>>,
    pub(crate) makes_one: AtomicBool,
}

impl Copies {
    /// Holds this member's data as it is now, under a number by which it is asked for. Waits for a checkpoint.
    pub fn begin(&self, engine: &Engine, os: &Os) -> Result<(i64, Arc<Outgoing>)> {
        self.forget_idle(os.clock.monotonic());
        if self.outgoing.lock().len() >= MOST {
            let text = format!("{MOST} copies of this member are being made already");
            return Err(Error::new(Code::CONFLICTING_OPERATION_IN_PROGRESS, text));
        }
        let data = Outgoing::begin(engine).map_err(catalog::from_engine)?;
        let data = Arc::new(data);
        let number = (os.entropy.next_u64() >> 1).cast_signed();
        let used = os.clock.monotonic();
        self.outgoing.lock().insert(number, HeldCopy { data: Arc::clone(&data), used });
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
        let is_idle = |held: &HeldCopy| now.saturating_sub(held.used) > IDLE;
        let mut outgoing = self.outgoing.lock();
        let gone: Vec<i64> =
            outgoing.iter().filter(|(_, held)| is_idle(held)).map(|(number, _)| *number).collect();
        let gone: Vec<_> = gone.iter().filter_map(|number| outgoing.remove(number)).collect();
        drop(outgoing);
        drop(gone);
    }

    /// How far the copy is that this member makes, while it makes one.
    pub fn progress(&self) -> Option<Progress> {
        *self.incoming.lock()
    }
}
