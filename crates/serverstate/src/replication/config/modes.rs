//! Write concern modes: names for "so many different values of these tags".
//!
//! Always true of [`Modes`]: all members that hold data together reach each of them.

use super::fields::invalid;
use super::member::Member;
use bson::{Bson, Document};
use errors::Result;
use std::collections::HashSet;

/// By name: of which tags how many values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Modes(Vec<(String, Vec<(String, usize)>)>);

impl Modes {
    pub(super) fn parse(given: &Document, members: &[Member]) -> Result<Self> {
        let mut modes = Vec::with_capacity(given.len());
        for (name, wanted) in given {
            let Bson::Document(wanted) = wanted else {
                return Err(invalid(format!("getLastErrorModes.{name} must be an object")));
            };
            let mut tags = Vec::with_capacity(wanted.len());
            for (tag, count) in wanted {
                let count = match count {
                    Bson::Int32(count) => usize::try_from(*count).ok(),
                    Bson::Int64(count) => usize::try_from(*count).ok(),
                    Bson::Double(count) if count.fract() == 0.0 && *count > 0.0 => {
                        Some(*count as usize)
                    }
                    _ => None,
                };
                let count = count.filter(|count| *count > 0).ok_or_else(|| {
                    invalid(format!("getLastErrorModes.{name}.{tag} must be a positive number"))
                })?;
                tags.push((tag.clone(), count));
            }
            modes.push((name.clone(), tags));
        }
        let modes = Self(modes);
        let all: Vec<&Member> = members.iter().filter(|member| !member.arbiter_only).collect();
        match modes.0.iter().find(|(name, _)| modes.is_reached(name, &all) != Some(true)) {
            None => Ok(modes),
            Some((name, _)) => Err(invalid(format!(
                "getLastErrorModes.{name} requires more different values of tags than the members have"
            ))),
        }
    }

    /// Whether a write that these members have is as safe as the mode says; `None` where there is no
    /// such mode.
    pub fn is_reached(&self, mode: &str, by: &[&Member]) -> Option<bool> {
        let (_, tags) = self.0.iter().find(|(name, _)| name == mode)?;
        Some(tags.iter().all(|(tag, count)| {
            let values: HashSet<&str> = by.iter().filter_map(|member| member.tag(tag)).collect();
            values.len() >= *count
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, set_of};
    use super::*;
    use bson::doc;

    #[test]
    fn a_mode_counts_values_and_not_members() {
        let tags = |dc: &str, rack: &str| doc! { "tags": { "dc": dc, "rack": rack } };
        let mut given = set_of(&[tags("east", "1"), tags("east", "2"), tags("west", "3"), doc! {}]);
        let modes = doc! { "both": { "dc": 2 }, "racks": { "rack": 2, "dc": 1 }, "none": {} };
        given.insert("settings", doc! { "getLastErrorModes": modes });
        let config = parse(&given).unwrap();
        for (mode, members, wanted) in [
            ("both", &[0, 1][..], Some(false)),
            ("both", &[0, 2], Some(true)),
            ("racks", &[0], Some(false)),
            ("racks", &[0, 1], Some(true)),
            ("racks", &[3], Some(false)),
            ("none", &[], Some(true)),
            ("other", &[0, 1, 2, 3], None),
        ] {
            let by: Vec<&Member> = members.iter().map(|n: &usize| &config.members[*n]).collect();
            assert_eq!(config.modes.is_reached(mode, &by), wanted, "{mode} by {members:?}");
        }
    }
}
