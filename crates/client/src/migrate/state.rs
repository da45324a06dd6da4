//! How far a migration is, in a small file, so that one that was killed goes on.
//!
//! Always true: the file is whole, for it takes its place by a rename; what it says was copied is at the target, since it
//! is written after the target has acknowledged. What it does not say yet may be there too, and is copied again.

use super::facts::Part;
use super::names::{Filter, Name};
use anyhow::{Context, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::{Bson, Document, doc};
use os::{OpenOptions, Os};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file's version.
const VERSION: u32 = 1;

/// A value of BSON as it is, to the type of its numbers, in base64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Packed(pub(crate) Bson);

impl From<Packed> for String {
    fn from(value: Packed) -> Self {
        // A value that came out of a document goes into one.
        let bytes = doc! { "": value.0 }.to_vec().unwrap_or_default();
        BASE64.encode(bytes)
    }
}

impl TryFrom<String> for Packed {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let bytes = BASE64.decode(text).map_err(|error| error.to_string())?;
        let document = Document::from_reader(&bytes[..]).map_err(|error| error.to_string())?;
        document.get("").cloned().map(Packed).ok_or_else(|| "no value".to_owned())
    }
}

/// The parts of a migration of one collection, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    /// It was made at the target, and some of its documents may be there.
    Copying,
    /// All documents that there were are there.
    Copied,
    /// Its indexes are, too.
    Indexed,
}

/// One of the ranges of a collection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RangeState {
    pub(crate) from: Option<Packed>,
    pub(crate) until: Option<Packed>,
    /// The `_id` of the last document that is at the target with all before it.
    pub(crate) last: Option<Packed>,
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
    pub(crate) done: bool,
}

impl RangeState {
    /// What is left to read of it.
    pub(crate) fn rest(&self) -> Part {
        let value = |packed: &Option<Packed>| packed.as_ref().map(|packed| packed.0.clone());
        Part {
            from: value(&self.from),
            until: value(&self.until),
            last: value(&self.last),
            skip: self.documents,
            at: None,
        }
    }
}

/// Ranges between these `_id`s, which are in order.
pub(crate) fn ranges_between(bounds: &[Bson]) -> Vec<RangeState> {
    let packed = |at: usize| bounds.get(at).cloned().map(Packed);
    let range = |at: usize| RangeState {
        from: at.checked_sub(1).and_then(packed),
        until: packed(at),
        ..RangeState::default()
    };
    (0..=bounds.len()).map(range).collect()
}

/// One collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CollectionState {
    pub(crate) phase: Phase,
    /// It was at the target before this migration.
    #[serde(default)]
    pub(crate) existed: bool,
    #[serde(default)]
    pub(crate) ranges: Vec<RangeState>,
}

/// The file's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct State {
    version: u32,
    pub(crate) source: String,
    pub(crate) target: String,
    /// The patterns that chose the collections: changes of what others would choose were not taken over. A state of an
    /// earlier version has none.
    #[serde(default)]
    patterns: Option<Filter>,
    /// From where on the source's changes are still to be taken over: a stream's token, or a time before there was one.
    pub(crate) token: Option<Packed>,
    /// The source gave a change stream when the migration began.
    #[serde(default)]
    pub(crate) has_stream: bool,
    #[serde(default)]
    pub(crate) has_users: bool,
    pub(crate) collections: BTreeMap<String, CollectionState>,
}

impl State {
    pub(crate) fn new(source: &str, target: &str) -> Self {
        Self {
            version: VERSION,
            source: source.to_owned(),
            target: target.to_owned(),
            patterns: None,
            token: None,
            has_stream: false,
            has_users: false,
            collections: BTreeMap::new(),
        }
    }

    /// Whether this call chooses the collections that the first one chose; notes it where this is the first.
    pub(crate) fn has_patterns(&mut self, filter: &Filter) -> bool {
        let patterns = self.patterns.get_or_insert_with(|| filter.clone());
        patterns.sorted() == filter.sorted()
    }

    pub(crate) fn of(&self, name: &Name) -> Option<&CollectionState> {
        self.collections.get(&name.to_string())
    }

    /// From a file's text, if it is about this source and target.
    fn read(text: &str, source: &str, target: &str) -> Result<Self> {
        let state: Self = serde_json::from_str(text)?;
        if state.version != VERSION {
            bail!("it has version {}, and this program knows {VERSION}", state.version);
        }
        if (&*state.source, &*state.target) != (source, target) {
            bail!("it is of a migration from {} to {}", state.source, state.target);
        }
        Ok(state)
    }
}

/// The name of the file where none is given: both ends in it, as far as a file's name can hold them.
pub(crate) fn default_path(source: &str, target: &str) -> PathBuf {
    let short = |text: &str| {
        let text = text.split('?').next().unwrap_or_default();
        let text = text.rsplit_once('@').map_or(text, |(_, hosts)| hosts);
        let text = text.trim_start_matches("mongodb://").trim_start_matches("mongodb+srv://");
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        let text: String = text.chars().map(|c| if plain(c) { c } else { '_' }).collect();
        text.trim_matches(['_', '.']).chars().take(80).collect::<String>()
    };
    format!("fern-migrate-{}-to-{}.json", short(source), short(target)).into()
}

/// The file, held by one process at a time.
pub(crate) struct StateFile {
    os: Os,
    path: PathBuf,
    _held: os::LockGuard,
}

impl StateFile {
    /// Opens the file, and reads it where there is one.
    pub(crate) fn open(
        os: &Os,
        path: &Path,
        source: &str,
        target: &str,
    ) -> Result<(Self, Option<State>)> {
        let shown = path.display().to_string();
        let held =
            os.vfs.lock(&path.with_extension("lock")).map_err(|error| match error.kind() {
                std::io::ErrorKind::WouldBlock => anyhow!("{shown}: another migration uses it"),
                _ => anyhow!("{shown}: it cannot be locked: {error}"),
            })?;
        let text = read_file(os, path).with_context(|| shown.clone())?;
        let state = match text {
            Some(text) => {
                let again = "it cannot be gone on with; name another by --state FILE, or remove it";
                let state = State::read(&text, source, target);
                Some(state.with_context(|| format!("{shown}: {again}"))?)
            }
            None => None,
        };
        Ok((Self { os: os.clone(), path: path.to_owned(), _held: held }, state))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the state; waits for the disk.
    pub(crate) fn write(&self, state: &State) -> Result<()> {
        let text = serde_json::to_vec_pretty(state)?;
        write_file(&self.os, &self.path, &text).with_context(|| self.path.display().to_string())
    }
}

fn read_file(os: &Os, path: &Path) -> Result<Option<String>> {
    if !os.vfs.exists(path)? {
        return Ok(None);
    }
    let file = os.vfs.open(path, OpenOptions::read_only())?;
    let mut bytes = vec![0; usize::try_from(file.len()?)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Some(String::from_utf8(bytes)?))
}

/// Writes a file that takes its place whole.
pub(crate) fn write_file(os: &Os, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let file = os.vfs.open(&beside, OpenOptions { truncate: true, ..OpenOptions::create() })?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()?;
    os.vfs.rename(&beside, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    os.vfs.sync_dir(directory.unwrap_or(Path::new(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_as_it_was_written() {
        let mut state = State::new("a", "b");
        let ids = [Bson::Int64(5), Bson::Double(f64::NAN), Bson::String("é".into())];
        let mut ranges = ranges_between(&ids[..1]);
        ranges[1].last = Some(Packed(Bson::Int32(5)));
        let collection = CollectionState { phase: Phase::Copying, existed: false, ranges };
        state.collections.insert("x.y".into(), collection);
        state.token = Some(Packed(Bson::Document(doc! { "_data": ids[2].clone() })));
        let folder = tempfile::tempdir().unwrap();
        let (os, path) = (Os::real(), folder.path().join("state.json"));
        {
            let (file, none) = StateFile::open(&os, &path, "a", "b").unwrap();
            assert!(none.is_none());
            file.write(&state).unwrap();
            assert!(StateFile::open(&os, &path, "a", "b").is_err(), "it is held");
        }
        let (_, read) = StateFile::open(&os, &path, "a", "b").unwrap();
        assert_eq!(read, Some(state.clone()));
        let of = |include: &[&str]| Filter {
            include: include.iter().map(ToString::to_string).collect(),
            exclude: vec!["c".to_owned()],
        };
        assert!(state.has_patterns(&of(&["b", "a"])) && state.has_patterns(&of(&["a", "b"])));
        assert!(!state.has_patterns(&of(&["a"])) && !state.has_patterns(&Filter::default()));
        let other = StateFile::open(&os, &path, "a", "c").err().unwrap();
        assert!(format!("{other:#}").contains("from a to b"), "{other:#}");
    }

    #[test]
    fn ranges_cover_everything_once() {
        let bounds: Vec<Bson> = [3, 7].map(Bson::Int32).to_vec();
        let parts: Vec<Part> = ranges_between(&bounds).iter().map(RangeState::rest).collect();
        let shown: Vec<_> =
            parts.iter().map(|part| (part.from.clone(), part.until.clone())).collect();
        let of = |number| Some(Bson::Int32(number));
        assert_eq!(shown, [(None, of(3)), (of(3), of(7)), (of(7), None)]);
        assert_eq!(ranges_between(&[]), [RangeState::default()]);
    }

    #[test]
    fn the_files_name_has_both_ends_and_no_secret() {
        for (source, target, expected) in [
            ("mongodb://u:***@h:1/?tls=true", "mongodb://b", "fern-migrate-h_1-to-b.json"),
            ("../dump/", "mongodb://127.0.0.1:27017/", "fern-migrate-dump-to-127.0.0.1_27017.json"),
        ] {
            assert_eq!(default_path(source, target), PathBuf::from(expected));
        }
    }
}
