//! Tables and sizes for people.

/// Columns as wide as they must be; the first is aligned left, the others right.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::from(" ");
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line.push(' ');
            let padding = " ".repeat(width - cell.chars().count());
            line.push_str(&if at == 0 { cell.clone() + &padding } else { padding + cell });
            line.push(' ');
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Bytes with a unit.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut number = bytes as f64 / 1024.0;
    let mut unit = 0;
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    format!("{number:.1} {}", UNITS[unit])
}

/// How many times smaller the stored bytes are.
pub(crate) fn ratio(raw: u64, stored: u64) -> Option<f64> {
    (stored > 0).then(|| (raw as f64 / stored as f64 * 100.0).round() / 100.0)
}

/// The ratio for a table.
pub(crate) fn ratio_text(raw: u64, stored: u64) -> String {
    ratio(raw, stored).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ratios_are_rounded() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "16384.0 PiB");
        assert_eq!(ratio_text(3000, 1000), "3.00");
        assert_eq!(ratio_text(3000, 0), "-");
    }

    #[test]
    fn columns_line_up() {
        let text = table(&["id", "n"], &[vec!["1".into(), "100".into()]]);
        assert_eq!(text, "  id    n\n  1   100\n");
    }
}
