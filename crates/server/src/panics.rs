//! What the log is told of a panic: the words of the program, and nothing of what clients have stored or sent.
//!
//! Always true: a text that was put together while the program ran is cut before the first thing that was put into
//! it, as far as its form shows that; the place and the backtrace, which the log has beside it, say the rest.

use std::any::Any;

/// The longest text.
const MOST_CHARACTERS: usize = 120;
/// What stands in the place of what was cut off.
const CUT: &str = "###";
/// How the library's own texts begin that quote the program's words.
const QUOTING: [&str; 2] = ["assertion `", "called `"];

/// The text of a panic as it may be told.
pub(crate) fn told(payload: &(dyn Any + Send)) -> String {
    // What stands in the program as it is says nothing of anybody's data.
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        return (*text).to_owned();
    }
    payload.downcast_ref::<String>().map_or_else(|| "no message".to_owned(), |text| cut(text))
}

/// The beginning of a text that was put together: up to a colon, a line's end, a quotation, a bracket or a digit.
fn cut(text: &str) -> String {
    let quotes_itself = QUOTING.iter().any(|begin| text.starts_with(begin));
    let ends = |character: char| match character {
        '`' => !quotes_itself,
        ':' | '\n' | '"' | '\'' | '{' | '[' | '(' => {
            !quotes_itself || matches!(character, ':' | '\n')
        }
        _ => character.is_ascii_digit() || character.is_control(),
    };
    // `Result::unwrap` is no end.
    let body = text.replace("::", "\u{2237}");
    let kept: String = body.chars().take_while(|c| !ends(*c)).take(MOST_CHARACTERS).collect();
    let is_whole = kept.len() == body.len();
    let kept = kept.replace('\u{2237}', "::");
    if is_whole { kept } else { format!("{}{CUT}", kept.trim_end().to_owned() + " ") }
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn only_the_programs_own_words_are_told() {
        let of = |text: String| told(&text);
        assert_eq!(told(&"the lock 1: {x}"), "the lock 1: {x}", "it stands in the program");
        assert_eq!(told(&7_u32), "no message");
        for (text, expected) in [
            ("out of order", "out of order"),
            ("index out of bounds: the len is 3 but the index is 7", "index out of bounds ###"),
            (
                "called `Option::unwrap()` on a `None` value",
                "called `Option::unwrap()` on a `None` value",
            ),
            (
                "called `Result::unwrap()` on an `Err` value: Error(\"MARK\")",
                "called `Result::unwrap()` on an `Err` value ###",
            ),
            (
                "assertion `left == right` failed\n  left: \"MARK\"\n right: 1",
                "assertion `left == right` failed ###",
            ),
            (
                "assertion `left == right` failed: MARK\n  left: 1",
                "assertion `left == right` failed ###",
            ),
            ("byte index 3 is out of bounds of `MARK`", "byte index ###"),
            ("the field 'MARK' is not there", "the field ###"),
            ("read {\"a\": \"MARK\"}", "read ###"),
        ] {
            assert_eq!(of(text.to_owned()), expected);
        }
        assert!(of("x".repeat(1000)).len() < 130);
    }
}
