//! Cipher suites by the names that operators give them, and which of them are spoken.
//!
//! Always true: a list that was accepted names at least one suite, and none that is not spoken; what a list forbids is
//! not spoken.

use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::cipher_suite;

/// The suites: OpenSSL's name, that of the standard, and the suite. Those of TLS 1.3 have one name.
const SUITES: [(&str, &str, &SupportedCipherSuite); 9] = [
    ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", &cipher_suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", &cipher_suite::TLS13_AES_128_GCM_SHA256),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        &cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        &cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        &cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        &cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        &cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        &cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        &cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// Of these the first are TLS 1.3's.
const OF_TLS13: usize = 3;

/// What lists forbid, and what no suite here has: forbidding it changes nothing.
const NEVER_SPOKEN: [&str; 27] = [
    "aNULL",
    "eNULL",
    "NULL",
    "COMPLEMENTOFDEFAULT",
    "EXPORT",
    "EXP",
    "LOW",
    "MEDIUM",
    "MD5",
    "SHA1",
    "SHA",
    "RC4",
    "RC2",
    "DES",
    "3DES",
    "IDEA",
    "SEED",
    "CAMELLIA",
    "ARIA",
    "PSK",
    "SRP",
    "DSS",
    "aDSS",
    "ADH",
    "AECDH",
    "kRSA",
    "DHE",
];

/// Which suites are spoken: all, unless a list says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Suites {
    /// Bit `i`: not the suite in row `i`.
    without: u16,
}

impl Suites {
    /// Takes those of TLS 1.2 from a list as OpenSSL has them: names between colons, commas or spaces, `HIGH` for all,
    /// `!` before what is forbidden.
    ///
    /// # Errors
    /// The name that is not known, or that nothing is left.
    pub fn take_tls12(&mut self, list: &str) -> Result<(), String> {
        self.take(list, OF_TLS13..SUITES.len())
    }

    /// Takes those of TLS 1.3 from a list of names.
    ///
    /// # Errors
    /// The name that is not known, or that nothing is left.
    pub fn take_tls13(&mut self, list: &str) -> Result<(), String> {
        self.take(list, 0..OF_TLS13)
    }

    fn take(&mut self, list: &str, rows: std::ops::Range<usize>) -> Result<(), String> {
        let (mut wanted, mut forbidden) = (0_u16, 0_u16);
        let all = rows.clone().fold(0, |bits, row| bits | 1 << row);
        let by_name = |name: &str| {
            let row = rows.clone().find(|row| SUITES[*row].0 == name || SUITES[*row].1 == name);
            row.map(|row| 1_u16 << row)
        };
        let words = list.split([':', ',', ' ']).filter(|word| !word.is_empty());
        for word in words {
            // The strongest come first as it is.
            let name = word.strip_suffix("@STRENGTH").unwrap_or(word);
            match name.strip_prefix('!') {
                Some(name) if NEVER_SPOKEN.contains(&name) => {}
                Some(name) => forbidden |= by_name(name).ok_or_else(|| unknown(word, &rows))?,
                None if name.is_empty() => {}
                None if matches!(name, "HIGH" | "DEFAULT" | "ALL") && rows.start > 0 => {
                    wanted |= all;
                }
                None => wanted |= by_name(name).ok_or_else(|| unknown(word, &rows))?,
            }
        }
        let left = wanted & !forbidden;
        if left == 0 {
            return Err("no cipher suite is left".to_owned());
        }
        self.without = self.without & !all | all & !left;
        Ok(())
    }

    /// Whether a suite is spoken.
    pub(crate) fn have(self, suite: &SupportedCipherSuite) -> bool {
        let row = SUITES.iter().position(|(_, _, one)| one.suite() == suite.suite());
        row.is_some_and(|row| self.without & 1 << row == 0)
    }
}

fn unknown(word: &str, rows: &std::ops::Range<usize>) -> String {
    let known: Vec<_> = SUITES[rows.clone()].iter().map(|(name, ..)| *name).collect();
    format!("'{word}' is no cipher suite that this server has; it has {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{SUITES, Suites};
    use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;

    fn spoken(suites: Suites) -> Vec<&'static str> {
        SUITES.iter().filter(|(_, _, suite)| suites.have(suite)).map(|(name, ..)| *name).collect()
    }

    #[test]
    fn every_suite_has_its_names_and_is_spoken_unless_a_list_says_otherwise() {
        assert_eq!(ALL_CIPHER_SUITES.len(), SUITES.len());
        assert!(ALL_CIPHER_SUITES.iter().all(|suite| Suites::default().have(suite)));
        for (_, standard, suite) in SUITES {
            let name = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
            assert_eq!(name, standard);
        }
    }

    #[test]
    fn lists_are_taken_as_they_are_written() {
        let tls12 = |list: &str| {
            let mut suites = Suites::default();
            suites.take_tls12(list).map(|()| spoken(suites).split_off(3))
        };
        let all = SUITES.map(|(name, ..)| name)[3..].to_vec();
        for list in
            ["HIGH", "HIGH:!EXPORT:!aNULL@STRENGTH", "HIGH:!aNULL:!MD5:@STRENGTH", "ALL,!RC4"]
        {
            assert_eq!(tls12(list).as_ref(), Ok(&all), "{list}");
        }
        let two = ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"];
        let list = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384:ECDHE-RSA-AES256-GCM-SHA384";
        assert_eq!(tls12(list).as_deref(), Ok(&two[..]));
        assert_eq!(tls12("HIGH:!ECDHE-RSA-AES256-GCM-SHA384").map(|left| left.len()), Ok(5));
        for (list, word) in [
            ("AES256-SHA", "'AES256-SHA'"),
            ("HIGH:+RC4", "'+RC4'"),
            ("HIGH:!nonsense", "'!nonsense'"),
            ("TLS_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
            ("!aNULL", "no cipher suite is left"),
            ("", "no cipher suite is left"),
        ] {
            let refused = tls12(list).unwrap_err();
            assert!(refused.contains(word), "{list}: {refused}");
        }
        let mut suites = Suites::default();
        suites.take_tls13("TLS_AES_256_GCM_SHA384").unwrap();
        assert_eq!(spoken(suites).len(), 7, "those of TLS 1.2 stay");
        assert!(suites.take_tls13("HIGH").is_err());
    }
}
