//! Key files: the secret that the members of a set share, as text.
//!
//! Always true: a key has 6 to 1,024 characters of base64 once white space is left out; a file holds one, or a YAML
//! list of two, the first to speak with and either to listen to.

use crate::secret::Secret;

/// Why a key file is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// A key has fewer than [`SHORTEST`] characters.
    TooShort,
    /// A key has more than [`LONGEST`] characters.
    TooLong,
    /// A character that is not one of base64.
    Character,
    /// More than two keys, or none.
    Number,
}

/// The fewest characters of a key.
pub const SHORTEST: usize = 6;
/// The most characters of a key.
pub const LONGEST: usize = 1024;

/// The keys of a file, the one to speak with first.
pub fn parse(text: &str) -> Result<Vec<Secret>, Flaw> {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let is_list = lines.first().is_some_and(|line| *line == "-" || line.starts_with("- "));
    let mut texts: Vec<String> = Vec::new();
    for line in lines {
        if is_list && (line == "-" || line.starts_with("- ")) {
            texts.push(line[1..].trim().trim_matches(['"', '\'']).to_owned());
        } else if let Some(last) = texts.last_mut() {
            last.push_str(line);
        } else {
            texts.push(line.to_owned());
        }
    }
    if texts.is_empty() || texts.len() > 2 {
        return Err(Flaw::Number);
    }
    texts.iter().map(|text| one(text)).collect()
}

fn one(text: &str) -> Result<Secret, Flaw> {
    let key: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    if !key.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')) {
        return Err(Flaw::Character);
    }
    match key.len() {
        short if short < SHORTEST => Err(Flaw::TooShort),
        long if long > LONGEST => Err(Flaw::TooLong),
        _ => Ok(Secret::new(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Flaw, parse};

    #[test]
    fn key_files() {
        let keys = |text: &str| {
            parse(text).map(|keys| {
                let text = |key: &super::Secret| String::from_utf8_lossy(key.bytes()).into_owned();
                keys.iter().map(text).collect::<Vec<_>>()
            })
        };
        assert_eq!(keys("abc def\n gh\n"), Ok(vec!["abcdefgh".to_owned()]));
        assert_eq!(
            keys("- abcdef\n- ghi jkl\n"),
            Ok(vec!["abcdef".to_owned(), "ghijkl".to_owned()])
        );
        assert_eq!(keys("- \"abcdef\"\n"), Ok(vec!["abcdef".to_owned()]));
        assert_eq!(keys("abcde"), Err(Flaw::TooShort));
        assert_eq!(keys(""), Err(Flaw::Number));
        assert_eq!(keys("- abcdef\n- abcdef\n- abcdef"), Err(Flaw::Number));
        assert_eq!(keys("abcdef!"), Err(Flaw::Character));
        assert_eq!(keys(&"a".repeat(1025)), Err(Flaw::TooLong));
        assert!(keys(&"a".repeat(1024)).is_ok());
    }
}
