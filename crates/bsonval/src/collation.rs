//! A client's `collation` document: read with MongoDB's errors, and shown in full.
//!
//! Always true: what is shown reads back as the same collation.

use crate::raw;
use crate::show;
use crate::types;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use errors::{Code, Error, Result};
use keystring::{
    CaseFirst, Collation, CollationError, CollationOptions, CollationRequest, MaxVariable,
};

/// What MongoDB says its collations are of; drivers and tests compare it, so it is said here too.
/// Which rules strings are really ordered by is [`keystring::SORT_KEY_VERSION`].
const VERSION: &str = "57.1";

/// Reads a `collation` document; `None` is `{locale: "simple"}`, the order of bytes.
pub fn parse(document: &RawDocument) -> Result<Option<Collation>> {
    let mut request = CollationRequest::of_locale("");
    let (mut locale, mut version) = (None, None);
    for element in raw::elements(document) {
        let element = element?;
        let (name, value) = (element.name(), element.value()?);
        // `backwards` alone has no default that null could stand for.
        if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) && name != "backwards" {
            continue;
        }
        match name {
            "locale" => locale = Some(text(name, value)?),
            "version" => version = Some(text(name, value)?),
            "caseLevel" => request.case_level = Some(flag(name, value)?),
            "numericOrdering" => request.numeric_ordering = flag(name, value)?,
            "normalization" => request.normalization = flag(name, value)?,
            "backwards" => request.backwards = Some(flag(name, value)?),
            "strength" => request.strength = strength(value)?,
            "caseFirst" => {
                request.case_first = Some(match text(name, value)? {
                    "upper" => CaseFirst::Upper,
                    "lower" => CaseFirst::Lower,
                    "off" => CaseFirst::Off,
                    other => return Err(no_such(name, other)),
                });
            }
            "alternate" => {
                request.shifted = Some(match text(name, value)? {
                    "shifted" => true,
                    "non-ignorable" => false,
                    other => return Err(no_such(name, other)),
                });
            }
            "maxVariable" => {
                request.max_variable = match text(name, value)? {
                    "punct" => MaxVariable::Punctuation,
                    "space" => MaxVariable::Space,
                    other => return Err(no_such(name, other)),
                };
            }
            _ => {
                return Err(Error::location(
                    40415,
                    format!("BSON field 'collation.{name}' is an unknown field."),
                ));
            }
        }
    }
    let Some(locale) = locale else {
        return Err(Error::location(
            40414,
            "BSON field 'collation.locale' is missing but a required field",
        ));
    };
    if locale == "simple" {
        return Ok(None);
    }
    if locale.is_empty() {
        return Err(Error::bad_value(format!(
            "Field 'locale' cannot be the empty string in: {}",
            show::document(document)
        )));
    }
    if let Some(version) = version.filter(|version| *version != VERSION) {
        return Err(Error::new(
            Code::INCOMPATIBLE_COLLATION_VERSION,
            format!(
                "Requested collation version {version} but the only available collator version was \
                 {VERSION}. Requested collation spec: {}",
                show::document(document)
            ),
        ));
    }
    locale.clone_into(&mut request.locale);
    let collation = Collation::new(&request).map_err(|error| refused(error, document))?;
    check(collation.options(), document)?;
    Ok(Some(collation))
}

/// A command's optional `collation`: not given or empty is nothing said.
pub fn parse_given(document: Option<&RawDocument>) -> Result<Option<Option<Collation>>> {
    document.filter(|document| !document.is_empty()).map(parse).transpose()
}

/// Options that would have no effect.
fn check(options: &CollationOptions, document: &RawDocument) -> Result<()> {
    let refused =
        |what: &str| Err(Error::bad_value(format!("{what} in: {}", show::document(document))));
    if options.case_first != CaseFirst::Off && !options.case_level && options.strength < 3 {
        return refused(
            "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2",
        );
    }
    if options.backwards && options.strength == 1 {
        return refused("'backwards' is invalid with 'strength' of 1");
    }
    Ok(())
}

fn refused(error: CollationError, document: &RawDocument) -> Error {
    match error {
        CollationError::UnknownLocale(suggestion) => {
            let hint = suggestion.map_or_else(String::new, |s| format!(". Did you mean '{s}'?"));
            Error::bad_value(format!(
                "Field 'locale' is invalid in: {}{hint}",
                show::document(document)
            ))
        }
        CollationError::UnsupportedType(_) => {
            Error::bad_value(format!("{error} in: {}", show::document(document)))
        }
        error => Error::new(Code::OPERATION_FAILED, error.to_string()),
    }
}

fn wrong_type(name: &str, value: RawBsonRef<'_>, expected: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field 'collation.{name}' is the wrong type '{}', expected {expected}",
        types::name_of(value)
    ))
}

fn text<'a>(name: &str, value: RawBsonRef<'a>) -> Result<&'a str> {
    value.as_str().ok_or_else(|| wrong_type(name, value, "type 'string'"))
}

fn flag(name: &str, value: RawBsonRef<'_>) -> Result<bool> {
    value.as_bool().ok_or_else(|| wrong_type(name, value, "type 'bool'"))
}

fn no_such(name: &str, value: &str) -> Error {
    Error::bad_value(format!(
        "Enumeration value '{value}' for field 'collation.{name}' is not a valid value."
    ))
}

fn strength(value: RawBsonRef<'_>) -> Result<u8> {
    let given = types::option_integer(value);
    if given.is_none() {
        return Err(wrong_type("strength", value, "types '[double, decimal, long, int]'"));
    }
    match given {
        Some(strength @ 1..=5) => Ok(strength as u8),
        Some(strength) if strength > 5 => Err(Error::bad_value(format!(
            "BSON field 'strength' value must be <= 5, actual value '{strength}'"
        ))),
        Some(strength) if strength < 0 => Err(Error::bad_value(format!(
            "BSON field 'strength' value must be >= 0, actual value '{strength}'"
        ))),
        _ => Err(no_such("strength", "0")),
    }
}

/// The whole document, with what the language decided.
pub fn to_document(collation: &Collation) -> RawDocumentBuf {
    let options = collation.options();
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("locale"), options.locale.as_str());
    out.append(cstr!("caseLevel"), options.case_level);
    out.append(
        cstr!("caseFirst"),
        match options.case_first {
            CaseFirst::Off => "off",
            CaseFirst::Upper => "upper",
            CaseFirst::Lower => "lower",
        },
    );
    out.append(cstr!("strength"), i32::from(options.strength));
    out.append(cstr!("numericOrdering"), options.numeric_ordering);
    out.append(cstr!("alternate"), if options.shifted { "shifted" } else { "non-ignorable" });
    out.append(
        cstr!("maxVariable"),
        match options.max_variable {
            MaxVariable::Punctuation => "punct",
            MaxVariable::Space => "space",
        },
    );
    out.append(cstr!("normalization"), options.normalization);
    out.append(cstr!("backwards"), options.backwards);
    out.append(cstr!("version"), VERSION);
    out
}

#[cfg(test)]
mod tests;
