//! A chain of credentials, of which the first one that works is used.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::ErrorKind;
use parking_lot::Mutex;

use crate::token::error::TokenError;

/// Tries credentials in their order, and keeps the first one that yields a token.
///
/// The order of the Azure SDKs (`DefaultAzureCredential`) is: environment, workload identity, managed identity,
/// Azure CLI. As there, a credential that is configured and rejected by Entra ends the search: the next one would
/// be a different identity than the user expects.
#[derive(Debug)]
pub struct CredentialChain {
    links: Vec<ChainLink>,
    chosen: Mutex<Option<usize>>,
}

/// A credential of a chain.
#[derive(Debug)]
pub struct ChainLink {
    /// The name for messages, such as `workload identity`.
    pub name: &'static str,
    /// The credential, or why it cannot be tried.
    pub state: ChainLinkState,
}

/// Whether a credential of a chain can be tried.
#[derive(Debug)]
pub enum ChainLinkState {
    /// The user configured the credential, so an error ends the search.
    Configured(Arc<dyn TokenCredential>),
    /// The credential may exist on this machine; an error continues the search.
    Possible(Arc<dyn TokenCredential>),
    /// The credential is not configured, for this reason.
    Absent(String),
}

/// No credential of a chain yielded a token.
#[derive(Debug, thiserror::Error)]
pub struct CredentialChainError {
    /// The name of each tried or absent credential, and the reason.
    pub attempts: Vec<(&'static str, String)>,
    /// The error of the configured credential that ended the search.
    #[source]
    pub source: Option<azure_core::Error>,
}

impl fmt::Display for CredentialChainError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "no credential yielded a token")?;
        for (name, reason) in &self.attempts {
            write!(formatter, "; {name}: {reason}")?;
        }
        Ok(())
    }
}

impl CredentialChain {
    /// Creates a chain.
    pub fn new(links: Vec<ChainLink>) -> Arc<Self> {
        Arc::new(Self { links, chosen: Mutex::default() })
    }

    /// The name of the credential that yielded the first token.
    pub fn chosen(&self) -> Option<&'static str> {
        let chosen = *self.chosen.lock();
        chosen.and_then(|index| self.links.get(index)).map(|link| link.name)
    }

    async fn first_token(
        &self,
        scopes: &[&str],
    ) -> Result<(usize, AccessToken), CredentialChainError> {
        let mut attempts = Vec::new();
        for (index, link) in self.links.iter().enumerate() {
            let (credential, is_configured) = match &link.state {
                ChainLinkState::Absent(reason) => {
                    attempts.push((link.name, reason.clone()));
                    continue;
                }
                ChainLinkState::Configured(credential) => (credential, true),
                ChainLinkState::Possible(credential) => (credential, false),
            };
            match credential.get_token(scopes, None).await {
                Ok(token) => return Ok((index, token)),
                Err(error) if is_configured => {
                    attempts.push((link.name, "rejected".to_owned()));
                    return Err(CredentialChainError { attempts, source: Some(error) });
                }
                Err(error) => attempts.push((link.name, describe(&error))),
            }
        }
        Err(CredentialChainError { attempts, source: None })
    }
}

/// The innermost typed error, because the text of `azure_core`'s own error repeats it.
fn describe(error: &azure_core::Error) -> String {
    TokenError::of(error).map_or_else(
        || {
            let source = std::error::Error::source(error);
            source.map_or_else(|| error.to_string(), ToString::to_string)
        },
        ToString::to_string,
    )
}

#[async_trait]
impl TokenCredential for CredentialChain {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let chosen = *self.chosen.lock();
        if let Some(link) = chosen.and_then(|index| self.links.get(index))
            && let ChainLinkState::Configured(credential) | ChainLinkState::Possible(credential) =
                &link.state
        {
            return credential.get_token(scopes, options).await;
        }
        let (index, token) = self
            .first_token(scopes)
            .await
            .map_err(|error| azure_core::Error::new(ErrorKind::Credential, error))?;
        self.chosen.lock().get_or_insert(index);
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use azure_core::time::OffsetDateTime;

    use super::*;

    #[derive(Debug)]
    struct Fixed(Option<&'static str>);

    #[async_trait]
    impl TokenCredential for Fixed {
        async fn get_token(
            &self,
            _scopes: &[&str],
            _options: Option<TokenRequestOptions<'_>>,
        ) -> azure_core::Result<AccessToken> {
            let expires = OffsetDateTime::UNIX_EPOCH;
            self.0.map(|text| AccessToken::new(text.to_owned(), expires)).ok_or_else(|| {
                let cause = std::io::Error::other("out of order");
                azure_core::Error::new(ErrorKind::Credential, cause)
            })
        }
    }

    fn link(name: &'static str, state: ChainLinkState) -> ChainLink {
        ChainLink { name, state }
    }

    fn works(text: &'static str) -> Arc<Fixed> {
        Arc::new(Fixed(Some(text)))
    }

    #[tokio::test]
    async fn first_credential_that_works_is_kept() {
        let chain = CredentialChain::new(vec![
            link("environment", ChainLinkState::Absent("AZURE_CLIENT_ID is not set".to_owned())),
            link("managed identity", ChainLinkState::Possible(Arc::new(Fixed(None)))),
            link("Azure CLI", ChainLinkState::Possible(works("cli"))),
        ]);
        assert_eq!(chain.chosen(), None);
        let token = chain.get_token(&["s"], None).await.unwrap();
        assert_eq!((token.token.secret(), chain.chosen()), ("cli", Some("Azure CLI")));
    }

    #[tokio::test]
    async fn rejected_configured_credential_ends_the_search() {
        let chain = CredentialChain::new(vec![
            link("environment", ChainLinkState::Configured(Arc::new(Fixed(None)))),
            link("Azure CLI", ChainLinkState::Possible(works("cli"))),
        ]);
        let error = chain.first_token(&["s"]).await.unwrap_err();
        assert_eq!(error.to_string(), "no credential yielded a token; environment: rejected");
        assert!(error.source.is_some());
    }

    #[tokio::test]
    async fn error_lists_each_credential_with_its_reason() {
        let chain = CredentialChain::new(vec![
            link("environment", ChainLinkState::Absent("AZURE_CLIENT_ID is not set".to_owned())),
            link("managed identity", ChainLinkState::Possible(Arc::new(Fixed(None)))),
        ]);
        let error = chain.first_token(&["s"]).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "no credential yielded a token; environment: AZURE_CLIENT_ID is not set; \
             managed identity: out of order"
        );
    }
}
