//! Sizes and counts as operators write them.

/// Bytes from `64M`, `1.5GB`, `134217728`: binary units, `b` optional, either case.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let (number, shift) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 10),
        b'm' => (&text[..text.len() - 1], 20),
        b'g' => (&text[..text.len() - 1], 30),
        b't' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let unit = 1_u64 << shift;
    if let Ok(whole) = number.trim_end().parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let bytes = number.trim_end().parse::<f64>().ok()? * unit as f64;
    // 2^63 is far above any machine; beyond it the conversion would be a guess.
    (bytes.is_finite() && (0.0..9.2e18).contains(&bytes)).then_some(bytes as u64)
}

/// A switch: what `mongod`, TokuMX and YAML files take for yes and no.
pub(crate) fn parse_switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" | "y" | "enabled" => Some(true),
        "false" | "no" | "off" | "0" | "n" | "disabled" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_units() {
        let cases = [
            ("134217728", Some(134_217_728)),
            ("64M", Some(64 << 20)),
            ("64mb", Some(64 << 20)),
            ("64 MB", Some(64 << 20)),
            ("1.5g", Some(3 << 29)),
            ("2T", Some(2 << 40)),
            ("512k", Some(512 << 10)),
            ("10b", Some(10)),
            ("", None),
            ("b", None),
            ("M", None),
            ("-1", None),
            ("-1.5g", None),
            ("1x", None),
            ("nan", None),
            ("99999999999999999999", None),
            ("99999999t", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }

    #[test]
    fn switches_take_every_spelling() {
        for (text, value) in [("on", true), ("OFF", false), ("true", true), ("0", false)] {
            assert_eq!(parse_switch(text), Some(value));
        }
        assert_eq!(parse_switch("maybe"), None);
    }
}
