//! A number in a badge: a small picture with a label, for pages of others.

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use super::security::NOTHING;

/// Room on both sides of a text, in pixels.
const PADDING: usize = 6;

/// The picture of `number` behind `label`, both of which are read out, too.
pub(super) fn response(label: &str, number: Option<i64>) -> Response {
    let headers = [
        (CONTENT_TYPE, "image/svg+xml; charset=utf-8"),
        // Opened by itself it is a document, which may do nothing.
        (CONTENT_SECURITY_POLICY, NOTHING),
    ];
    (headers, picture(label, number)).into_response()
}

fn picture(label: &str, number: Option<i64>) -> String {
    let number = number.map_or_else(|| "–".to_owned(), grouped);
    let (left, right) = (width(label), width(&number));
    let (label_box, number_box) = (left + 2 * PADDING, right + 2 * PADDING);
    let (all, behind) = (label_box + number_box, label_box + PADDING);
    let label = escaped(label);
    // A reader's machine may have other fonts: texts are drawn as wide as the boxes are.
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{all}" height="20" role="img" aria-label="{label}: {number}">
<title>{label}: {number}</title>
<rect width="{all}" height="20" rx="3" fill="#3b4252"/>
<path d="M{label_box} 0h{straight}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{straight}z" fill="#1f6f78"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" aria-hidden="true">
<text x="{PADDING}" y="14" textLength="{left}" lengthAdjust="spacingAndGlyphs">{label}</text>
<text x="{behind}" y="14" textLength="{right}" lengthAdjust="spacingAndGlyphs">{number}</text>
</g>
</svg>
"##,
        straight = number_box - 3
    )
}

/// With a comma between thousands.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// About how wide a text is in a font of 11 pixels, in pixels.
fn width(text: &str) -> usize {
    let wide = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ' ' | '!' | '|' => 4,
        'm' | 'w' | 'M' | 'W' => 10,
        c if c.is_ascii_uppercase() => 8,
        c if c < '\u{1100}' => 7,
        // Of East Asia, and pictures.
        _ => 12,
    };
    text.chars().map(wide).sum()
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // What XML has no place for.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (123_456, "123,456"),
            (i64::MAX, "9,223,372,036,854,775,807"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn a_label_is_text_whatever_is_in_it() {
        let picture = picture("<script>'\"&\u{ffff}", Some(1200));
        let label = "&lt;script&gt;&#39;&quot;&amp;\u{fffd}";
        assert!(
            picture.contains(&format!("<title>{label}: 1,200</title>")),
            "{picture}"
        );
        assert!(
            picture.contains(&format!("aria-label=\"{label}: 1,200\"")),
            "{picture}"
        );
        assert_eq!(picture.matches('<').count(), picture.matches('>').count());
        assert!(!picture.contains("<script"));
    }
}
