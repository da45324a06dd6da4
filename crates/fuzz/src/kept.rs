//! Inputs that are kept in the repository: those that take many branches, a file for each target in
//! `corpus`, and every input that has ever found a bug, in `findings`.
//!
//! A file of `corpus` is inputs one after the other, each behind its length (4 bytes, little end
//! first). A file of `findings` is one input, `TARGET-WORDS`.

use crate::{Target, returns, targets};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// This crate's folder.
fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn file(target: &Target) -> PathBuf {
    home().join("corpus").join(target.name)
}

/// A target's own inputs and those that are kept for it.
pub fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let mut inputs = (target.corpus)();
    let kept = std::fs::read(file(target)).unwrap_or_default();
    let mut rest = &kept[..];
    while let Some((length, behind)) = rest.split_first_chunk() {
        let (input, behind) =
            behind.split_at((u32::from_le_bytes(*length) as usize).min(behind.len()));
        inputs.push(input.to_vec());
        rest = behind;
    }
    inputs
}

/// Keeps inputs for a target, from the first on and up to so many bytes; says how many. Those with
/// a checksum that the fuzzer has forged are left out: without counters, the target takes each
/// frame that it did not write for damage that went unnoticed.
///
/// # Errors
/// A file that cannot be written.
pub fn keep(target: &Target, inputs: &[Vec<u8>], bytes: usize) -> Result<usize> {
    let (mut out, mut count) = (Vec::new(), 0);
    let mut function = (target.start)();
    for input in inputs.iter().filter(|input| returns(&mut function, input)) {
        if out.len() + 4 + input.len() > bytes {
            break;
        }
        out.extend_from_slice(&u32::try_from(input.len())?.to_le_bytes());
        out.extend_from_slice(input);
        count += 1;
    }
    std::fs::create_dir_all(home().join("corpus"))?;
    std::fs::write(file(target), out)?;
    Ok(count)
}

/// Every input that has ever found a bug, with the file's name and its target.
///
/// # Errors
/// A file that cannot be read or that belongs to no target.
pub fn findings() -> Result<Vec<(String, &'static Target, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(home().join("findings"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        // the longest that fits: names of targets have hyphens too
        let fitting = targets::ALL.iter().filter(|t| name.starts_with(&format!("{}-", t.name)));
        let target = fitting.max_by_key(|t| t.name.len());
        let target = target.with_context(|| format!("findings/{name} begins with no target"))?;
        found.push((name, target, std::fs::read(&path)?));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}
