//! A source that is a directory of `mongodump`, of MongoDB's or TokuMX's, plain or compressed.
//!
//! Always true: documents are read as `files` reads them, so a file that was cut off is an error.

use super::metadata::{self, Role};
use super::{Accounts, Documents, Source};
use crate::files::{self, is_compressed, next_document};
use crate::migrate::facts::{Facts, Kind, Part};
use crate::migrate::names::Name;
use anyhow::{Context, Result, bail};
use bson::Document;
use os::{OpenOptions, Os};
use std::collections::BTreeMap;
use std::io::{BufRead, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

    fn reader(&self, path: &Path) -> Result<Box<dyn BufRead + Send>> {
        files::open(&self.os, path, is_compressed(path), Arc::default())
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

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
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
