//! `docs/manual/src/options.md`, written from the table of options, so that it cannot lie.

use crate::config::foreign::{IGNORED, REFUSED};
use crate::config::options::{Kind, OPTIONS, Opt};
use std::fmt::Write;

/// The page.
pub(crate) fn page() -> String {
    let mut out = String::from(
        "# Options\n\nWritten from the server's own table; a test fails when it is stale. Renew it \
         with `FERN_GOLDEN=write cargo test --profile fast -p server options_page`.\n\n\
         An option stands on the command line, in a YAML file (`--config`), or as `key = value` in \
         a file of the 2.4 era. The command line wins over the file.\n\n\
         | Option | In YAML | Value | Default | What it does |\n|---|---|---|---|---|\n",
    );
    for option in OPTIONS {
        let (meaning, default) = split(option.help);
        let place = match option.yaml {
            "" => String::new(),
            place => format!("`{place}`"),
        };
        let _ = writeln!(
            out,
            "| `--{}`{} | {place} | {} | {} | {meaning} |",
            option.flag,
            if option.short == ' ' { String::new() } else { format!(", `-{}`", option.short) },
            value(option),
            default.or_else(|| off(option)).unwrap_or_default(),
        );
    }
    let _ = write!(
        out,
        "\nSizes are bytes, or have `k`, `m`, `g` or `t` behind them (powers of 1024).\n\n\
         ## Accepted and without effect\n\nWhat `mongod` or TokuMX had and means nothing here; the \
         log warns of each:\n{}.\n\n\
         ## Refused\n\nWhat cannot be honoured, and would be missed; a value that switches it off is \
         fine:\n{}.\n",
        flags(IGNORED),
        flags(REFUSED)
    );
    out
}

fn flags(options: &[(&str, &str, bool)]) -> String {
    let flags: Vec<String> = options.iter().map(|(flag, ..)| format!("`--{flag}`")).collect();
    flags.join(" ")
}

/// What an option does, and its default.
fn split(help: &str) -> (&str, Option<String>) {
    let Some((meaning, default)) = help.split_once(" (default: ") else { return (help, None) };
    (meaning, Some(default.trim_end_matches(')').to_owned()))
}

fn off(option: &Opt) -> Option<String> {
    (option.kind == Kind::Switch).then(|| "off".to_owned())
}

fn value(option: &Opt) -> String {
    match option.kind {
        Kind::Switch => "on or off".to_owned(),
        Kind::Number(least, most) => format!("{least} to {most}"),
        Kind::Text => "text".to_owned(),
        Kind::Size => "size".to_owned(),
        Kind::Repeated => "`name=value`, several times".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CommandLine, Settings, parse};

    fn settings(arguments: &[String]) -> Option<Settings> {
        let argv: Vec<String> =
            std::iter::once("fernd".to_owned()).chain(arguments.iter().cloned()).collect();
        let Ok(CommandLine::Start(mut settings)) = parse(&os::Os::real(), &argv, "1.2.3") else {
            return None;
        };
        // what tells only that something was asked for
        settings.argv.clear();
        settings.parsed.clear();
        settings.dbpath_is_default = false;
        Some(*settings)
    }

    #[test]
    fn options_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/src/options.md");
        if std::env::var("FERN_GOLDEN").is_ok_and(|mode| mode == "write") {
            std::fs::write(path, page()).unwrap();
        }
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            stored == page(),
            "docs/manual/src/options.md is stale: \
             FERN_GOLDEN=write cargo test --profile fast -p server options_page"
        );
    }

    #[test]
    fn asking_for_the_default_that_is_told_changes_nothing() {
        let nothing = settings(&[]).unwrap();
        let mut checked = 0;
        for option in OPTIONS {
            let Some(default) = split(option.help).1 else { continue };
            // some are a word for what is worked out: half of the machine's memory
            let default = default.split(',').next().unwrap_or_default().to_owned();
            let number = default.bytes().all(|byte| byte.is_ascii_digit());
            if number || matches!(option.flag, "dbpath" | "bind_ip") {
                let asked = settings(&[format!("--{}={default}", option.flag)]);
                let limit = (option.flag == "maxConns").then_some(65536);
                let mut expected = nothing.clone();
                expected.max_connections = limit;
                assert_eq!(asked, Some(expected), "{}", option.flag);
                checked += 1;
            }
        }
        assert!(checked >= 10, "{checked} defaults were compared");
    }
}
