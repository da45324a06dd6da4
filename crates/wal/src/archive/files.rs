//! What is in an archive, for who reads it: files of the log, and moments.

use super::times::{Moment, read};
use super::{identity, is_times, number_of, refused};
use crate::Lsn;
use crate::directory::read_header;
use crate::error::{Error, Result};
use crate::segment::{HEADER_BYTES, SegmentHeader};
use os::{OpenOptions, Os};
use std::path::{Path, PathBuf};

/// A file of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArchivedFile {
    /// Where it lies.
    pub path: PathBuf,
    /// What its header says.
    pub header: SegmentHeader,
    /// One past the last position that it has bytes for.
    pub until: Lsn,
}

/// What is in an archive.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Files {
    /// The id of the data file that it belongs to.
    pub data_file: u128,
    /// By their numbers, ascending.
    pub files: Vec<ArchivedFile>,
    /// In the order in which they were written, each with the number of the file of the log it was in.
    pub moments: Vec<(u64, Moment)>,
}

impl Files {
    /// Reads what an archive has; all its moments, and of the files the headers.
    ///
    /// # Errors
    /// [`Error::Archive`] where it is none.
    pub fn read(os: &Os, dir: &Path) -> Result<Self> {
        let names = os.vfs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
        let Some(data_file) = identity(os, dir)? else {
            return Err(refused(dir, "is none: it has no file ARCHIVE"));
        };
        let mut found = Self { data_file, files: files_of(os, &names)?, moments: Vec::new() };
        let mut times: Vec<_> =
            names.iter().filter_map(|path| Some((is_times(path)?, path))).collect();
        times.sort_unstable();
        for (number, path) in times {
            found.moments.extend(read(os, path)?.into_iter().map(|moment| (number, moment)));
        }
        Ok(found)
    }

    /// The files of a log among those of a directory that is no archive.
    pub fn of_log(os: &Os, dir: &Path) -> Result<Vec<ArchivedFile>> {
        let names = os.vfs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
        files_of(os, &names)
    }
}

fn files_of(os: &Os, names: &[PathBuf]) -> Result<Vec<ArchivedFile>> {
    let mut files = Vec::new();
    for path in names {
        let Some(number) = number_of(path) else { continue };
        // One that is to be used again has no header, or that of another number.
        let Some(header) = read_header(os, number, path)? else { continue };
        let length = os.vfs.open(path, OpenOptions::read_only()).and_then(|file| file.len());
        let length = length.map_err(|e| Error::io("size of", path, e))?;
        let body = length.saturating_sub(HEADER_BYTES as u64).min(header.body_bytes);
        let until = header.first_lsn.saturating_add(body);
        files.push(ArchivedFile { path: path.clone(), header, until });
    }
    files.sort_by_key(|file| file.header.number);
    Ok(files)
}
