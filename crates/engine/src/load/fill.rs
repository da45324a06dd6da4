//! Filling dictionaries with rows that are sorted, on several threads.
//!
//! ```text
//!  rows of a space, sorted   │ part │ part │ part │      each a range of keys
//!                                ▼      ▼      ▼         whichever thread is free takes the next part
//!  leaves of a dictionary    │ leaf leaf leaf leaf │     put together in order by the caller
//! ```
//!
//! Always true:
//! 1. What comes of it does not depend on how many threads there are, but for which of several errors is told.
//! 2. The threads are gone before the call returns.
//! 3. What they hold beside the rows in memory is within what a sorter may keep, or there is one thread.

use super::{Loaded, LoadedRows, PIECE_BYTES, Unfinished};
use crate::handle::EngineHandle;
use crate::sorter::{Sorted, SortedWalk, WINDOW};
use crate::{DictionaryId, DictionaryOptions, Engine, Error, KeyRange, Result};
use ftree::{RowBounds, TreeLoader};
use os::JoinHandle;
use os::sync::{Condvar, Mutex};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A part has about so many bytes of rows, or a quarter of the memory for sorting.
const MOST_PART_BYTES: u64 = 16 << 20;
/// A part has no fewer.
const LEAST_PART_BYTES: u64 = 4 << 10;
/// A dictionary is cut into so many parts at most, for each processor.
const PARTS_PER_PROCESSOR: usize = 4;
/// What a thread takes beside what it reads runs with: a leaf on its way to the disk.
const LEAF_BYTES: u64 = 3 << 20;
/// A run is read in pieces no smaller.
const LEAST_WINDOW: u64 = 32 << 10;
/// Rows between two questions whether to go on.
const ASK_EVERY: u64 = 10_000;
/// Time between two such questions while others work.
const ASK_AFTER: Duration = Duration::from_millis(50);

/// A dictionary that is to be filled.
#[derive(Debug)]
pub struct FillTarget {
    /// The space whose rows are its.
    pub space: u32,
    /// Its number.
    pub id: DictionaryId,
    /// Its options.
    pub options: DictionaryOptions,
    /// Rows that it has beside those of the space: they go over into it.
    pub beside: Option<Loaded>,
}

/// Two rows with one key.
#[derive(Debug)]
pub struct Twice {
    /// The space in which they are.
    pub space: u32,
    /// Their key.
    pub key: Vec<u8>,
    /// The values of both.
    pub values: [Vec<u8>; 2],
}

/// Why dictionaries were not filled.
#[derive(Debug)]
pub enum FillError {
    /// The disk failed, or is full.
    Engine(Error),
    /// Two rows with one key, which may not be.
    Twice(Twice),
    /// The caller said that it is not to go on.
    Stopped,
}

impl From<Error> for FillError {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// Whether two rows of a space (its number, the key, both values) with one key are the same: then the
/// second is left out.
pub type AreSame = dyn Fn(u32, &[u8], &[u8], &[u8]) -> bool + Send + Sync;

impl Engine {
    /// Fills dictionaries with the rows of their spaces, on as many threads as there are processors and
    /// memory for it. `go_on` is asked now and then, with how many rows were written.
    ///
    /// # Errors
    /// See [`FillError`].
    pub fn fill(
        &self,
        sorted: &Arc<Sorted>,
        targets: Vec<FillTarget>,
        are_same: Arc<AreSame>,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<Loaded>, FillError> {
        let (mut unfinished, mut parts) = (Vec::new(), Vec::new());
        for (number, target) in targets.into_iter().enumerate() {
            unfinished.push(self.begin_parts(sorted, number, target, &mut parts)?);
        }
        let needs = |part: &Part| Needs {
            runs: sorted.rows().runs_of(part.space) as u64,
            bytes: sorted.rows().walk_bytes(part.space),
        };
        let needs = parts.iter().map(needs).max_by_key(Needs::least).unwrap_or_default();
        let most = self.processors().min(parts.len());
        let (threads, window) = needs.share(sorted.memory_left(), most);
        let count = parts.len();
        // The first comes out first.
        parts.reverse();
        let filling = Arc::new(Filling {
            handle: Arc::clone(self.handle()),
            sorted: Arc::clone(sorted),
            are_same,
            window,
            stops: AtomicBool::new(false),
            rows: AtomicU64::new(0),
            state: Mutex::new(State { parts, ..State::default() }),
            changed: Condvar::new(),
        });
        let mut filled = filling.run(threads, go_on)?;
        filled.sort_by_key(|part| part.number);
        let is_whole = filled.iter().map(|part| part.number).eq(0..filled.len());
        assert!(is_whole && filled.len() == count, "every part is filled once");
        let mut filled = filled.into_iter().peekable();
        let mut loaded = Vec::new();
        for (number, unfinished) in unfinished.into_iter().enumerate() {
            let (mut loader, mut bytes) = (unfinished.loader(), 0);
            while let Some(part) = filled.next_if(|part| part.target == number) {
                self.handle().check(loader.append(part.loader))?;
                bytes += part.bytes;
            }
            loaded.push(unfinished.finish(loader, bytes)?);
        }
        Ok(loaded)
    }

    /// Processors for which there may be threads.
    fn processors(&self) -> usize {
        if self.handle().helpers.are_allowed() { os::cpu_count() } else { 1 }
    }

    /// Begins the load of a target, and cuts its rows into parts.
    fn begin_parts(
        &self,
        sorted: &Sorted,
        number: usize,
        target: FillTarget,
        parts: &mut Vec<Part>,
    ) -> Result<Unfinished> {
        let FillTarget { space, id, options, beside } = target;
        let memory = sorted.memory_left();
        let part_bytes = (memory / 4).clamp(LEAST_PART_BYTES, MOST_PART_BYTES);
        let bytes = sorted.bytes_of(space) + beside.as_ref().map_or(0, Loaded::row_bytes);
        let most = self.processors() * PARTS_PER_PROCESSOR;
        let wanted = usize::try_from(bytes / part_bytes).unwrap_or(most).clamp(1, most);
        let between = self.handle().check(sorted.rows().split(space, wanted))?;
        let ends = between.iter().cloned().map(Some).chain([None]);
        let mut bounds: Vec<RowBounds> = Vec::new();
        for end in ends {
            bounds.push((bounds.last().and_then(|(_, end)| end.clone()), end));
        }
        let rows_in = |bounds: &RowBounds| beside.as_ref().map(|rows| rows.rows_in(range(bounds)));
        let beside_of: Vec<_> = bounds.iter().map(rows_in).collect();
        // What is read stays until it is read; the number is the new one's from now on.
        drop(beside);
        let load = self.start_tree(id, options)?;
        for (bounds, beside) in bounds.into_iter().zip(beside_of) {
            let loader = load.loader();
            let (number, target) = (parts.len(), number);
            parts.push(Part { number, target, space, bounds, beside, loader, bytes: 0 });
        }
        Ok(load)
    }
}

/// What a thread needs to read the runs of a space.
#[derive(Default)]
struct Needs {
    /// How many there are.
    runs: u64,
    /// Bytes that they take together, beside the pieces in which they are read.
    bytes: u64,
}

impl Needs {
    /// The least memory.
    fn least(&self) -> u64 {
        LEAF_BYTES + self.bytes + self.runs * LEAST_WINDOW
    }

    /// How many threads there are, of `most`, and in what pieces each reads runs, so that all stay within
    /// `memory`.
    fn share(&self, memory: u64, most: usize) -> (usize, u64) {
        let threads = usize::try_from(memory / self.least()).unwrap_or(usize::MAX);
        let threads = threads.min(most).max(1);
        let of_each = (memory / threads as u64).saturating_sub(LEAF_BYTES + self.bytes);
        let window = (of_each / self.runs.max(1)).clamp(LEAST_WINDOW, WINDOW);
        let taken = LEAF_BYTES + self.bytes + self.runs * window;
        let is_within = threads == 1 || threads as u64 * taken <= memory;
        assert!(is_within, "several threads stay within the memory");
        (threads, window)
    }
}

fn range((lower, upper): &RowBounds) -> KeyRange {
    let key = |key: &Arc<[u8]>| key.to_vec();
    KeyRange {
        lower: lower.as_ref().map_or(Bound::Unbounded, |lower| Bound::Excluded(key(lower))),
        upper: upper.as_ref().map_or(Bound::Unbounded, |upper| Bound::Included(key(upper))),
    }
}

/// A range of keys of one target.
struct Part {
    number: usize,
    target: usize,
    space: u32,
    bounds: RowBounds,
    beside: Option<LoadedRows>,
    loader: TreeLoader,
    bytes: u64,
}

/// What the threads share.
struct Filling {
    handle: Arc<EngineHandle>,
    sorted: Arc<Sorted>,
    are_same: Arc<AreSame>,
    /// Bytes of a run that are read at once.
    window: u64,
    stops: AtomicBool,
    /// Rows that were written.
    rows: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Parts that nobody has begun, the first one last.
    parts: Vec<Part>,
    filled: Vec<Part>,
    /// Threads that are at it.
    at_it: usize,
    failure: Option<FillError>,
}

impl Filling {
    /// Fills all parts; this thread is one of `threads`.
    fn run(
        self: &Arc<Self>,
        threads: usize,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<Part>, FillError> {
        let helpers: Vec<JoinHandle> = (1..threads).map_while(|_| self.start_helper()).collect();
        self.work(&mut || go_on(self.rows.load(Ordering::Relaxed)));
        let mut state = self.state.lock();
        while state.at_it > 0 {
            self.changed.wait_for(&mut state, ASK_AFTER);
            drop(state);
            if !go_on(self.rows.load(Ordering::Relaxed)) {
                self.stops.store(true, Ordering::Relaxed);
            }
            state = self.state.lock();
        }
        drop(state);
        let mut has_panicked = false;
        for helper in helpers {
            has_panicked |= helper.join().is_err();
        }
        let mut state = self.state.lock();
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        if has_panicked {
            return Err(Error::Stopped("a thread that loads ended by a bug".to_owned()).into());
        }
        if self.stops.load(Ordering::Relaxed) {
            return Err(FillError::Stopped);
        }
        Ok(std::mem::take(&mut state.filled))
    }

    fn start_helper(self: &Arc<Self>) -> Option<JoinHandle> {
        let own = Arc::clone(self);
        self.state.lock().at_it += 1;
        let at_it = AtIt(own);
        self.handle.helpers.start("fern-fill", move || at_it.0.work(&mut || true))
    }

    /// Fills parts until there are none, or something has failed.
    fn work(&self, go_on: &mut dyn FnMut() -> bool) {
        while !self.stops.load(Ordering::Relaxed) {
            let Some(mut part) = self.state.lock().parts.pop() else { return };
            let filled = self.fill(&mut part, go_on);
            let mut state = self.state.lock();
            match filled {
                Ok(()) => state.filled.push(part),
                Err(failure) => {
                    self.stops.store(true, Ordering::Relaxed);
                    if !matches!(failure, FillError::Stopped) {
                        state.failure.get_or_insert(failure);
                    }
                    return;
                }
            }
        }
    }

    fn fill(&self, part: &mut Part, go_on: &mut dyn FnMut() -> bool) -> Result<(), FillError> {
        let sorted = self.sorted.walk_part(part.space, &part.bounds, self.window)?;
        let mut rows = Rows::new(sorted, part.beside.take());
        let mut last_value = Vec::new();
        let (mut count, mut unasked) = (0_u64, 0);
        while let Some((key, value)) = rows.next()? {
            count += 1;
            if count.is_multiple_of(ASK_EVERY) {
                self.rows.fetch_add(ASK_EVERY, Ordering::Relaxed);
                if self.stops.load(Ordering::Relaxed) || !go_on() {
                    return Err(FillError::Stopped);
                }
            }
            if part.loader.last_key() == Some(key) {
                if !(self.are_same)(part.space, key, &last_value, value) {
                    let (space, values) = (part.space, [last_value, value.to_vec()]);
                    let key = key.to_vec();
                    return Err(FillError::Twice(Twice { space, key, values }));
                }
            } else {
                unasked += (key.len() + value.len()) as u64;
                if unasked >= PIECE_BYTES {
                    part.bytes += unasked;
                    self.handle.take_room(std::mem::take(&mut unasked))?;
                }
                self.handle.check(part.loader.add(key, value))?;
                value.clone_into(&mut last_value);
            }
        }
        self.rows.fetch_add(count % ASK_EVERY, Ordering::Relaxed);
        part.bytes += unasked;
        self.handle.take_room(unasked)?;
        Ok(self.handle.check(part.loader.cut())?)
    }
}

/// A thread that fills. Whoever waits for it learns of its end, however it ends.
struct AtIt(Arc<Filling>);

impl Drop for AtIt {
    fn drop(&mut self) {
        self.0.state.lock().at_it -= 1;
        self.0.changed.notify_all();
    }
}

/// Rows of a space, and those beside them, ascending.
struct Rows {
    sorted: SortedWalk,
    beside: Option<Beside>,
}

/// Rows beside others, and the first row of both.
struct Beside {
    rows: LoadedRows,
    heads: [Head; 2],
    /// Whose head was handed out last: 0 for the sorted rows; none before the first.
    given: Option<usize>,
}

#[derive(Default)]
struct Head {
    is_there: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Head {
    fn take(&mut self, row: Option<(&[u8], &[u8])>) {
        self.is_there = row.is_some();
        if let Some((key, value)) = row {
            key.clone_into(&mut self.key);
            value.clone_into(&mut self.value);
        }
    }
}

impl Rows {
    fn new(sorted: SortedWalk, beside: Option<LoadedRows>) -> Self {
        let beside = beside.map(|rows| Beside { rows, heads: Default::default(), given: None });
        Self { sorted, beside }
    }

    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let Some(Beside { rows, heads, given }) = &mut self.beside else {
            return self.sorted.next();
        };
        if *given != Some(1) {
            heads[0].take(self.sorted.next()?);
        }
        if *given != Some(0) {
            heads[1].take(rows.next()?);
        }
        let least = match (&heads[0], &heads[1]) {
            (sorted, beside) if sorted.is_there && beside.is_there => {
                usize::from(beside.key < sorted.key)
            }
            (sorted, _) => usize::from(!sorted.is_there),
        };
        *given = Some(least);
        let head = &heads[least];
        Ok(head.is_there.then_some((&head.key[..], &head.value[..])))
    }
}
