//! `raft.state` on a filesystem: `quorum::state` says what its bytes are and why there are two blocks.
//!
//! Always true: what [`Promises::keep`] was given before it returned is on disk in both blocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use os::{File, OpenOptions, Vfs};
use quorum::state::{BLOCK_BYTES, MemberState};
use quorum::{HardState, MemberId};

use crate::error::{Error, Result};

/// Term and vote, kept for good.
pub trait Promises {
    /// What was kept last.
    fn state(&self) -> &MemberState;

    /// Keeps a term and a vote, and the hint of what is committed. Returns once they are safe. Only
    /// elections come here, never a heartbeat, so it may take what two syncs take.
    fn keep(&mut self, hard: HardState, commit: u64) -> Result<()>;
}

/// The file.
pub struct StateFile {
    file: Arc<dyn File>,
    path: PathBuf,
    state: MemberState,
}

impl StateFile {
    /// Opens the file of a data directory, or makes it, with a new member's id. One that is there and
    /// cannot be read is an error: its member may have voted.
    pub fn open(vfs: &dyn Vfs, path: &Path, new_id: impl FnOnce() -> MemberId) -> Result<Self> {
        let refused = |source| Error::State(format!("{}: {source}", path.display()));
        if !vfs.exists(path).map_err(refused)? {
            make(vfs, path, &MemberState::new(new_id())).map_err(refused)?;
        }
        let file = vfs.open(path, OpenOptions::default()).map_err(refused)?;
        let mut blocks = [[0; BLOCK_BYTES]; 2];
        for (block, at) in blocks.iter_mut().zip([0, BLOCK_BYTES as u64]) {
            read_what_is_there(&*file, block, at).map_err(refused)?;
        }
        let found = MemberState::read(&blocks[0], &blocks[1]);
        let found = found.map_err(|error| Error::State(format!("{}: {error}", path.display())))?;
        let mut opened = Self { file, path: path.to_owned(), state: found.state };
        if found.repair {
            opened.write()?;
        }
        Ok(opened)
    }

    /// Changes what the file says of the member besides its votes.
    pub fn set_name(&mut self, set_name: &str, lineage: u64) -> Result<()> {
        set_name.clone_into(&mut self.state.set_name);
        self.state.lineage = lineage;
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        self.state.generation += 1;
        let block = self.state.encode()?;
        for at in [0, BLOCK_BYTES as u64] {
            let written = self.file.write_all_at(&block, at).and_then(|()| self.file.sync_data());
            written.map_err(|source| Error::State(format!("{}: {source}", self.path.display())))?;
        }
        Ok(())
    }
}

impl Promises for StateFile {
    fn state(&self) -> &MemberState {
        &self.state
    }

    fn keep(&mut self, hard: HardState, commit: u64) -> Result<()> {
        (self.state.term, self.state.vote) = (hard.term, hard.vote);
        self.state.commit_hint = self.state.commit_hint.max(commit);
        self.write()
    }
}

/// Whole under its name, or not there.
fn make(vfs: &dyn Vfs, path: &Path, state: &MemberState) -> std::io::Result<()> {
    let block = state.encode().map_err(std::io::Error::other)?;
    let unfinished = path.with_extension("state.new");
    let file = vfs.open(&unfinished, OpenOptions::create())?;
    file.set_len(0)?;
    file.write_all_at(&[block, block].concat(), 0)?;
    file.sync_all()?;
    vfs.rename(&unfinished, path)?;
    vfs.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// What a shortened file lacks stays zero, and is damage to whoever reads it.
fn read_what_is_there(file: &dyn File, block: &mut [u8], at: u64) -> std::io::Result<()> {
    let mut done = 0;
    while done < block.len() {
        match file.read_at(&mut block[done..], at + done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    Ok(())
}
