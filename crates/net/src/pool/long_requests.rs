//! The listening thread's looks at the workers, so that requests that take long keep nobody waiting.

use super::{Need, State, Worker, WorkerPool};
use os::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often workers are looked at while one with a permit serves.
const CHECK_PERIOD: Duration = Duration::from_millis(1);
/// How often while only those without serve, and one of them computes.
const LONG_CHECK_PERIOD: Duration = Duration::from_millis(5);
/// How often where those wait, as far as can be seen.
const WAITING_CHECK_PERIOD: Duration = Duration::from_millis(20);
/// Processor time after which a request works in the background.
const BACKGROUND_AFTER: Duration = Duration::from_millis(5);

/// What the listening thread knows of a worker from its last look.
struct WorkerSample {
    worker: Arc<Worker>,
    turns: u64,
    /// What it had used when this turn was first seen.
    used_before: Duration,
    /// And at the last look.
    used: Duration,
}

fn address(worker: &Arc<Worker>) -> usize {
    Arc::as_ptr(worker) as usize
}

/// What is to be done about a worker that serves, and when it is to be looked at again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Verdict {
    /// It loses its permit.
    late: bool,
    /// Its request works in the background from now on.
    long: bool,
    again: Option<Duration>,
}

/// What a look finds of a worker that serves.
#[derive(Clone, Copy)]
struct Look {
    has_permit: bool,
    in_background: bool,
    /// Where the last look found it at the same: the processor time it has used since it was first found there,
    /// and since the last look.
    same: Option<(Duration, Duration)>,
}

fn judge(look: Look) -> Verdict {
    let Look { has_permit, in_background, same } = look;
    let Some((used, lately)) = same else {
        let again = if has_permit { CHECK_PERIOD } else { LONG_CHECK_PERIOD };
        return Verdict { again: (!in_background).then_some(again), ..Verdict::default() };
    };
    let long = !in_background && used >= BACKGROUND_AFTER;
    let again = if lately.is_zero() { WAITING_CHECK_PERIOD } else { LONG_CHECK_PERIOD };
    Verdict { late: has_permit, long, again: (!in_background && !long).then_some(again) }
}

/// The listening thread's looks at the workers: one that a look finds where the last one found it loses its
/// permit, and works in the background once it has used [`BACKGROUND_AFTER`] of a processor.
#[derive(Default)]
pub(crate) struct LongRequests {
    seen: Vec<WorkerSample>,
    /// The next look is soon: nobody need ask for one.
    is_soon: bool,
}

impl LongRequests {
    /// Whether the next look, at `at`, is due: where it is far away somebody may ask for an earlier one.
    pub(crate) fn is_due(&self, pool: &WorkerPool, at: Option<Duration>, now: Duration) -> bool {
        let asked = pool.checked_soon.load(Ordering::SeqCst) && !(at.is_some() && self.is_soon);
        asked || at.is_some_and(|at| at <= now)
    }

    /// Looks at the workers. Returns what permits need that were taken, and when to look again, if at all.
    pub(crate) fn check(&mut self, pool: &WorkerPool) -> (Vec<Need>, Option<Duration>) {
        // Whoever goes to work after this asks for a new look.
        pool.checked_soon.store(false, Ordering::SeqCst);
        let before: BTreeMap<usize, WorkerSample> =
            self.seen.drain(..).map(|seen| (address(&seen.worker), seen)).collect();
        let (mut late, mut long) = (Vec::new(), Vec::new());
        let mut next = None;
        let state = pool.state.lock();
        for worker in serving(&state) {
            let turns = worker.turns.load(Ordering::Relaxed);
            // It is in `workers`, so its thread still runs.
            let used = worker.thread.processor_time();
            let known = before.get(&address(&worker)).filter(|seen| seen.turns == turns);
            let used_before = known.map_or(used, |known| known.used_before);
            let verdict = judge(Look {
                has_permit: worker.permit.load(Ordering::Relaxed),
                in_background: worker.background.load(Ordering::Relaxed),
                same: known.map(|known| {
                    (used.saturating_sub(used_before), used.saturating_sub(known.used))
                }),
            });
            if verdict.late {
                late.push(Arc::clone(&worker));
            }
            if verdict.long {
                long.push((Arc::clone(&worker), turns));
            }
            next = next.into_iter().chain(verdict.again).min();
            self.seen.push(WorkerSample { worker, turns, used_before, used });
        }
        drop(state);
        let needs = late.iter().map(|worker| pool.release_permit(worker));
        let mut needs: Vec<Need> = needs.filter(|need| *need != Need::Nothing).collect();
        // Only then: a worker that is in the background gives no permit on, so it starts no thread, which would
        // have its priority.
        if !long.is_empty() {
            pool.move_to_background(&long);
        }
        // While nobody polls, a worker may be between the poller and its request, where it is not seen to
        // serve yet; or a permit may be free for which there was no thread.
        if pool.polling.load(Ordering::SeqCst) == 0 {
            next = Some(CHECK_PERIOD);
            let one_is_enough = pool.one_polls.load(Ordering::SeqCst);
            if needs.is_empty() && !one_is_enough && pool.free.load(Ordering::SeqCst) > 0 {
                needs.push(pool.fill());
            }
        }
        self.is_soon = next == Some(CHECK_PERIOD);
        if self.is_soon {
            pool.checked_soon.store(true, Ordering::SeqCst);
        }
        (needs, next)
    }
}

fn serving(state: &State) -> Vec<Arc<Worker>> {
    state.workers.iter().filter(|worker| worker.is_serving()).cloned().collect()
}

impl WorkerPool {
    /// These workers' requests work in the background from now on, where they are at the same still.
    fn move_to_background(&self, long: &[(Arc<Worker>, u64)]) {
        let mut state = self.state.lock();
        for (worker, turns) in long {
            let same = worker.turns.load(Ordering::Relaxed) == *turns;
            let runs = state.workers.iter().any(|other| Arc::ptr_eq(other, worker));
            if same && runs {
                self.begin_background(&mut state, worker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_found_twice_loses_its_permit_and_one_that_computes_gives_way() {
        let ms = Duration::from_millis;
        let (nothing, late, long) = (
            Verdict::default(),
            Verdict { late: true, ..Verdict::default() },
            Verdict { long: true, ..Verdict::default() },
        );
        // With a permit, in the background; used since it was first found, and lately; the verdict.
        let table = [
            (true, false, None, Verdict { again: Some(ms(1)), ..nothing }),
            (false, false, None, Verdict { again: Some(ms(5)), ..nothing }),
            (false, true, None, nothing),
            (true, false, Some((0, 0)), Verdict { again: Some(ms(20)), ..late }),
            (true, false, Some((1, 1)), Verdict { again: Some(ms(5)), ..late }),
            (false, false, Some((4, 4)), Verdict { again: Some(ms(5)), ..nothing }),
            (false, false, Some((4, 0)), Verdict { again: Some(ms(20)), ..nothing }),
            (false, false, Some((5, 1)), long),
            (true, false, Some((5, 5)), Verdict { late: true, ..long }),
            (false, true, Some((50, 5)), nothing),
            (true, true, Some((50, 5)), late),
        ];
        for (has_permit, in_background, same, verdict) in table {
            let look = Look {
                has_permit,
                in_background,
                same: same.map(|(used, lately)| (ms(used), ms(lately))),
            };
            assert_eq!(judge(look), verdict, "{has_permit} {in_background} {same:?}");
        }
    }
}
