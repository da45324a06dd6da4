//! What a migration has done, what has no equal at the target, and whether both sides are equal.

use super::digest::Digest;
use super::names::Name;
use indicatif::HumanBytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// More of one kind are counted and not told one by one.
const TOLD_DOCUMENTS: usize = 10;

/// Something that the target has not, or has otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// A collection, an index, a user.
    pub(crate) what: String,
    /// Why it has not.
    pub(crate) why: String,
}

/// Both sides of a collection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Compared {
    pub(crate) name: Name,
    pub(crate) source: Digest,
    pub(crate) target: Digest,
    /// What a difference may come from, where that is known.
    pub(crate) remark: Option<String>,
}

impl Compared {
    pub(crate) fn is_equal(&self) -> bool {
        self.source == self.target
    }
}

/// Everything that is told at the end.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) notes: Vec<Note>,
    refused_documents: BTreeMap<String, u64>,
    /// None where comparing was left out.
    pub(crate) compared: Option<Vec<Compared>>,
    pub(crate) documents: u64,
    pub(crate) replaced: u64,
    pub(crate) changes: u64,
}

impl Report {
    pub(crate) fn note(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let note = Note { what: what.into(), why: why.into() };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// A document that the target has refused.
    pub(crate) fn refused_document(&mut self, name: &Name, id: &str, error: &str) {
        let count = self.refused_documents.entry(name.to_string()).or_default();
        *count += 1;
        if *count <= TOLD_DOCUMENTS as u64 {
            self.note(format!("{name}, document {id}"), error);
        }
    }

    /// Whether both sides are equal, as far as they were compared.
    pub(crate) fn is_equal(&self) -> bool {
        self.compared.iter().flatten().all(Compared::is_equal) && self.refused_documents.is_empty()
    }

    /// For the screen.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        self.table(&mut text);
        if !self.notes.is_empty() {
            text.push_str("\nNot taken over, or otherwise than in the source:\n");
        }
        for note in &self.notes {
            let _never_fails = writeln!(text, "  {}: {}", escaped(&note.what), escaped(&note.why));
        }
        for (name, count) in &self.refused_documents {
            if *count > TOLD_DOCUMENTS as u64 {
                let _never_fails =
                    writeln!(text, "  {}: {count} documents were refused in all", escaped(name));
            }
        }
        text
    }

    fn table(&self, text: &mut String) {
        let Some(rows) = &self.compared else { return };
        let width = rows.iter().map(|row| escaped(&row.name.to_string()).chars().count()).max();
        let width = width.unwrap_or_default().max("collection".len());
        let _never_fails = writeln!(
            text,
            "{:width$}  {:>12}  {:>12}  {:>10}  {:16}",
            "collection", "source", "target", "size", "digest"
        );
        for row in rows {
            let verdict = if row.is_equal() { "equal" } else { "DIFFERENT" };
            let size = HumanBytes(row.source.bytes).to_string();
            let digest = (row.source.sum >> 64) as u64;
            let _never_fails = write!(
                text,
                "{:width$}  {:>12}  {:>12}  {size:>10}  {digest:016x}  {verdict}",
                escaped(&row.name.to_string()),
                row.source.documents,
                row.target.documents
            );
            if let Some(remark) = row.remark.as_ref().filter(|_| !row.is_equal()) {
                let _never_fails = write!(text, " ({remark})");
            }
            text.push('\n');
        }
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let side = |digest: &Digest| json!({ "documents": digest.documents, "bytes": digest.bytes, "digest": format!("{:032x}", digest.sum) });
        let row = |row: &Compared| {
            json!({
                "collection": row.name.to_string(), "equal": row.is_equal(),
                "source": side(&row.source), "target": side(&row.target), "remark": row.remark,
            })
        };
        json!({
            "equal": self.is_equal(),
            "compared": self.compared.as_ref().map(|rows| rows.iter().map(row).collect::<Vec<_>>()),
            "documentsCopied": self.documents,
            "documentsThereBefore": self.replaced,
            "changesTakenOver": self.changes,
            "documentsRefused": self.refused_documents,
            "notTakenOver": self.notes.iter().map(|note| json!({ "what": note.what, "why": note.why })).collect::<Vec<_>>(),
        })
    }
}

/// A name may hold whatever a terminal obeys.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if letter.is_control() {
            escaped.extend(letter.escape_default());
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_tells_what_differs_and_what_was_refused() {
        let mut report = Report::default();
        assert!(report.is_equal() && report.text().is_empty());
        let digest = Digest { documents: 2, bytes: 2048, sum: 7 << 64 };
        let row = |name: &str, target| Compared {
            name: Name::parse(name).unwrap(),
            source: digest,
            target,
            remark: Some("why".to_owned()),
        };
        report.compared = Some(vec![row("shop.orders", digest)]);
        assert!(report.is_equal());
        report.compared =
            Some(vec![row("shop.orders", digest), row("shop.lost", Digest::default())]);
        report.note("shop.orders, index a_1", "no such thing");
        report.note("shop.orders, index a_1", "no such thing");
        let expected = "\
collection         source        target        size  digest          
shop.orders             2             2    2.00 KiB  0000000000000007  equal
shop.lost               2             0    2.00 KiB  0000000000000007  DIFFERENT (why)

Not taken over, or otherwise than in the source:
  shop.orders, index a_1: no such thing
";
        assert_eq!(report.text(), expected);
        assert!(!report.is_equal());
        assert_eq!(report.json()["compared"][1]["equal"], false);
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(escaped("a.\u{1b}[2Jé\n"), "a.\\u{1b}[2Jé\\n");
    }

    #[test]
    fn many_refused_documents_are_counted() {
        let mut report = Report::default();
        for id in 0..25 {
            report.refused_document(&Name::new("a", "b"), &id.to_string(), "too large");
        }
        assert!(!report.is_equal());
        assert_eq!(report.notes.len(), 10);
        assert!(report.text().ends_with("  a.b: 25 documents were refused in all\n"));
    }
}
