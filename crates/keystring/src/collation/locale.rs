//! ICU's names of languages, as MongoDB takes them: `de`, `fr_CA`, `zh@collation=stroke`.
//!
//! Always true: a name is accepted only in ICU's own spelling; others get a suggestion.

use super::CollationError;
use icu_locale_core::Locale;

/// The languages for which ICU has an order, if only the root's.
const LANGUAGES: &str = " af am ar as az be bg bn bo br bs ca ceb chr cs cy da de dsb dz ee el en \
    eo es et fa fi fil fo fr ga gl gu ha haw he hi hr hsb hu hy id ig is it ja ka kk kl km kn ko \
    kok ku ky lb lkt ln lo lt lv mk ml mn mr ms mt my nb ne nl nn om or pa pl ps pt ro ru sa se \
    si sk sl smn sq sr sv sw ta te th to tr ug uk ur uz vi wae wo xh yi yo zh zu ";

/// The scripts in which ICU orders some of them.
const SCRIPTS: &str = " Adlm Arab Beng Cyrl Deva Guru Hans Hant Latn Telu ";

/// The regions of ISO 3166 and the two areas that languages are spoken of in.
const REGIONS: &str = " 001 419 AC AD AE AF AG AI AL AM AO AR AS AT AU AW AX AZ BA BB BD BE BF BG \
    BH BI BJ BL BM BN BO BQ BR BS BT BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX \
    CY CZ DE DG DJ DK DM DO DZ EA EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI \
    GL GM GN GP GQ GR GT GU GW GY HK HN HR HT HU IC ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE \
    KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM \
    MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH \
    PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS \
    ST SV SX SY SZ TC TD TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN \
    VU WF WS XK YE YT ZA ZM ZW ";

/// ICU's names for kinds of order, and those of the library's data. Kinds that it does not carry
/// are known here too, so that they are refused as what they are.
const TYPES: [(&str, &str); 18] = [
    ("big5han", "big5han"),
    ("compat", "compat"),
    ("dictionary", "dict"),
    ("direct", "direct"),
    ("ducet", "ducet"),
    ("emoji", "emoji"),
    ("eor", "eor"),
    ("gb2312han", "gb2312"),
    ("phonebook", "phonebk"),
    ("phonetic", "phonetic"),
    ("pinyin", "pinyin"),
    ("reformed", "reformed"),
    ("search", "search"),
    ("searchjl", "searchjl"),
    ("stroke", "stroke"),
    ("traditional", "trad"),
    ("unihan", "unihan"),
    ("zhuyin", "zhuyin"),
];

fn holds(list: &str, name: &str) -> bool {
    !name.contains(' ') && list.contains(&format!(" {name} "))
}

/// The language, and the kind of order where one is named.
pub(super) fn parse(name: &str) -> Result<(Locale, Option<String>), CollationError> {
    let unknown = || CollationError::UnknownLocale(suggestion(name));
    let (base, kind) = match name.split_once('@') {
        None => (name, None),
        Some((base, keyword)) => {
            (base, Some(keyword.strip_prefix("collation=").ok_or_else(unknown)?))
        }
    };
    if !is_locale(base) {
        return Err(unknown());
    }
    let mut tag = base.replace('_', "-").replace("-POSIX", "-posix");
    let kind = match kind {
        // What a language has without being asked.
        None | Some("standard") => None,
        Some(kind) => {
            let (_, short) = TYPES.iter().find(|(known, _)| *known == kind).ok_or_else(unknown)?;
            tag.push_str("-u-co-");
            tag.push_str(short);
            Some(kind.to_owned())
        }
    };
    Ok((tag.parse().map_err(|_| unknown())?, kind))
}

fn is_locale(base: &str) -> bool {
    if base == "en_US_POSIX" {
        return true;
    }
    let mut parts = base.split('_').peekable();
    let known = parts.next().is_some_and(|language| holds(LANGUAGES, language));
    parts.next_if(|script| holds(SCRIPTS, script));
    parts.next_if(|region| holds(REGIONS, region));
    known && parts.next().is_none()
}

/// The nearest name there is: in ICU's spelling, then with less of it.
fn suggestion(name: &str) -> Option<String> {
    let base = name.split('@').next()?;
    let mut parts: Vec<String> = base
        .split(['_', '-'])
        .enumerate()
        .map(|(at, part)| match (at, part.len()) {
            (0, _) => part.to_ascii_lowercase(),
            (_, 4) => {
                let (first, rest) = part.split_at_checked(1).unwrap_or((part, ""));
                first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
            }
            _ => part.to_ascii_uppercase(),
        })
        .collect();
    while !parts.is_empty() {
        let candidate = parts.join("_");
        if is_locale(&candidate) {
            return (candidate != name).then_some(candidate);
        }
        parts.pop();
    }
    None
}
