//! Redacts secrets from text of other programs before it is displayed or logged.
//!
//! An error body may echo the request that caused it; a proxy's error page usually does.

use std::collections::HashSet;

/// Replaces the given secrets, and everything that looks like a token, by a fixed word.
pub(crate) fn redact(text: &str, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= MIN_SECRET_LENGTH) {
        text = text.replace(secret, REDACTED);
        let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        text = text.replace(&encoded, REDACTED);
    }
    redact_token_runs(&redact_authorization(&redact_secret_fragments(&text, secrets)))
}

/// Like [`redact`], for a resource id, whose names may be longer than thumbprints.
pub(crate) fn redact_resource_id(id: &str, secrets: &[&str]) -> String {
    let mut runs = id.split(|c| !is_token_char(c));
    if runs.any(looks_like_jwt) || secrets.iter().any(|secret| id.contains(secret)) {
        return redact(id, secrets);
    }
    redact_secret_fragments(id, secrets)
}

/// Replaces each part of a secret of at least `MIN_PART_LENGTH` bytes: an error page may truncate the secret
/// or break it into lines.
fn redact_secret_fragments(text: &str, secrets: &[&str]) -> String {
    let parts: HashSet<&[u8]> =
        secrets.iter().flat_map(|secret| secret.as_bytes().windows(MIN_PART_LENGTH)).collect();
    let mut clean = String::with_capacity(text.len());
    let mut redacted_until = None;
    for (start, window) in text.as_bytes().windows(MIN_PART_LENGTH).enumerate() {
        if !parts.contains(window) {
            continue;
        }
        let end = text.ceil_char_boundary(start + MIN_PART_LENGTH);
        let start = text.floor_char_boundary(start);
        let done = redacted_until.replace(end);
        if done.is_none_or(|done| done < start) {
            clean.push_str(&text[done.unwrap_or_default()..start]);
            clean.push_str(REDACTED);
        }
    }
    clean.push_str(&text[redacted_until.unwrap_or_default()..]);
    clean
}

/// The beginning of a response body as one line of text, without line breaks and control characters.
pub(crate) fn excerpt(text: &str) -> String {
    excerpt_of_length(text, MAX_EXCERPT_LENGTH)
}

/// Like [`excerpt`], with at most `length` bytes.
pub(crate) fn excerpt_of_length(text: &str, length: usize) -> String {
    let mut line = String::with_capacity(text.len().min(length + 4));
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().take(length));
        if line.len() >= length {
            let end = line.floor_char_boundary(length);
            line.truncate(end);
            line.push('…');
            break;
        }
    }
    line
}

/// Replaces the value of an `Authorization` header, in the forms in which HTML pages and JSON echo the header,
/// even if the value does not look like a token.
fn redact_authorization(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut clean = String::with_capacity(text.len());
    let mut done = 0;
    while let Some(found) = lower[done..].find(AUTHORIZATION) {
        let name_end = done + found + AUTHORIZATION.len();
        clean.push_str(&text[done..name_end]);
        done = name_end;
        let rest = &text[name_end..];
        let value = rest.trim_start_matches(['"', '\'', ' ', '\\', ':', '[']);
        let between = &rest[..rest.len() - value.len()];
        // A challenge's `authorization="https://…"` has an equals sign here; prose has neither.
        if !between.contains(':') {
            continue;
        }
        let end = value.find(['"', '\'', '<', '\\', '\r', '\n', ']']).unwrap_or(value.len());
        clean.push_str(between);
        clean.push_str(REDACTED);
        done += between.len() + end;
    }
    clean.push_str(&text[done..]);
    clean
}

/// Replaces runs of token characters that are long or look like a JWT: tokens, assertions and keys.
fn redact_token_runs(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_token_char) {
        let (before, from_run) = rest.split_at(start);
        let (run, mut after) = split_token_run(from_run);
        clean.push_str(before);
        clean.push_str(if looks_secret(run) { REDACTED } else { run });
        if looks_like_jwt(run) {
            // Each of claims and signature may be short enough to look like other text.
            while let Some(part) =
                after.strip_prefix('.').filter(|part| part.starts_with(is_token_char))
            {
                (_, after) = split_token_run(part);
            }
        }
        rest = after;
    }
    clean.push_str(rest);
    clean
}

/// Splits the text after its leading run of token characters.
fn split_token_run(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c| !is_token_char(c)).unwrap_or(text.len()))
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '=')
}

/// GUIDs (36 characters) and thumbprints (at most 64 hexadecimal digits, or 44 of base64) are useful in
/// messages; longer runs, and runs that look like a JWT, are treated as secrets.
fn looks_secret(run: &str) -> bool {
    let hex = run.len() <= 64 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
    (run.len() > 44 && !hex) || looks_like_jwt(run)
}

/// The first part of a JWT is `{"` in base64; a parameter's name may precede it.
fn looks_like_jwt(run: &str) -> bool {
    run.len() > 12 && run.contains("eyJ")
}

/// The word that replaces a secret.
pub(crate) const REDACTED: &str = "[redacted]";
/// The header's name in lower case.
const AUTHORIZATION: &str = "authorization";
/// Shorter strings occur by chance; replacing them would make the text unreadable.
const MIN_SECRET_LENGTH: usize = 8;
/// Shorter parts reveal little of a secret, and may be a word of the text.
const MIN_PART_LENGTH: usize = 12;
/// The longest excerpt, in bytes.
const MAX_EXCERPT_LENGTH: usize = 400;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_are_redacted_and_identifiers_kept() {
        let jwt = "eyJhbGciOiJQUzI1NiJ9.eyJpc3MiOiJ4In0.c2lnbmF0dXJl";
        for (text, secrets, expected) in [
            ("AADSTS700027: key 'A1B2' not found", &[][..], "AADSTS700027: key 'A1B2' not found"),
            (
                "trace 8d3c2b3e-1f7a-4c55-9f7e-0a1b2c3d4e5f",
                &[],
                "trace 8d3c2b3e-1f7a-4c55-9f7e-0a1b2c3d4e5f",
            ),
            (jwt, &[], "[redacted]"),
            ("token=eyJhbGciOiJub25lIn0.e30.c2ln, and more", &[], "[redacted], and more"),
            ("see eyJhbGciOiJub25lIn0.e30. Then", &[], "see [redacted]. Then"),
            (r#"{"Authorization":"Basic dTpw"}"#, &[], r#"{"Authorization":"[redacted]"}"#),
            ("you sent my secret!", &["my secret!"], "you sent [redacted]"),
            ("form=my+secret%21&x", &["my secret!"], "form=[redacted]&x"),
            ("0¡𐀀𐀀 𐀀𐀀0 and", &["!0¡𐀀𐀀 𐀀𐀀0!"], "[redacted] and"),
            ("cut: abcdefghijklm…", &["abcdefghijklmnopqrstuvwxyz"], "cut: [redacted]…"),
            (
                "äabcdefghijklm\nnopqrstuvwxyzä, abcdefghijk",
                &["abcdefghijklmnopqrstuvwxyz"],
                "ä[redacted]\n[redacted]ä, abcdefghijk",
            ),
            (
                "https://login.microsoftonline.com/t/oauth2/v2.0/token",
                &[],
                "https://login.microsoftonline.com/t/oauth2/v2.0/token",
            ),
        ] {
            assert_eq!(redact(text, secrets), expected);
        }
        let thumbprint = "0F".repeat(32);
        assert_eq!(redact(&thumbprint, &[]), thumbprint);
        assert_eq!(redact(&"Zz".repeat(32), &[]), REDACTED);
    }

    #[test]
    fn an_excerpt_is_one_bounded_line() {
        assert_eq!(excerpt("Too Many\r\n\tRequests\u{7}"), "Too Many Requests");
        assert!(excerpt(&"ä ".repeat(5_000)).len() <= MAX_EXCERPT_LENGTH + "…".len());
        assert!(excerpt(&"x".repeat(5_000)).len() <= MAX_EXCERPT_LENGTH + "…".len());
        assert_eq!(excerpt(""), "");
    }

    proptest! {
        #[test]
        fn secrets_of_the_request_are_always_redacted(
            before in ".{0,40}",
            secret in "[A-Za-z0-9_~-]{8,80}",
            after in ".{0,40}",
        ) {
            let text = format!("{before}{secret}{after}");
            // Short secrets may be part of the fixed word itself.
            prop_assume!(!REDACTED.contains(&secret));
            prop_assert!(!redact(&text, &[&secret]).contains(&secret));
        }

        #[test]
        fn long_parts_of_truncated_secrets_are_redacted(
            before in ".{0,40}",
            lost in (".{0,20}", ".{0,20}"),
            part in ".{24,80}",
            after in ".{0,40}",
        ) {
            let secret = format!("{}{part}{}", lost.0, lost.1);
            let shown = redact(&format!("{before}{part}{after}"), &[&secret]);
            let parts: HashSet<_> = part.as_bytes().windows(MIN_PART_LENGTH).collect();
            let left = shown.as_bytes().windows(MIN_PART_LENGTH).find(|it| parts.contains(it));
            prop_assert_eq!(left, None, "{}", shown);
        }
    }
}
