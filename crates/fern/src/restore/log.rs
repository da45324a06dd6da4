//! Which files of the log are copied, and up to which byte.

use super::moment::{Target, shown};
use crate::datafile::DataFile;
use crate::directory::DataDirectory;
use anyhow::{Context, Result, bail};
use engine::format::{RecordKind, read_record};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use telemetry::Registry;
use wal::archive::{ArchivedFile, Files, Moment};
use wal::format::HEADER_BYTES;
use wal::{Lsn, Metrics, Wal, WalOptions};

/// What of the log is copied.
pub(super) struct Plan {
    /// Files, and how many bytes of each.
    pub(super) files: Vec<(PathBuf, u64)>,
    /// Up to when, in a sentence.
    pub(super) until: String,
}

impl Plan {
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }

    pub(super) fn make(
        backup: &DataDirectory,
        data: &DataFile,
        archive: Option<&Path>,
        target: Target,
    ) -> Result<Self> {
        let own = Files::of_log(&backup.os, &backup.log)?;
        let Some(dir) = archive else {
            let files = own.into_iter().map(|file| {
                let bytes = HEADER_BYTES as u64 + (file.until - file.header.first_lsn);
                (file.path, bytes)
            });
            return Ok(Self {
                files: files.collect(),
                until: "the state is that of the backup".into(),
            });
        };
        let Some(superblock) = data.superblock else { bail!("the backup has no superblock") };
        if superblock.encrypted && backup.keys.is_none() {
            bail!(
                "the backup is encrypted: reading the archive needs its master key (--encryptionKeyFile)"
            );
        }
        let archived = Files::read(&backup.os, dir)?;
        if archived.data_file != superblock.file_id {
            bail!("{} belongs to another data directory than the backup", dir.display());
        }
        let needed = Needed {
            from: superblock.lsn,
            // Without a checkpoint everything is in the log.
            to: data.root.as_ref().map_or(0, |root| root.log_end),
        };
        let chain = Chain::of(dir, own, archived, needed)?;
        let cut = chain.cut(backup, needed, target)?;
        Ok(Self { files: chain.files_until(cut.position), until: cut.until })
    }
}

/// What a start with the backup's data file needs of the log.
#[derive(Clone, Copy)]
struct Needed {
    from: Lsn,
    to: Lsn,
}

/// Consecutive files of the log.
struct Chain<'a> {
    dir: &'a Path,
    /// With where each ends: where it is full, or the next one begins.
    files: Vec<(ArchivedFile, Lsn)>,
    moments: Vec<Moment>,
    /// The archive goes on, but not from where this ends.
    has_hole: bool,
}

/// Where the log is cut.
struct Cut {
    position: Lsn,
    until: String,
}

impl<'a> Chain<'a> {
    fn of(dir: &'a Path, own: Vec<ArchivedFile>, archived: Files, needed: Needed) -> Result<Self> {
        let newest_own = own.last().map_or(0, |file| file.header.number);
        let oldest_own = own.first().map_or(0, |file| file.header.number);
        let newest_archived = archived.files.last().map_or(0, |file| file.header.number);
        let mut files: BTreeMap<u64, ArchivedFile> =
            own.into_iter().map(|file| (file.header.number, file)).collect();
        let mut is_joined = false;
        for file in archived.files {
            let number = file.header.number;
            if let Some(own) = files.get(&number) {
                if own.header != file.header {
                    bail!(
                        "{} and {} are not of one log: a server has been started in the backup, or the archive is of \
                         another copy of its data directory",
                        own.path.display(),
                        file.path.display()
                    );
                }
                // The backup's files are whole but for the last one, of which it is not known how much counts;
                // in the archive it is.
                let has_more = number == newest_own
                    && (number < newest_archived
                        || file.until >= needed.to.min(file.header.end_lsn()));
                is_joined |= has_more;
                if !has_more {
                    continue;
                }
            }
            files.insert(number, file);
        }
        let start = files.values().rev().find(|file| file.header.first_lsn <= needed.from);
        let Some(start) = start.cloned() else {
            bail!("the log of the backup does not reach back to its checkpoint")
        };
        let mut chain = vec![start.clone()];
        let mut previous = start.header.previous;
        // What the backup has before its checkpoint is history.
        while let Some(file) = files.get(&previous).filter(|file| file.header.number >= oldest_own)
        {
            chain.insert(0, file.clone());
            previous = file.header.previous;
        }
        let mut has_hole = false;
        loop {
            let last = &chain[chain.len() - 1];
            let number = last.header.number;
            let mut later = files.range(number + 1..).map(|(_, file)| file);
            if later.clone().next().is_none() {
                break;
            }
            // A file that a crash has made void may name the same one.
            let next = later.rfind(|file| file.header.previous == number);
            let reaches = |next: &&ArchivedFile| {
                last.until >= next.header.first_lsn && (number != newest_own || is_joined)
            };
            let Some(next) = next.filter(reaches) else {
                has_hole = true;
                break;
            };
            chain.push(next.clone());
        }
        let firsts: Vec<(u64, Lsn)> =
            chain.iter().map(|file| (file.header.number, file.header.first_lsn)).collect();
        // Where the epoch of a file of the log has ended, by the file behind it.
        let end_of = |number: u64| {
            let next = firsts.iter().find(|(later, _)| *later > number);
            next.map_or(Lsn::MAX, |(_, first)| *first)
        };
        let newest = firsts.last().map_or(0, |(number, _)| *number);
        let moments = archived.moments.into_iter().filter(|(number, _)| *number <= newest);
        let moments = moments.map(|(number, moment)| {
            let position = moment.position.min(end_of(number));
            Moment { position, ..moment }
        });
        let moments = moments.collect();
        let files = chain
            .into_iter()
            .map(|file| {
                let end = file.until.min(end_of(file.header.number));
                (file, end)
            })
            .collect();
        Ok(Self { dir, files, moments, has_hole })
    }

    /// The newest moment that the chain has.
    fn last_moment(&self) -> i64 {
        self.moments.last().map_or(0, |moment| moment.wall_ms)
    }

    /// Finds where the log ends at a moment.
    fn cut(&self, backup: &DataDirectory, needed: Needed, target: Target) -> Result<Cut> {
        let bound = match target {
            Target::Moment(wall_ms) => {
                let known = self.moments.iter().rev().find(|moment| moment.wall_ms <= wall_ms);
                known.map_or(0, |moment| moment.position)
            }
            _ => Lsn::MAX,
        };
        let paths = self.files.iter().map(|(file, _)| file.path.clone()).collect();
        let metrics = Metrics::new(&Registry::new());
        let replay = Wal::open_files(&backup.os, self.dir, paths, WalOptions::default(), metrics);
        let mut replay = replay?.with_keys(backup.keys.clone())?;
        replay.seek(needed.from).context("the log of the backup and the archive")?;
        let (mut position, mut last_time, mut is_members) = (None, None, false);
        let mut is_within = false;
        let mut voids: Vec<(Lsn, Lsn)> = Vec::new();
        let noted = self.moments.last().map_or(0, |moment| moment.position);
        let mut torn = None;
        loop {
            let record = match replay.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                // What was copied behind the last moment need not be on disk, where its machine was lost.
                Err(wal::Error::Corruption { lsn, .. }) if lsn >= noted && !self.has_hole => {
                    torn = Some(lsn);
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            let facts = read_record(record.payload)
                .map_err(|what| anyhow::anyhow!("a record of the log at {}: {what}", record.lsn))?;
            match facts.kind {
                RecordKind::Entry { .. } => is_members = true,
                RecordKind::Cut { from, .. } => {
                    is_members = true;
                    voids.push((from, record.lsn));
                }
                _ => {}
            }
            let is_commit = matches!(facts.kind, RecordKind::Commit { .. });
            let is_later = match (target, facts.times) {
                (Target::Moment(wall_ms), Some((first, _))) => i64::try_from(first >> 32)
                    .is_ok_and(|second| second >= wall_ms.div_euclid(1000)),
                (Target::Moment(_), None) => is_commit && record.end > bound,
                (Target::ClusterTime(time), Some((_, last))) => last > time,
                (Target::ClusterTime(_), None) if is_commit => {
                    bail!("commits without a cluster time are in the log: name a moment instead")
                }
                (Target::End, _) | (Target::ClusterTime(_), None) => false,
            };
            if position.is_none() && is_later {
                position = Some(record.lsn);
                is_within = facts.times.is_some();
                if !is_members {
                    break;
                }
            } else if position.is_none() {
                last_time = facts.times.map(|(_, last)| last).or(last_time);
            }
        }
        let mut position = match position.or(torn) {
            Some(position) => position,
            None => replay.find_end()?,
        };
        // What was overwritten later was never on a majority of the set.
        if let Some((from, _)) =
            voids.iter().find(|(from, cut)| *from < position && position <= *cut)
        {
            position = *from;
        }
        self.check_within(target, is_within)?;
        if position < needed.to {
            let first = self.moments.iter().find(|moment| moment.position >= needed.to);
            let possible = first.map_or_else(String::new, |moment| {
                format!("; the first possible moment is {}", shown(moment.wall_ms))
            });
            if matches!(target, Target::End) {
                bail!(
                    "neither the archive nor the backup holds the log up to the backup's checkpoint"
                );
            }
            bail!("that is before the backup's checkpoint: take an older backup{possible}");
        }
        let time = last_time.map_or_else(String::new, |time| {
            format!("; the last commit has the cluster time {},{}", time >> 32, time & 0xFFFF_FFFF)
        });
        let until = match target {
            Target::End if self.has_hole => {
                bail!(
                    "the archive {} has a hole behind {}: name a moment before with --to",
                    self.dir.display(),
                    shown(self.last_moment())
                )
            }
            Target::End => format!("the state is that of {}", shown(self.last_moment())),
            Target::Moment(wall_ms) => format!("the state is that of {}", shown(wall_ms)),
            Target::ClusterTime(time) => {
                format!(
                    "the state is that of the cluster time {},{}",
                    time >> 32,
                    time & 0xFFFF_FFFF
                )
            }
        };
        Ok(Cut { position, until: until + &time })
    }

    /// A later commit shows that the archive reaches the moment, or what the server has noted.
    fn check_within(&self, target: Target, is_within: bool) -> Result<()> {
        let last = self.last_moment();
        let is_behind = match target {
            Target::End => false,
            Target::Moment(wall_ms) => !is_within && wall_ms > last,
            Target::ClusterTime(time) => {
                !is_within && i64::try_from(time >> 32).is_ok_and(|second| second > last / 1000)
            }
        };
        if is_behind && self.has_hole {
            bail!(
                "the archive {} has a hole: the last possible moment is {}",
                self.dir.display(),
                shown(last)
            );
        }
        if is_behind {
            bail!("that is behind the archive's end: the last possible moment is {}", shown(last));
        }
        Ok(())
    }

    /// The files before a position, and how much of each.
    fn files_until(&self, position: Lsn) -> Vec<(PathBuf, u64)> {
        let mut files = Vec::new();
        for (file, end) in &self.files {
            let first = file.header.first_lsn;
            if first < position || files.is_empty() {
                let bytes = position.clamp(first, (*end).max(first)) - first;
                files.push((file.path.clone(), HEADER_BYTES as u64 + bytes));
            }
        }
        files
    }
}
