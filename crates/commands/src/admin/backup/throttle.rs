//! `backupThrottle`: how many bytes a second backups may copy, the one that is being written and later ones.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawBsonRef;
use dispatch::fields::Field;
use errors::{Error, Result};

pub(crate) const BACKUP_THROTTLE: Command = Command::new(
    "backupThrottle",
    "Holds backups to so many bytes a second.",
    Needs::Cluster(&[Action::Backup]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let rate = match fields[0].value {
        RawBsonRef::String(text) => bytes_of(text).ok_or_else(|| {
            Error::bad_value(format!("'{text}' is no number of bytes, as 10MB is"))
        })?,
        _ => u64::try_from(fields[0].i64()?).map_err(|_| {
            Error::bad_value("a backup cannot be held to fewer than 0 bytes a second")
        })?,
    };
    let was = context.service.backups.rate.set(rate);
    context.reply.number("was", was);
    Ok(())
}

/// `10MB`, `512k`, `1g`, `4096`: bytes, in binary units as all of TokuMX's are.
fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let (digits, shift) = match text.strip_suffix(['k', 'm', 'g', 't']) {
        Some(digits) => {
            let unit = text.as_bytes().last()?;
            (
                digits,
                match unit {
                    b'k' => 10,
                    b'm' => 20,
                    b'g' => 30,
                    _ => 40,
                },
            )
        }
        None => (text, 0),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn rates_are_read_as_sizes_are() {
        for (text, bytes) in [
            ("4096", Some(4096)),
            ("10MB", Some(10 << 20)),
            ("10m", Some(10 << 20)),
            (" 2 GB", Some(2 << 30)),
            ("0", Some(0)),
            ("1k", Some(1024)),
            ("1t", Some(1 << 40)),
            ("16777216t", None),
            ("-1", None),
            ("", None),
            ("fast", None),
            ("1.5m", None),
        ] {
            assert_eq!(bytes_of(text), bytes, "{text}");
        }
    }
}
