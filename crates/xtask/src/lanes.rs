//! Steps that go on beside each other: which lane takes which step next, and what the machine gives each.
//!
//! Always true: a step is a process of its own, and what it says is told whole when it ends; after a step that fails no
//! other begins.

use crate::drivers::TESTS_ARE_BUILT;
use crate::run::{root, target};
use anyhow::{Result, bail};
use std::fs::File;
use std::process::Command;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How the system ranks what a background list does: it takes what the other lanes leave (`nice`).
const BACKGROUND_RANK: &str = "10";

/// A step's name, and what it does.
pub(crate) type Step = (&'static str, fn() -> Result<()>);

/// The steps of one lane.
pub(crate) struct List {
    /// In the order in which they begin.
    pub steps: &'static [Step],
    /// Whether its steps give way to those of other lists: what needs the processors and has no deadline.
    pub is_background: bool,
}

/// A step, and whether it gives way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Taken {
    step: &'static str,
    is_background: bool,
}

/// What a lane does next.
#[derive(Debug, PartialEq)]
enum Next {
    Take(Taken),
    /// All that it may take is to wait for a step that goes on.
    Wait,
    End,
}

/// Who goes on with what.
struct Lanes {
    /// What of each list has not begun, by name, and whether it gives way.
    left: Vec<(Vec<&'static str>, bool)>,
    running: Vec<&'static str>,
    /// Of the steps of a group one goes on at a time.
    groups: &'static [&'static [&'static str]],
}

/// The steps of each list in order, the lists at a time; whose list is done helps with the others. Of the steps of a
/// group one goes on at a time.
pub(crate) fn beside_each_other(
    lists: &[List],
    groups: &'static [&'static [&'static str]],
) -> Result<()> {
    let names = |list: &List| list.steps.iter().map(|(name, _)| *name).collect();
    let left = lists.iter().map(|list| (names(list), list.is_background)).collect();
    let lanes = Mutex::new(Lanes { left, running: Vec::new(), groups });
    let (failed, ended, started) = (OnceLock::new(), Condvar::new(), now());
    let walk = |lane| {
        let mut state = lanes.lock().unwrap_or_else(PoisonError::into_inner);
        while failed.get().is_none() {
            match state.next(lane) {
                Next::Take(taken) => {
                    drop(state);
                    match take_apart(taken) {
                        Ok(output) => eprint!("{output}"),
                        Err(error) => drop(failed.set(error)),
                    }
                    state = lanes.lock().unwrap_or_else(PoisonError::into_inner);
                    state.running.retain(|step| *step != taken.step);
                    ended.notify_all();
                }
                Next::Wait => state = ended.wait(state).unwrap_or_else(PoisonError::into_inner),
                Next::End => break,
            }
        }
    };
    std::thread::scope(|scope| {
        for lane in 0..lists.len() {
            let walk = &walk;
            scope.spawn(move || walk(lane));
        }
    });
    eprintln!("\n=== beside each other these took {} s", started.elapsed().as_secs());
    failed.into_inner().map_or(Ok(()), Err)
}

impl Lanes {
    /// The next of a lane: the first of its own list that may begin, else the last one of the list that has most left.
    /// A background lane helps nobody: what the others do has deadlines, and is to have no more beside it than they.
    fn next(&mut self, lane: usize) -> Next {
        let may_begin = |step: &&'static str| self.may_begin(step);
        let first = self.left[lane].0.iter().position(may_begin).map(|at| (lane, at));
        let is_background = self.left[lane].1;
        let found = first.or_else(|| {
            let mut others: Vec<_> = (0..self.left.len()).filter(|_| !is_background).collect();
            others.sort_by_key(|list| std::cmp::Reverse(self.left[*list].0.len()));
            let last = |list: usize| self.left[list].0.iter().rposition(may_begin);
            others.into_iter().find_map(|list| Some((list, last(list)?)))
        });
        if let Some((list, at)) = found {
            let (steps, is_background) = &mut self.left[list];
            let step = steps.remove(at);
            self.running.push(step);
            return Next::Take(Taken { step, is_background: *is_background });
        }
        let mut mine =
            self.left.iter().enumerate().filter(|(list, _)| !is_background || *list == lane);
        if mine.any(|(_, (steps, _))| !steps.is_empty()) { Next::Wait } else { Next::End }
    }

    /// Whether nothing of the step's groups goes on.
    fn may_begin(&self, step: &str) -> bool {
        let mut groups = self.groups.iter().filter(|group| group.contains(&step));
        groups.all(|group| !self.running.iter().any(|running| group.contains(running)))
    }
}

/// What a step that succeeds has told.
fn take_apart(Taken { step: name, is_background }: Taken) -> Result<String> {
    let path = target().join(format!("step-{name}.log"));
    let log = File::create(&path)?;
    let program = std::env::current_exe()?;
    let mut command = if is_background {
        let mut command = Command::new("nice");
        command.args(["-n", BACKGROUND_RANK]).arg(program);
        command
    } else {
        Command::new(program)
    };
    let status = command
        .args(["test", "--only", name])
        .env(TESTS_ARE_BUILT, "yes")
        .current_dir(root())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()?;
    let output = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
    if !status.success() {
        bail!("step `{name}` failed ({status}):\n{output}");
    }
    Ok(output)
}

/// How long something took, and the processor time of all that it started.
pub(crate) struct Stopwatch {
    started: Instant,
    processor: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { started: now(), processor: processor_time() }
    }

    /// In words.
    pub(crate) fn told(&self) -> String {
        let processor = processor_time().saturating_sub(self.processor);
        let (took, processor) = (self.started.elapsed().as_secs(), processor.as_secs());
        format!("{took} s, {processor} s of processor time")
    }
}

#[expect(clippy::disallowed_methods, reason = "a tool for people, never simulated")]
fn now() -> Instant {
    Instant::now()
}

/// What this process and those that it started and that have ended have taken; nothing where the system does not say.
fn processor_time() -> Duration {
    let told = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    Duration::from_millis(ticks(&told).unwrap_or(0) * MILLISECONDS_OF_A_TICK)
}

/// Linux tells times to programs in hundredths of a second, on every machine that it runs on.
const MILLISECONDS_OF_A_TICK: u64 = 10;

/// The four times of a line of `/proc/PID/stat`: of the process, and of those that it waited for.
fn ticks(line: &str) -> Option<u64> {
    // the name, which may hold anything, stands in parentheses
    let (_, fields) = line.rsplit_once(')')?;
    let times: Vec<u64> =
        fields.split_whitespace().skip(11).take(4).map_while(|field| field.parse().ok()).collect();
    (times.len() == 4).then(|| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::{Lanes, Next, Taken, ticks};

    fn lanes(
        lists: &[(&[&'static str], bool)],
        groups: &'static [&'static [&'static str]],
    ) -> Lanes {
        let left =
            lists.iter().map(|(steps, is_background)| (steps.to_vec(), *is_background)).collect();
        Lanes { left, running: Vec::new(), groups }
    }

    /// What lanes take in this order, each of them as soon as it has taken the one before.
    fn taken(lanes: &mut Lanes, order: &[usize]) -> Vec<&'static str> {
        let step = |next| match next {
            Next::Take(Taken { step, .. }) => step,
            Next::Wait => "waits",
            Next::End => "ends",
        };
        order.iter().map(|lane| step(lanes.next(*lane))).collect()
    }

    #[test]
    fn a_lane_takes_its_own_steps_in_order_and_then_the_last_of_others() {
        let lists: [(&[_], _); 3] =
            [(&["a", "b"], false), (&["k", "l", "m", "n"], false), (&[], false)];
        let taken = taken(&mut lanes(&lists, &[]), &[0, 2, 1, 0, 0, 2, 0]);
        assert_eq!(taken, ["a", "n", "k", "b", "m", "l", "ends"]);
    }

    #[test]
    fn a_background_lane_helps_nobody_and_what_others_take_of_it_gives_way() {
        let mut some = lanes(&[(&["a"], false), (&["k", "l", "m"], true)], &[]);
        let take = |step, is_background| Next::Take(Taken { step, is_background });
        assert_eq!(some.next(1), take("k", true));
        assert_eq!(some.next(0), take("a", false));
        assert_eq!(some.next(0), take("m", true));
        assert_eq!(some.next(1), take("l", true));
        assert_eq!((some.next(0), some.next(1)), (Next::End, Next::End));
        assert_eq!(taken(&mut lanes(&[(&["a", "b"], false), (&[], true)], &[]), &[1]), ["ends"]);
    }

    #[test]
    fn of_the_steps_of_a_group_one_goes_on_at_a_time() {
        let lists: [(&[_], _); 2] = [(&["a", "b", "c"], false), (&[], false)];
        let mut some = lanes(&lists, &[&["a", "c"], &["b", "x"]]);
        // c is the last, and a goes on
        assert_eq!(taken(&mut some, &[0, 1, 0, 1]), ["a", "b", "waits", "waits"]);
        some.running.retain(|step| *step != "a");
        assert_eq!(taken(&mut some, &[1, 0]), ["c", "ends"]);
    }

    #[test]
    fn the_times_of_a_process_are_found_behind_any_name() {
        let line = "12 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 100 20 3000 400 20 0 1 0 99";
        assert_eq!(ticks(line), Some(3520));
        assert_eq!(ticks("12 (cut) S 1 2 3 4 5 6 7 8 9 10 100 20"), None);
        assert_eq!(ticks(""), None);
    }
}
