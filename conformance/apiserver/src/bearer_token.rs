//! Bearer tokens of the API server's users.

use std::fmt;

use uuid::Uuid;
use zeroize::Zeroizing;

/// The bearer token of one user. `Debug` redacts it, and dropping it wipes the memory.
pub struct BearerToken(Zeroizing<String>);

impl BearerToken {
    /// Generates a new random token.
    pub(crate) fn random() -> Self {
        Self(Zeroizing::new(Uuid::new_v4().to_string()))
    }

    /// The token, for the `Authorization` header.
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
