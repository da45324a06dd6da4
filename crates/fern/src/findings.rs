//! What was found: damage, each with its place, and remarks that are no damage.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// In which file.
    pub file: PathBuf,
    /// At which byte of it, where there is one place.
    pub offset: Option<u64>,
    /// In which dictionary's tree.
    pub tree: Option<u64>,
    /// In which segment of the data file.
    pub segment: Option<u64>,
    /// In which page of it.
    pub page: Option<u32>,
    /// What is wrong.
    pub what: String,
}

impl Damage {
    /// Damage to a file as a whole.
    pub(crate) fn of(file: &Path, what: impl Into<String>) -> Self {
        Self {
            file: file.to_path_buf(),
            offset: None,
            tree: None,
            segment: None,
            page: None,
            what: what.into(),
        }
    }

    pub(crate) fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    pub(crate) fn tree(mut self, tree: u64) -> Self {
        self.tree = Some(tree);
        self
    }

    pub(crate) fn segment(mut self, segment: u64) -> Self {
        self.segment = Some(segment);
        self
    }

    pub(crate) fn page(mut self, page: u32) -> Self {
        self.page = Some(page);
        self
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "file": self.file.display().to_string(),
            "offset": self.offset,
            "tree": self.tree,
            "segment": self.segment,
            "page": self.page,
            "what": self.what,
        })
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at {offset}")?;
        }
        for (name, number) in
            [("tree", self.tree), ("segment", self.segment), ("page", self.page.map(u64::from))]
        {
            if let Some(number) = number {
                write!(f, ", {name} {number}")?;
            }
        }
        write!(f, ": {}", self.what)
    }
}

/// Everything found, in the order it was come across.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Damage.
    pub damages: Vec<Damage>,
    /// Remarks: nothing is lost, but somebody may want to know.
    pub notes: Vec<String>,
}

impl Findings {
    pub(crate) fn damage(&mut self, damage: Damage) {
        self.damages.push(damage);
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// A line each.
    pub fn text(&self) -> String {
        let damages = self.damages.iter().map(|damage| format!("damage: {damage}\n"));
        let notes = self.notes.iter().map(|note| format!("note: {note}\n"));
        damages.chain(notes).collect()
    }

    /// Whether nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.damages.is_empty()
    }
}
