//! The lines of a source file that belong to the product.

/// Counts the lines before an inline module `tests`.
pub(crate) fn product_lines(text: &str) -> usize {
    let product = text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(before, _)| before);
    product.lines().count()
}
