//! What a user of the API server signs in with.

use std::fmt;

use uuid::Uuid;
use zeroize::Zeroizing;

/// The token of a user. It is not printed, and wiped when it is dropped.
pub struct BearerToken(Zeroizing<String>);

impl BearerToken {
    /// One that nobody had before.
    pub(crate) fn random() -> Self {
        Self(Zeroizing::new(Uuid::new_v4().to_string()))
    }

    /// The text, for the header of a request.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BearerToken([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_differ_and_debug_hides_them() {
        let token = BearerToken::random();
        assert_ne!(token.expose(), BearerToken::random().expose());
        assert!(!format!("{token:?} {token:#?}").contains(token.expose()));
    }
}
