//! What the server's figures were, second by second, for a day.
//!
//! Once a second somebody hands in a row: named numbers and the time. Rows are gathered into blocks
//! of a minute, each column as differences, compressed, and appended to a file of an hour. Reading
//! gives back chosen columns of a stretch of time, from disk and memory.
//!
//! What is always true:
//! 1. A block on disk is whole or it is not there: its checksum decides. What lies behind the first
//!    broken frame of a file is not read; a file that is continued is cut there.
//! 2. A crash loses the rows since the last write, [`WRITE_EVERY`] of them at most when only the
//!    process dies, and the last block when the machine does.
//! 3. Files together stay below [`MAX_BYTES`], and none is older than [`RETENTION`] plus an hour.
//! 4. Readers read without the lock; a writer never waits for a reader's disk.
//!
//! On disk: `docs/formats/history.md`.
#![forbid(unsafe_code)]

mod block;
mod file;
mod frame;
mod points;
#[cfg(test)]
mod tests;

use block::{Column, Row};
use file::HourFile;
use os::Os;
use parking_lot::Mutex;
use points::{GAP_MS, PointQuery, Points};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Rows of a full block: a minute.
const BLOCK_ROWS: usize = 60;

/// The block in the making is written after this many rows.
pub const WRITE_EVERY: usize = 10;

/// How long a second is kept.
pub const RETENTION: Duration = Duration::from_hours(24);

/// A new file is begun after this time.
const FILE_SPAN: Duration = Duration::from_hours(1);

/// All files together; a busy server with 500 figures writes about a tenth of it in a day.
pub const MAX_BYTES: u64 = 64 << 20;

/// Points of one reading at most.
pub const MAX_POINTS: usize = 20_000;

/// Values of one reading at most, over all its columns: a reply has to stay a document.
pub const MAX_VALUES: usize = 500_000;

/// A figure of one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Kept exactly.
    Whole(i64),
    /// Kept to the thousandth.
    Real(f64),
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// More than [`MAX_POINTS`] were asked for.
    #[error("more than {MAX_POINTS} points of time: ask for a greater step or a shorter stretch")]
    TooManyPoints,
    /// More than [`MAX_VALUES`] were asked for.
    #[error("more than {MAX_VALUES} values: ask for a greater step or fewer names")]
    TooManyValues,
    /// The disk says no.
    #[error("the history cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A block that was whole when it was written is not any more.
    #[error("a block of {0} is damaged")]
    Damaged(PathBuf),
}

/// Columns of a stretch of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The time of each point in milliseconds since 1970, ascending: of its last row.
    pub times: Vec<i64>,
    /// For each name that was asked for, a value for each point, where there was one.
    pub columns: Vec<Vec<Option<f64>>>,
}

/// The history of one data directory.
pub struct History {
    os: Os,
    folder: PathBuf,
    state: Mutex<State>,
}

/// Guards the files and the block in the making.
struct State {
    /// Oldest first; the last one is written to, if it is open.
    files: VecDeque<HourFile>,
    /// Whether the last file takes more.
    open: bool,
    columns: Arc<[Column]>,
    rows: Vec<Row>,
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl History {
    /// Opens the history in `folder`, which is made where missing. Reads every file once.
    ///
    /// # Errors
    /// What the disk says; `InvalidData` for a file of another version.
    pub fn open(os: &Os, folder: &Path) -> io::Result<Self> {
        os.vfs.create_dir_all(folder)?;
        let mut files = VecDeque::new();
        for path in os.vfs.list_dir(folder)? {
            if file::is_ours(&path) {
                files.extend(HourFile::open(os, path)?);
            }
        }
        let state = State {
            open: !files.is_empty(),
            files,
            columns: Arc::default(),
            rows: Vec::with_capacity(BLOCK_ROWS),
        };
        Ok(Self { os: os.clone(), folder: folder.to_owned(), state: Mutex::new(state) })
    }

    /// Takes a row; every minute and every [`WRITE_EVERY`] rows it is written.
    ///
    /// # Errors
    /// What the disk says. The block in the making is lost then; the next row begins a new file.
    pub fn add(&self, at_ms: i64, numbers: &[(String, Number)]) -> io::Result<()> {
        let mut state = self.state.lock();
        let added = state.add(&self.os, &self.folder, at_ms, numbers);
        if added.is_err() {
            state.open = false;
            state.rows.clear();
        }
        added
    }

    /// Writes what is in memory, durably. More may be added afterwards.
    ///
    /// # Errors
    /// As [`History::add`].
    pub fn flush(&self) -> io::Result<()> {
        self.state.lock().end_block()
    }

    /// The names of the newest row.
    pub fn names(&self) -> Vec<String> {
        self.state.lock().columns.iter().map(|column| column.name.clone()).collect()
    }

    /// The newest time there is, in milliseconds since 1970.
    pub fn newest(&self) -> Option<i64> {
        let state = self.state.lock();
        let on_disk = state.files.iter().filter_map(HourFile::last_ms).max();
        state.rows.last().map(|row| row.at_ms).max(on_disk)
    }

    /// The columns called `names` from `from_ms` to `to_ms`, both included, a point for every
    /// `step_ms`: the last row of each step. What the step's other rows were is told for
    /// `least(NAME)` and `most(NAME)`, and for `slowest(NAME)` and `fastest(NAME)`: what the figure
    /// grew by, per second, from one row to the next.
    ///
    /// # Errors
    /// [`Error`].
    pub fn read(
        &self,
        from_ms: i64,
        to_ms: i64,
        step_ms: i64,
        names: &[&str],
    ) -> Result<Series, Error> {
        let wanted: Vec<PointQuery<'_>> =
            names.iter().map(|name| PointQuery::parse(name)).collect();
        let mut points = Points::new(from_ms, to_ms, step_ms.max(1));
        let before_ms = from_ms.saturating_sub(GAP_MS);
        let (blocks, columns, rows) = {
            let state = self.state.lock();
            let blocks: Vec<_> =
                state.files.iter().flat_map(|file| file.blocks_of(before_ms, to_ms)).collect();
            (blocks, Arc::clone(&state.columns), state.rows.clone())
        };
        for block in blocks {
            points.take(&block.columns, &block.read()?, &wanted)?;
        }
        points.take(&columns, &rows, &wanted)?;
        let mut series = Series { times: Vec::new(), columns: vec![Vec::new(); names.len()] };
        for (at_ms, values) in points.by_step() {
            series.times.push(at_ms);
            for (column, value) in series.columns.iter_mut().zip(values) {
                column.push(value);
            }
        }
        Ok(series)
    }
}

impl State {
    fn add(
        &mut self,
        os: &Os,
        folder: &Path,
        at_ms: i64,
        numbers: &[(String, Number)],
    ) -> io::Result<()> {
        let same = self.columns.len() == numbers.len()
            && self.columns.iter().zip(numbers).all(|(column, number)| column.is_of(number));
        let goes_on = self.rows.last().is_none_or(|last| last.at_ms < at_ms);
        if !same || !goes_on {
            self.end_block()?;
        }
        if !same {
            self.columns = numbers.iter().map(Column::of).collect();
        }
        self.make_room(os, folder, at_ms)?;
        self.rows.push(Row { at_ms, values: numbers.iter().map(|(_, n)| n.kept()).collect() });
        if self.rows.len() == BLOCK_ROWS {
            return self.end_block();
        }
        if self.rows.len().is_multiple_of(WRITE_EVERY)
            && let Some(file) = self.files.back_mut()
        {
            file.write_unfinished(&self.rows)?;
        }
        Ok(())
    }

    /// Sees to a file that can take a row of this time with these columns.
    fn make_room(&mut self, os: &Os, folder: &Path, at_ms: i64) -> io::Result<()> {
        let hour = FILE_SPAN.as_millis() as i64;
        let fits = |file: &HourFile| (file.first_ms()..file.first_ms() + hour).contains(&at_ms);
        if !self.open || !self.files.back().is_some_and(fits) {
            self.end_block()?;
            self.files.push_back(HourFile::create(os, folder, at_ms)?);
            self.open = true;
            self.forget(os, at_ms);
        }
        match self.files.back_mut() {
            Some(file) if self.rows.is_empty() => file.set_columns(&self.columns),
            _ => Ok(()),
        }
    }

    /// Removes what is too old or too much, but never the newest file.
    fn forget(&mut self, os: &Os, now_ms: i64) {
        let oldest = now_ms - RETENTION.as_millis() as i64;
        while self.files.len() > 1 {
            let bytes: u64 = self.files.iter().map(HourFile::bytes).sum();
            let is_old = self.files[0].last_ms().is_none_or(|last| last < oldest);
            if bytes <= MAX_BYTES && !is_old {
                return;
            }
            if let Some(file) = self.files.pop_front() {
                // One that stays behind is found, and removed, after the next start.
                let _stays = os.vfs.remove_file(file.path());
            }
        }
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.rows.is_empty() || !self.open {
            return Ok(());
        }
        if let Some(file) = self.files.back_mut() {
            file.write_block(&self.rows)?;
        }
        self.rows.clear();
        Ok(())
    }
}
