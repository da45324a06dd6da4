//! A password asked for at the terminal.
//!
//! Always true: what is typed is not shown, and the terminal is as it was afterwards, also where Ctrl-C is typed, which
//! arrives here as a character.

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::io::{self, BufRead, IsTerminal, Read, Stdin, Write};

/// The longest that is taken.
const LONGEST: usize = 4096;

/// The characters that end or change what was typed.
const INTERRUPT: u8 = 0x03;
const END_OF_INPUT: u8 = 0x04;
const BACKSPACE: [u8; 2] = [0x08, 0x7f];
const ERASE_ALL: u8 = 0x15;

/// The terminal as it was.
struct Restored<'a> {
    stdin: &'a Stdin,
    before: Termios,
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        // There is nothing else that could be done about it.
        let _restored = tcsetattr(self.stdin, OptionalActions::Drain, &self.before);
    }
}

/// Asks for a password: what is typed at the terminal without showing it, or a line of a standard input that is none.
///
/// # Errors
/// There is no such line, it is no text, or Ctrl-C was typed (`Interrupted`).
pub fn read_password(prompt: &str) -> io::Result<String> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let mut line = String::new();
        stdin.lock().take(LONGEST as u64).read_line(&mut line)?;
        if line.is_empty() {
            let text = "no password on the standard input";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let before = tcgetattr(&stdin)?;
    let mut hidden = before.clone();
    hidden.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
    hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
    hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
    let restored = Restored { stdin: &stdin, before };
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let mut shown = io::stderr().lock();
    write!(shown, "{prompt}")?;
    shown.flush()?;
    let typed = typed(stdin.lock().bytes());
    writeln!(shown)?;
    drop(restored);
    typed
}

/// What was typed up to the end of the line.
fn typed(bytes: impl Iterator<Item = io::Result<u8>>) -> io::Result<String> {
    let mut text = Vec::new();
    for byte in bytes {
        match byte? {
            b'\r' | b'\n' | END_OF_INPUT => break,
            INTERRUPT => return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
            ERASE_ALL => text.clear(),
            byte if BACKSPACE.contains(&byte) => {
                // A whole character, however many bytes it has.
                while text.pop().is_some_and(|last: u8| last & 0xc0 == 0x80) {}
            }
            _ if text.len() == LONGEST => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is too long"));
            }
            byte => text.push(byte),
        }
    }
    String::from_utf8(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text"))
}

#[cfg(test)]
mod tests {
    use super::typed;
    use std::io;

    #[test]
    fn what_is_typed_is_read_to_the_end_of_the_line() {
        let read = |keys: &str| typed(keys.bytes().map(Ok)).map_err(|error| error.kind());
        assert_eq!(read("pencil\r"), Ok("pencil".to_owned()));
        assert_eq!(read("pencil\nmore"), Ok("pencil".to_owned()));
        assert_eq!(read("pencils\u{7f}\r"), Ok("pencil".to_owned()));
        assert_eq!(read("a\u{e9}\u{8}b\r"), Ok("ab".to_owned()));
        assert_eq!(read("wrong\u{15}right\r"), Ok("right".to_owned()));
        assert_eq!(read("\u{7f}\u{7f}a\u{4}"), Ok("a".to_owned()));
        assert_eq!(read("pen\u{3}"), Err(io::ErrorKind::Interrupted));
        assert_eq!(read(&"a".repeat(5000)), Err(io::ErrorKind::InvalidInput));
    }
}
