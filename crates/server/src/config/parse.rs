//! From `argv` and a file to the list of options asked for, each checked for its kind.

use crate::config::ConfigError;
use crate::config::file::{self, Pair};
use crate::config::foreign::{IGNORED, REFUSED};
use crate::config::options::Settings;
use crate::config::options::{Kind, OPTIONS, Opt, by_flag};
use crate::config::size::{parse_size, parse_switch};
use clap::{Arg, ArgAction, Command};
use os::Os;
use std::path::Path;

/// What the command line asks for.
#[derive(Debug)]
pub enum CommandLine {
    /// Print this and end well: `--help`, `--version`.
    Print(String),
    /// Start with these settings.
    Start(Box<Settings>),
}

/// An option with its value as text, already of the right kind.
pub(crate) type Given = (&'static Opt, String);

/// Reads the command line (`argv[0]` is the program) and the file it names.
///
/// # Errors
/// One line for the operator.
pub fn parse(os: &Os, argv: &[String], version: &'static str) -> Result<CommandLine, ConfigError> {
    let mut warnings = Vec::new();
    let command_line = match command_line(argv, version, &mut warnings)? {
        Ok(pairs) => pairs,
        Err(print) => return Ok(CommandLine::Print(print)),
    };
    let mut given = Vec::new();
    let config = command_line.iter().rev().find(|(flag, _)| flag == "config");
    if let Some((_, Some(path))) = config {
        for pair in drop_foreign(file::read(os, Path::new(path))?, &mut warnings)? {
            let checked =
                check(&pair).map_err(|error| ConfigError::new(format!("{path}: {error}")))?;
            given.push(checked);
        }
    }
    for pair in &command_line {
        given.push(check(pair)?);
    }
    Settings::from_given(given, warnings, argv)
        .map(|settings| CommandLine::Start(Box::new(settings)))
}

/// The flags of the command line, in order; or a text to print.
fn command_line(
    argv: &[String],
    version: &'static str,
    warnings: &mut Vec<String>,
) -> Result<Result<Vec<Pair>, String>, ConfigError> {
    let ours = drop_foreign_arguments(argv, warnings)?;
    let matches = match command(version).try_get_matches_from(ours) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => return Ok(Err(error.render().to_string())),
        Err(error) => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            return Err(ConfigError::new(format!("{first} (see fernd --help)")));
        }
    };
    let mut pairs = Vec::new();
    for option in OPTIONS {
        for value in matches.get_many::<String>(option.flag).into_iter().flatten() {
            pairs.push((option.flag.to_owned(), Some(value.clone())));
        }
    }
    let more = matches.get_count("v");
    if more > 0 {
        pairs.push(("verbose".to_owned(), Some("v".repeat(more.into()))));
    }
    Ok(Ok(pairs))
}

/// The command line as clap knows it, made from the table of options.
pub(crate) fn command(version: &'static str) -> Command {
    let mut command = Command::new("fernd")
        .about("FernDB: MongoDB's protocol on a fractal tree")
        .version(version)
        .args_override_self(true)
        .arg(Arg::new("v").short('v').action(ArgAction::Count).help("log more; -vv still more"));
    for option in OPTIONS {
        let mut arg = Arg::new(option.flag).long(option.flag).help(option.help);
        arg = match option.kind {
            Kind::Repeated => arg.action(ArgAction::Append).value_name("NAME=VALUE"),
            Kind::Switch => optional_value(arg, "true"),
            _ if option.flag == "verbose" => optional_value(arg, "v").hide(true),
            Kind::Number(..) => arg.value_name("N").allow_negative_numbers(true),
            Kind::Size => arg.value_name("SIZE"),
            Kind::Text => arg.value_name("TEXT"),
        };
        if option.short != ' ' && option.short != 'v' {
            arg = arg.short(option.short);
        }
        command = command.arg(arg);
    }
    command
}

fn optional_value(arg: Arg, alone: &'static str) -> Arg {
    arg.num_args(0..=1).require_equals(true).default_missing_value(alone).hide_possible_values(true)
}

/// `argv` without the flags that are ignored; an error for the first that is refused.
fn drop_foreign_arguments(
    argv: &[String],
    warnings: &mut Vec<String>,
) -> Result<Vec<String>, ConfigError> {
    let mut kept = Vec::new();
    let mut arguments = argv.iter();
    kept.extend(arguments.next().cloned());
    while let Some(argument) = arguments.next() {
        let Some(body) = argument.strip_prefix("--") else {
            kept.push(argument.clone());
            continue;
        };
        let (flag, mut value) = match body.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (body, None),
        };
        let Some(takes_value) = foreign(flag) else {
            kept.push(argument.clone());
            continue;
        };
        if takes_value && value.is_none() {
            value = arguments.next().cloned();
        }
        judge_foreign(flag, value.as_deref(), warnings)?;
    }
    Ok(kept)
}

fn drop_foreign(pairs: Vec<Pair>, warnings: &mut Vec<String>) -> Result<Vec<Pair>, ConfigError> {
    let mut kept = Vec::new();
    for (flag, value) in pairs {
        if foreign(&flag).is_some() {
            judge_foreign(&flag, value.as_deref(), warnings)?;
        } else {
            kept.push((flag, value));
        }
    }
    Ok(kept)
}

/// Whether the flag of a foreign option takes a value; `None` for what is no foreign option.
fn foreign(flag: &str) -> Option<bool> {
    IGNORED.iter().chain(REFUSED).find(|(name, ..)| *name == flag).map(|(.., takes)| *takes)
}

/// A foreign option that is switched off asks for nothing; otherwise it is ignored with a warning
/// or refused.
fn judge_foreign(
    flag: &str,
    value: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    // Compression is on here whatever the option says, so its "disabled" is not what we do anyway.
    if flag != "networkMessageCompressors" && value.and_then(parse_switch) == Some(false) {
        return Ok(());
    }
    if REFUSED.iter().any(|(name, ..)| *name == flag) {
        return Err(ConfigError::new(format!(
            "option {flag} is not supported by this version of FernDB, and is not ignored"
        )));
    }
    warnings.push(format!("option {flag} has no meaning for FernDB and is ignored"));
    Ok(())
}

/// Checks one value against its option's kind.
fn check((flag, value): &Pair) -> Result<Given, ConfigError> {
    let option =
        by_flag(flag).ok_or_else(|| ConfigError::new(format!("unrecognized option: {flag}")))?;
    let value = match (value, option.kind) {
        (Some(value), _) => value.clone(),
        (None, Kind::Switch) => "true".to_owned(),
        (None, _) => return Err(ConfigError::new(format!("option {flag} needs a value"))),
    };
    let expected = match option.kind {
        Kind::Switch => parse_switch(&value).is_none().then(|| "true or false".to_owned()),
        Kind::Number(low, high) => {
            let fits = value.trim().parse::<i64>().is_ok_and(|n| (low..=high).contains(&n));
            (!fits).then(|| format!("a number from {low} to {high}"))
        }
        Kind::Size => parse_size(&value).is_none().then(|| "a size such as 512M or 2G".to_owned()),
        Kind::Repeated => (!value.contains('=')).then(|| "name=value".to_owned()),
        Kind::Text => value.is_empty().then(|| "a value".to_owned()),
    };
    match expected {
        Some(expected) => {
            Err(ConfigError::new(format!("option {flag}: '{value}' is not {expected}")))
        }
        None => Ok((option, value)),
    }
}
