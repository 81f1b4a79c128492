//! Text that cannot be printed and is wiped on drop.

use std::fmt;

use zeroize::Zeroizing;

/// Secret text: it has no `Display`, its `Debug` prints a fixed word, it cannot be cloned, and its memory is
/// wiped on drop.
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The secret text. Only code that sends or parses it may call this.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretText(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_prints_a_fixed_word() {
        assert_eq!(format!("{:?}", SecretText::from("planted")), "SecretText(***)");
    }
}
