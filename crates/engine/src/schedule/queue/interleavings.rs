//! Workers that share the queue, over trees that are no more than counts, in every order shuttle
//! finds: no work is forgotten. A queue that leaves a row of its table out is found by the same
//! test.
//!
//! Run by `cargo xtask test --only interleavings`.

use super::*;
use os::sync::yield_now;
use shuttle::thread;
use std::sync::Arc;

const SCHEDULES: usize = 2000;
const TREES: usize = 2;
const ROUNDS: u32 = 2;
/// How often somebody works beside the queue, and for how long.
const OUTSIDE: u32 = 6;

/// One tree: units that nobody is at, and how many of them only merges.
#[derive(Clone, Copy, Default)]
struct Tree {
    drains: u32,
    merges: u32,
    /// Somebody is at work: another unit there would meet it.
    claimed: bool,
}

/// All trees, and how many merge.
#[derive(Default)]
struct Forest {
    trees: [Tree; TREES],
    merging: u32,
    /// Work will not come any more.
    complete: bool,
}

struct Model {
    work: WorkQueue,
    forest: Mutex<Forest>,
}

impl Model {
    fn new(without: Option<Event>) -> Arc<Self> {
        let work = WorkQueue::default();
        work.queue.lock().without = without;
        Arc::new(Self { work, forest: Mutex::default() })
    }

    /// What `Tree::work` does: claims, works, publishes.
    fn try_unit(&self, tree: usize) -> UnitOutcome {
        let merges = {
            let mut forest = self.forest.lock();
            let Tree { drains, merges, claimed } = forest.trees[tree];
            if drains + merges == 0 {
                return UnitOutcome::Nothing;
            }
            if claimed {
                return UnitOutcome::Busy;
            }
            if drains == 0 && forest.merging > 0 {
                return UnitOutcome::Deferred;
            }
            forest.trees[tree].claimed = true;
            let is_merge = drains == 0;
            forest.merging += u32::from(is_merge);
            is_merge
        };
        yield_now();
        let mut forest = self.forest.lock();
        let Tree { drains, merges: left, claimed } = &mut forest.trees[tree];
        *claimed = false;
        *(if merges { left } else { drains }) -= 1;
        forest.merging -= u32::from(merges);
        UnitOutcome::Done
    }

    /// What a flusher does, until there will be no work any more.
    fn work(&self) {
        while !self.work.is_stopping() {
            let taken = {
                let mut queue = self.work.lock();
                let choice = queue.choice();
                if choice.is_empty() && queue.working() == 0 && queue.deferred.is_empty() {
                    let forest = self.forest.lock();
                    if forest.complete {
                        let left: u32 = forest.trees.iter().map(|t| t.drains + t.merges).sum();
                        assert_eq!(left, 0, "work was forgotten");
                        queue.stop = true;
                    }
                }
                choice.first().map(|tree| (*tree, queue.enter(*tree)))
            };
            if let Some((tree, lease)) = taken {
                self.work.wake_one();
                let outcome = self.try_unit(tree as usize);
                self.work.leave(&lease, outcome);
            } else {
                self.work.wait_for_work(TUNING.retry);
            }
        }
        self.work.stop();
    }

    /// What writers do: they seal memtables, and say so.
    fn write(&self) {
        for round in 0..ROUNDS {
            for tree in 0..TREES {
                {
                    let mut forest = self.forest.lock();
                    forest.trees[tree].drains += 1;
                    forest.trees[tree].merges += round;
                }
                self.work.add(tree as u64);
            }
        }
        self.forest.lock().complete = true;
        self.work.wake();
    }

    /// Time passes: whoever waits has waited long enough. Shuttle knows no time, and without it a
    /// wait that is bounded would have no end.
    fn pass_time(&self) {
        while !self.work.is_stopping() {
            self.work.wake();
            yield_now();
        }
    }

    /// What checkpoints do: they work in a tree beside the queue, now and then.
    fn work_outside(&self) {
        for _ in 0..OUTSIDE {
            let claimed = {
                let mut forest = self.forest.lock();
                let claims = !forest.trees[0].claimed;
                forest.trees[0].claimed |= claims;
                claims
            };
            (0..OUTSIDE).for_each(|_| yield_now());
            if claimed {
                self.forest.lock().trees[0].claimed = false;
            }
            yield_now();
        }
    }
}

fn run(without: Option<Event>) {
    let model = Model::new(without);
    let start = |role: fn(&Model)| {
        let model = Arc::clone(&model);
        thread::spawn(move || role(&model))
    };
    let workers: [fn(&Model); 3] = [Model::work; 3];
    let others: [fn(&Model); 3] = [Model::write, Model::work_outside, Model::pass_time];
    for thread in workers.map(start).into_iter().chain(others.map(start)) {
        thread.join().expect("no thread panics");
    }
    let forest = model.forest.lock();
    let left: u32 = forest.trees.iter().map(|tree| tree.drains + tree.merges).sum();
    assert_eq!(left, 0, "work was forgotten");
}

#[test]
fn workers_forget_no_work() {
    shuttle::check_random(|| run(None), SCHEDULES);
}

/// Whether shuttle finds a schedule in which a queue without one row of its table goes wrong.
fn is_found(without: Event) -> bool {
    std::panic::catch_unwind(|| shuttle::check_random(move || run(Some(without)), SCHEDULES))
        .is_err()
}

#[test]
fn queue_that_does_not_take_up_new_work_is_found() {
    assert!(is_found(Event::Queued), "a tree that is absent or blocked is ready again");
}

#[test]
fn queue_that_keeps_a_tree_blocked_when_the_last_worker_leaves_is_found() {
    assert!(is_found(Event::LastLeft), "nobody else will unblock it");
}

#[test]
fn queue_that_leaves_a_deferred_tree_deferred_is_found() {
    assert!(is_found(Event::SomebodyEnded), "who is deferred waits for a merge to end");
}
