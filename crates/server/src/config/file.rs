//! Configuration files, both kinds, as a list of flags and values.
//!
//! A file whose first meaningful line has the form `key = value` is of the 2.4 era, which is what
//! TokuMX's users have; everything else is YAML. The 2.4 keys are the flags.

use crate::config::ConfigError;
use crate::config::options::flag_of_yaml;
use os::{OpenOptions, Os};
use serde_yaml_ng::Value;
use std::path::Path;

/// No real one is larger, and a device that never ends must not fill the memory.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A flag and its value as the file has them; no value: the bare key.
pub(crate) type Pair = (String, Option<String>);

/// Reads and understands a file.
pub(crate) fn read(os: &Os, path: &Path) -> Result<Vec<Pair>, ConfigError> {
    let shown = path.display();
    let text = read_text(os, path)
        .map_err(|error| ConfigError::new(format!("cannot read --config {shown}: {error}")))?;
    let pairs = if is_ini(&text) { ini(&text) } else { yaml(&text) };
    pairs.map_err(|error| ConfigError::new(format!("{shown}: {error}")))
}

fn read_text(os: &Os, path: &Path) -> std::io::Result<String> {
    let file = os.vfs.open(path, OpenOptions::read_only())?;
    let length = file.len()?;
    if length > MAX_FILE_BYTES {
        return Err(std::io::Error::other("the file is too large for a configuration"));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    String::from_utf8(bytes).map_err(std::io::Error::other)
}

fn meaningful(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn is_ini(text: &str) -> bool {
    meaningful(text).next().is_some_and(|(_, line)| {
        line.split_once('=').is_some_and(|(key, _)| !key.contains(':'))
            || line.starts_with('[')
            || !line.contains([':', '{', '-'])
    })
}

fn ini(text: &str) -> Result<Vec<Pair>, String> {
    let mut pairs = Vec::new();
    for (number, line) in meaningful(text) {
        // Sections mean nothing, as for `mongod` 2.4.
        if line.starts_with('[') {
            continue;
        }
        // A comment may stand behind a value, and a value has no `#`, as for `mongod` 2.4.
        let line = line.split('#').next().unwrap_or_default().trim_end();
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim().to_owned())),
            None => (line, None),
        };
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(format!("line {number} is not key = value: {line}"));
        }
        pairs.push((key.to_owned(), value));
    }
    Ok(pairs)
}

fn yaml(text: &str) -> Result<Vec<Pair>, String> {
    let root: Value = serde_yaml_ng::from_str(text).map_err(|error| {
        // The parser's message may span lines; the operator gets one.
        error.to_string().replace('\n', " ")
    })?;
    let mut pairs = Vec::new();
    match root {
        Value::Null => {}
        Value::Mapping(_) => flatten("", &root, &mut pairs)?,
        _ => return Err("the file is neither YAML sections nor key = value lines".to_owned()),
    }
    Ok(pairs)
}

fn flatten(place: &str, value: &Value, pairs: &mut Vec<Pair>) -> Result<(), String> {
    if place == "setParameter" {
        return flatten_parameters(value, pairs);
    }
    if let Value::Mapping(mapping) = value {
        for (key, inner) in mapping {
            let key = key.as_str().ok_or_else(|| format!("a key under '{place}' is not text"))?;
            let inside = if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
            flatten(&inside, inner, pairs)?;
        }
        return Ok(());
    }
    let text = scalar(place, value)?;
    match place {
        // Says where the log goes; the path says the same.
        "systemLog.destination" => match text.as_str() {
            "file" => {}
            other => return Err(format!("systemLog.destination: {other} is not supported")),
        },
        "net.unixDomainSocket.enabled" => {
            if crate::config::size::parse_switch(&text) == Some(false) {
                pairs.push(("nounixsocket".to_owned(), None));
            }
        }
        _ => match flag_of_yaml(place) {
            Some("noscripting") => {
                // The YAML place says the opposite of the flag.
                if crate::config::size::parse_switch(&text) == Some(false) {
                    pairs.push(("noscripting".to_owned(), None));
                }
            }
            Some(flag) => pairs.push((flag.to_owned(), Some(text))),
            None => return Err(format!("unrecognized option: {place}")),
        },
    }
    Ok(())
}

fn flatten_parameters(value: &Value, pairs: &mut Vec<Pair>) -> Result<(), String> {
    let mapping = match value {
        Value::Null => return Ok(()),
        Value::Mapping(mapping) => mapping,
        _ => return Err("setParameter: is not a section".to_owned()),
    };
    for (key, inner) in mapping {
        let key = key.as_str().ok_or("setParameter: a name is not text")?;
        let text = scalar(key, inner)?;
        pairs.push(("setParameter".to_owned(), Some(format!("{key}={text}"))));
    }
    Ok(())
}

fn scalar(place: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Sequence(items) => {
            let texts: Result<Vec<_>, _> = items.iter().map(|item| scalar(place, item)).collect();
            Ok(texts?.join(","))
        }
        Value::Null => Err(format!("{place} has no value")),
        _ => Err(format!("{place} has a value of a kind that is not supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(flag: &str, value: &str) -> Pair {
        (flag.to_owned(), Some(value.to_owned()))
    }

    #[test]
    fn yaml_places_become_flags() {
        let text = "# a comment\nstorage:\n  dbPath: /data\n  fern: {cacheSize: 1g}\nnet:\n  port: \
                    27018\n  bindIp: [127.0.0.1, \"::1\"]\nsystemLog:\n  destination: file\n  path: /l\n\
                    setParameter:\n  a: 1\n  b: true\n";
        assert!(!is_ini(text));
        assert_eq!(
            yaml(text).unwrap(),
            [
                pair("dbpath", "/data"),
                pair("cacheSize", "1g"),
                pair("port", "27018"),
                pair("bind_ip", "127.0.0.1,::1"),
                pair("logpath", "/l"),
                pair("setParameter", "a=1"),
                pair("setParameter", "b=true"),
            ]
        );
    }

    #[test]
    fn old_files_are_known_by_their_first_line() {
        let text = "# TokuMX\n\ndbpath=/data/a:b\nfork = true\nquiet\n[section]\n";
        assert!(is_ini(text));
        assert_eq!(
            ini(text).unwrap(),
            [pair("dbpath", "/data/a:b"), pair("fork", "true"), ("quiet".to_owned(), None)]
        );
        assert!(!is_ini("storage:\n  dbPath: /a=b\n"));
        assert!(!is_ini(""));
    }

    #[test]
    fn unknown_places_and_broken_files_are_one_line() {
        for text in ["storage:\n  dbPth: /x\n", "storage: [\n", "a: &a [*a]\n", "- 1\n", "x: ~\n"] {
            let error = yaml(text).unwrap_err();
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(ini("dbpath=/x\nwhat is this\n").unwrap_err().contains("line 2"));
    }
}
