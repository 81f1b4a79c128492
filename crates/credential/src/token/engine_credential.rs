//! The methods of credentials that have a token engine.

/// Implements `TokenCredential` for a credential with the field `engine`, and the named methods.
macro_rules! engine_credential {
    ($credential:ident $(, $method:ident)*) => {
        #[async_trait::async_trait]
        impl azure_core::credentials::TokenCredential for $credential {
            async fn get_token(
                &self,
                scopes: &[&str],
                options: Option<azure_core::credentials::TokenRequestOptions<'_>>,
            ) -> azure_core::Result<azure_core::credentials::AccessToken> {
                self.engine.access_token(scopes, options).await
            }
        }

        impl $credential {
            $(engine_credential!(@ $method);)*
        }
    };
    (@ cached_token) => {
        /// Passes the cached token for `scope` to `read` without copying it. Returns `None` if no usable token is
        /// cached.
        pub fn with_cached_token<R>(&self, scope: &str, read: impl FnOnce(&str) -> R) -> Option<R> {
            let variant = &crate::token::request::TokenVariant::PLAIN;
            self.engine.with_cached_token(scope, variant, |token| read(token.expose()))
        }
    };
    (@ health) => {
        /// Reports the cached tokens and the results of token requests.
        pub fn health(&self) -> crate::health::TokenHealth {
            self.engine.health()
        }
    };
    (@ is_ready) => {
        /// Whether the credential can supply tokens, judged without sending a request.
        pub fn is_ready(&self) -> bool {
            self.health().is_ready()
        }
    };
}

pub(crate) use engine_credential;
