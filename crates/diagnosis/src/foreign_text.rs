//! Texts of other systems in messages.

/// A text on one line, between backticks.
pub(crate) fn quoted(text: &str) -> String {
    format!("`{}`", text.escape_debug())
}

/// Several texts, or `nothing`.
pub(crate) fn quoted_list(texts: &[String]) -> String {
    if texts.is_empty() {
        return "nothing".to_owned();
    }
    texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ")
}
