//! Server parameters that the program goes by before there is a server to set them in.
//!
//! Always true: `setParameter` knows each of them, so that `getParameter` shows it and a name that is wrong is refused
//! there; a value that is refused here is refused in one line.

use crate::config::ConfigError;
use crate::config::settings::GivenOptions;
use crate::config::size::parse_switch;
use links::AddressMap;
use std::ops::RangeInclusive;

/// A single message, of the largest kind, may always wait for its end.
const LEAST_BUFFER: u64 = 48_000_000;

impl GivenOptions {
    /// The text of a parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        self.parameters().remove(name)
    }

    /// A parameter that is yes or no.
    pub(super) fn start_switch(&self, name: &str, otherwise: bool) -> Result<bool, ConfigError> {
        let Some(text) = self.parameter(name) else { return Ok(otherwise) };
        parse_switch(&text).ok_or_else(|| {
            ConfigError::new(format!("parameter {name}: '{text}' is not true or false"))
        })
    }

    /// `codeInHugePages`, where it is given.
    pub(super) fn code_in_huge_pages(&self) -> Result<Option<bool>, ConfigError> {
        let name = "codeInHugePages";
        self.parameter(name).map(|_| self.start_switch(name, false)).transpose()
    }

    /// `ingressBufferBytes`; 0 is what stands there where nothing is said.
    pub(super) fn ingress_buffer_bytes(&self) -> Result<Option<u64>, ConfigError> {
        let bytes = self.start_number("ingressBufferBytes", 0..=i64::MAX, 0)?.unsigned_abs();
        // A message of the usual size has to fit.
        if (1..LEAST_BUFFER).contains(&bytes) {
            return Err(ConfigError::new(format!(
                "parameter ingressBufferBytes: {bytes} is less than the longest message, {LEAST_BUFFER}"
            )));
        }
        Ok((bytes > 0).then_some(bytes))
    }

    /// `testLinkAddresses`: only where commands for tests are on, so that nobody leads members astray by mistake.
    pub(super) fn dialled_instead(&self) -> Result<AddressMap, ConfigError> {
        let Some(text) = self.parameter("testLinkAddresses") else {
            return Ok(AddressMap::default());
        };
        if !self.start_switch("enableTestCommands", false)? {
            let why = "parameter testLinkAddresses: only with the parameter enableTestCommands";
            return Err(ConfigError::new(why));
        }
        text.parse()
            .map_err(|error| ConfigError::new(format!("parameter testLinkAddresses: {error}")))
    }

    /// A parameter that is a whole number.
    pub(super) fn start_number(
        &self,
        name: &str,
        range: RangeInclusive<i64>,
        otherwise: i64,
    ) -> Result<i64, ConfigError> {
        let Some(text) = self.parameter(name) else { return Ok(otherwise) };
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            ConfigError::new(format!(
                "parameter {name}: '{text}' is not a number from {least} to {most}"
            ))
        })
    }
}
