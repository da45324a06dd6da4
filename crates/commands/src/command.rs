//! A command: its rules and its code, and the list of all.
//!
//! Always true: names are unique, and a name that is not in the list answers `CommandNotFound`.

use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use dispatch::rules::{Class, Counter, Rules};
use errors::{Code, Error, Result};
use std::ops::Deref;

pub(crate) type Run = for<'a, 'b> fn(&mut Context<'a>, &'b [Field<'a>]) -> Result<()>;

/// A command: its name, its rules and its code.
pub(crate) struct Command {
    pub(crate) rules: Rules,
    /// What it needs of whoever sends it.
    pub(crate) needs: Needs,
    /// Fields whose values nobody is shown.
    pub(crate) secret: &'static [&'static str],
    pub(crate) run: Run,
    /// Writes the reply of `explain`.
    pub(crate) explain: Option<Run>,
}

impl Deref for Command {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        &self.rules
    }
}

impl Command {
    /// A command with the commonest rules. What it needs is no rule with a default: it is said by each.
    pub(crate) const fn new(
        name: &'static str,
        about: &'static str,
        needs: Needs,
        run: Run,
    ) -> Self {
        Self { rules: Rules::new(name, about), needs, secret: &[], run, explain: None }
    }

    /// Other spellings.
    pub(crate) const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.rules.aliases = aliases;
        self
    }

    /// Only `admin` may be asked.
    pub(crate) const fn admin_only(mut self) -> Self {
        self.rules.admin_only = true;
        self
    }

    /// It belongs to API version 1.
    pub(crate) const fn api_v1(mut self) -> Self {
        self.rules.api_v1 = true;
        self
    }

    /// It reads documents.
    pub(crate) const fn reads(mut self, counter: Counter) -> Self {
        self.rules.class = Class::Read;
        self.rules.counter = counter;
        self.rules.takes_read_concern = true;
        self
    }

    /// It goes on with cursors, or ends them.
    pub(crate) const fn goes_by_its_cursors(mut self) -> Self {
        self.rules.goes_by_its_cursors = true;
        self
    }

    /// It writes documents.
    pub(crate) const fn writes(mut self, counter: Counter) -> Self {
        self.rules.class = Class::Write;
        self.rules.counter = counter;
        self.rules.takes_write_concern = true;
        self
    }

    /// It writes, and takes a write concern.
    pub(crate) const fn write_concern(mut self) -> Self {
        self.rules.takes_write_concern = true;
        self
    }

    /// What it writes is durable when it is acknowledged.
    pub(crate) const fn durable(mut self) -> Self {
        self.rules.is_always_durable = true;
        self
    }

    /// It takes documents in kind 1 sections.
    pub(crate) const fn sequences(mut self, names: &'static [&'static str]) -> Self {
        self.rules.sequences = names;
        self
    }

    /// It belongs to the old way of writing.
    pub(crate) const fn legacy(mut self) -> Self {
        self.rules.is_legacy_protocol_only = true;
        self
    }

    /// `system.profile` has no entry of it.
    pub(crate) const fn unprofiled(mut self) -> Self {
        self.rules.is_profiled = false;
        self
    }

    /// Fields whose values nobody is shown, in documents within it too.
    pub(crate) const fn secret(mut self, fields: &'static [&'static str]) -> Self {
        self.secret = fields;
        self
    }

    /// It can be explained.
    pub(crate) const fn explains(mut self, explain: Run) -> Self {
        self.explain = Some(explain);
        self
    }
}

/// All commands a service has.
pub(crate) struct Registry {
    /// In the order of `docs/COMPAT.md`.
    commands: &'static [&'static Command],
    /// Names and aliases with the command's position in the list, each at the first free place from
    /// [`place_of`] its name on.
    by_name: Vec<Option<(&'static str, usize)>>,
}

/// Places for each name: few names share one then.
const PLACES_A_NAME: usize = 8;

/// Where a name is looked for first.
fn place_of(bytes: &[u8]) -> usize {
    let fold =
        |sum: usize, byte| (sum.rotate_left(5) ^ usize::from(byte)).wrapping_mul(0x9E37_79B1);
    // Two names of one length hardly agree in all of these.
    let some = [bytes.first(), bytes.get(bytes.len() / 2), bytes.get(3), bytes.last()];
    let sum = some.into_iter().flatten().copied().fold(bytes.len(), fold);
    sum ^ (sum >> 16)
}

impl Registry {
    pub(crate) fn new(commands: &'static [&'static Command]) -> Self {
        let named = |(at, command): (usize, &&'static Command)| {
            let names = std::iter::once(command.name).chain(command.aliases.iter().copied());
            names.map(move |name| (name, at)).collect::<Vec<_>>()
        };
        let names: Vec<_> = commands.iter().enumerate().flat_map(named).collect();
        let places = (names.len() * PLACES_A_NAME).next_power_of_two();
        let mut by_name = vec![None; places];
        for (name, at) in names {
            let mut place = place_of(name.as_bytes()) % places;
            while by_name[place].is_some() {
                place = (place + 1) % places;
            }
            by_name[place] = Some((name, at));
        }
        Self { commands, by_name }
    }

    /// All of them.
    pub(crate) fn all(&self) -> &'static [&'static Command] {
        self.commands
    }

    /// The command of a name, and its position among all.
    pub(crate) fn find(&self, name: &str) -> Option<(usize, &'static Command)> {
        self.find_by_bytes(name.as_bytes())
    }

    /// The same of a name that nobody has looked at as text.
    pub(crate) fn find_by_bytes(&self, name: &[u8]) -> Option<(usize, &'static Command)> {
        let mut place = place_of(name);
        loop {
            place &= self.by_name.len() - 1;
            let (known, position) = self.by_name[place]?;
            if known.as_bytes() == name {
                return Some((position, self.commands[position]));
            }
            place += 1;
        }
    }
}

/// Refuses a command of the `admin` database elsewhere; also one that is only explained.
pub(crate) fn check_database(command: &Command, database: &str) -> Result<()> {
    if !command.admin_only || database == "admin" {
        return Ok(());
    }
    Err(Error::new(
        Code::UNAUTHORIZED,
        format!("{} may only be run against the admin database.", command.name),
    ))
}
