//! A source that is a directory of `mongodump`, of MongoDB's or TokuMX's, plain or compressed.
//!
//! Always true: a file that ends within a document is an error that names the place; what follows the last whole
//! document is never taken for the end.

use super::metadata::{self, Role};
use super::{Accounts, Documents, Source};
use crate::migrate::facts::{Facts, Kind, Part};
use crate::migrate::names::Name;
use anyhow::{Context, Result, anyhow, bail, ensure};
use bson::{Document, RawDocumentBuf};
use flate2::read::MultiGzDecoder;
use os::{File, OpenOptions, Os};
use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest document that a server gives out, with what it adds itself.
const MAX_DOCUMENT_BYTES: usize = (16 << 20) + (16 << 10);
const BUFFER_BYTES: usize = 1 << 20;

/// A dump.
pub(crate) struct DumpSource {
    os: Os,
    /// Files of documents, by the names that their metadata tell.
    files: BTreeMap<Name, PathBuf>,
    facts: Vec<Facts>,
    left_out: Vec<(String, String)>,
}

impl DumpSource {
    /// Looks at what there is; documents are read later.
    pub(crate) fn open(os: &Os, directory: &Path) -> Result<Self> {
        let mut source = Self {
            os: os.clone(),
            files: BTreeMap::new(),
            facts: Vec::new(),
            left_out: Vec::new(),
        };
        let shown = || directory.display().to_string();
        let entries = os.vfs.list_dir(directory).with_context(shown)?;
        let is_data = |path: &PathBuf| {
            matches!(metadata::role(&file_name(path)), Role::Documents(_) | Role::Metadata(_))
        };
        if entries.iter().any(|path| path.is_file() && is_data(path)) {
            source.database(directory, &file_name(&directory.canonicalize()?))?;
        } else {
            for path in entries.iter().filter(|path| path.is_dir()) {
                source.database(path, &file_name(path))?;
            }
        }
        if entries.iter().any(|path| metadata::role(&file_name(path)) == Role::Oplog) {
            let why = "the oplog of the dump is not replayed: mongorestore --oplogReplay does that";
            source.left_out.push(("oplog.bson".to_owned(), why.to_owned()));
        }
        if source.files.is_empty() && source.facts.is_empty() {
            bail!(
                "{}: there is no dump in it: databases are directories with .bson files",
                shown()
            );
        }
        Ok(source)
    }

    /// The files of one database.
    fn database(&mut self, directory: &Path, database: &str) -> Result<()> {
        let (mut documents, mut told) = (BTreeMap::new(), BTreeMap::new());
        for path in self.os.vfs.list_dir(directory)? {
            match metadata::role(&file_name(&path)) {
                Role::Documents(name) => drop(documents.insert(name, path)),
                Role::Metadata(name) => drop(told.insert(name, path)),
                Role::Oplog | Role::Other => {}
            }
        }
        for name in documents.keys() {
            if let Some(series) = name.strip_prefix("system.buckets.") {
                let why = "a time series is dumped in buckets, which only MongoDB reads: migrate from the running server";
                self.left_out.push((format!("{database}.{series}"), why.to_owned()));
                told.remove(series);
            }
        }
        let names: Vec<String> = documents.keys().chain(told.keys()).cloned().collect();
        for short in names {
            let name = Name::new(database, short.clone());
            let mut facts = match told.remove(&short) {
                Some(path) => {
                    let shown = || path.display().to_string();
                    let mut text = String::new();
                    self.reader(&path)?.read_to_string(&mut text).with_context(shown)?;
                    metadata::read(&name, &text).with_context(shown)?
                }
                None => Facts::new(name.clone(), "", Document::new()),
            };
            if let Some(path) = documents.remove(&short) {
                facts.bytes = self.size(&path)?;
                self.files.insert(facts.name.clone(), path);
            } else if self.facts.iter().any(|known| known.name == facts.name)
                || self.files.contains_key(&facts.name)
            {
                continue;
            }
            if !facts.name.is_internal() {
                self.facts.push(facts);
            }
        }
        Ok(())
    }

    /// Bytes that the documents of a file have, as far as that can be told without reading them.
    fn size(&self, path: &Path) -> Result<u64> {
        let file = self.os.vfs.open(path, OpenOptions::read_only())?;
        let bytes = file.len()?;
        if !is_compressed(path) || bytes < 4 {
            return Ok(bytes);
        }
        // The last four bytes of gzip are the length without compression, of what is below 4 GiB.
        let mut length = [0; 4];
        file.read_exact_at(&mut length, bytes - 4)?;
        Ok(u64::from(u32::from_le_bytes(length)).max(bytes))
    }

    fn reader(&self, path: &Path) -> Result<Box<dyn Read>> {
        let shown = || path.display().to_string();
        let file = self.os.vfs.open(path, OpenOptions::read_only());
        let file = file.map_err(|error| anyhow!("{}: {error}", shown()))?;
        let plain = BufReader::with_capacity(BUFFER_BYTES, AtOffset { file, offset: 0 });
        if is_compressed(path) {
            return Ok(Box::new(BufReader::new(MultiGzDecoder::new(plain))));
        }
        Ok(Box::new(plain))
    }

    /// The documents of a file, but the first ones.
    fn documents<'a>(&self, path: &Path, skip: u64) -> Result<Documents<'a>> {
        let (mut reader, path) = (self.reader(path)?, path.to_owned());
        let (mut offset, mut ended) = (0, false);
        let all = std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let next = next_document(&mut reader, offset);
            match &next {
                Ok(Some(document)) => offset += document.as_bytes().len() as u64,
                Ok(None) | Err(_) => ended = true,
            }
            next.with_context(|| path.display().to_string()).transpose()
        });
        let skip = usize::try_from(skip)?;
        // What was read before is whole, or it would not be there to be skipped.
        Ok(Box::new(
            all.enumerate()
                .filter(move |(at, one)| *at >= skip || one.is_err())
                .map(|(_, one)| one),
        ))
    }

    fn system(&self, database: &str, collection: &str) -> Result<Vec<Document>> {
        let Some(path) = self.files.get(&Name::new(database, collection)) else {
            return Ok(Vec::new());
        };
        self.documents(path, 0)?.map(|one| Ok(Document::try_from(&*one?)?)).collect()
    }
}

/// The next document of a file, if there is one.
fn next_document(reader: &mut impl Read, offset: u64) -> Result<Option<RawDocumentBuf>> {
    // No error of the file's is one that passes, so none goes on as one of input and output.
    let torn = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            anyhow!("the file ends within the document at byte {offset}: the dump was cut off")
        }
        _ => anyhow!("it cannot be read behind byte {offset}: {error}"),
    };
    let mut length = [0; 4];
    let first = loop {
        match reader.read(&mut length[..1]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => break result.map_err(torn)?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut length[1..]).map_err(torn)?;
    let bytes = usize::try_from(i32::from_le_bytes(length)).unwrap_or(0);
    ensure!((5..=MAX_DOCUMENT_BYTES).contains(&bytes), "there is no document at byte {offset}");
    let mut document = vec![0; bytes];
    document[..4].copy_from_slice(&length);
    reader.read_exact(&mut document[4..]).map_err(torn)?;
    let document = RawDocumentBuf::from_bytes(document);
    Ok(Some(document.with_context(|| format!("there is no document at byte {offset}"))?))
}

struct AtOffset {
    file: Arc<dyn File>,
    offset: u64,
}

impl Read for AtOffset {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

impl Source for DumpSource {
    fn list(&self) -> Result<Vec<Facts>> {
        Ok(self.facts.clone())
    }

    fn read<'a>(&'a self, facts: &Facts, part: &Part) -> Result<Documents<'a>> {
        match self.files.get(&facts.name) {
            Some(path) if facts.kind == Kind::Ordered => self.documents(path, part.skip),
            Some(path) => self.documents(path, 0),
            None => Ok(Box::new(std::iter::empty())),
        }
    }

    fn accounts(&self) -> Result<Accounts> {
        let mut accounts =
            Accounts { roles: self.system("admin", "system.roles")?, ..Accounts::default() };
        let databases = self.files.keys().filter(|name| name.collection == "system.users");
        for name in databases {
            for user in self.system(&name.database, "system.users")? {
                if user.contains_key("credentials") {
                    accounts.users.push(user);
                } else {
                    accounts.old_users.push((name.database.clone(), user));
                }
            }
        }
        Ok(accounts)
    }

    fn left_out(&self) -> Vec<(String, String)> {
        self.left_out.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::failures::is_passing;
    use bson::rawdoc;

    #[test]
    fn a_file_that_is_cut_off_is_an_error_and_not_an_end() {
        let documents = [rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 }];
        let bytes: Vec<u8> = documents.iter().flat_map(|one| one.as_bytes()).copied().collect();
        let middle = documents[0].as_bytes().len();
        for length in 0..=bytes.len() {
            let mut reader = &bytes[..length];
            let mut found = 0;
            let end = loop {
                match next_document(&mut reader, 0) {
                    Ok(Some(_)) => found += 1,
                    end => break end.is_ok(),
                }
            };
            assert_eq!(found, usize::from(length >= middle) + usize::from(length == bytes.len()));
            assert_eq!(end, length % middle == 0, "{length}");
        }
        assert!(next_document(&mut &[0xff; 40][..], 0).is_err());
    }

    #[test]
    fn a_damaged_compressed_file_is_an_error_that_does_not_pass() {
        let mut plain = MultiGzDecoder::new(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12][..]);
        let error = next_document(&mut plain, 0).unwrap_err();
        assert!(!is_passing(&error), "{error:#}");
    }
}
