//! A chain of credentials, of which the first one that works is used.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::ErrorKind;
use tokio::sync::Mutex;

use crate::token::error::TokenError;
use crate::token::request::TokenRequestContext;

/// Tries credentials in their order, and keeps the first one that yields a token.
///
/// The order of the Azure SDKs (`DefaultAzureCredential`) is: environment, workload identity, managed identity,
/// Azure CLI. As there, a credential that is configured and rejected by Entra ends the search: the next one would
/// be a different identity than the user expects.
///
/// One caller at a time searches, and the others wait for its result. A failure is shared with the callers that waited
/// for the same token. A later call searches again.
#[derive(Debug)]
pub struct CredentialChain {
    links: Vec<ChainLink>,
    chosen: OnceLock<Arc<dyn TokenCredential>>,
    /// The last search that failed. Locked during a search.
    search: Mutex<Option<FailedSearch>>,
    failed_searches: AtomicU64,
}

/// A search that found no credential.
#[derive(Debug)]
struct FailedSearch {
    /// The number of failed searches, this one included.
    number: u64,
    scopes: Vec<String>,
    context: Option<TokenRequestContext>,
    error: CredentialChainError,
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
#[derive(Debug, Clone, thiserror::Error)]
pub struct CredentialChainError {
    /// The name of each tried or absent credential, and the reason.
    pub attempts: Vec<(&'static str, String)>,
    /// The error of the configured credential that ended the search.
    #[source]
    pub source: Option<Arc<azure_core::Error>>,
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

impl From<CredentialChainError> for azure_core::Error {
    fn from(error: CredentialChainError) -> Self {
        Self::new(ErrorKind::Credential, error)
    }
}

impl CredentialChain {
    /// Creates a chain.
    pub fn new(links: Vec<ChainLink>) -> Arc<Self> {
        let (chosen, search) = (OnceLock::new(), Mutex::default());
        Arc::new(Self { links, chosen, search, failed_searches: AtomicU64::new(0) })
    }

    /// Requests the token from each credential in turn.
    async fn search(
        &self,
        scopes: &[&str],
        options: Option<&TokenRequestOptions<'_>>,
    ) -> Result<(&Arc<dyn TokenCredential>, AccessToken), CredentialChainError> {
        let mut attempts = Vec::new();
        for link in &self.links {
            let (credential, is_configured) = match &link.state {
                ChainLinkState::Absent(reason) => {
                    attempts.push((link.name, reason.clone()));
                    continue;
                }
                ChainLinkState::Configured(credential) => (credential, true),
                ChainLinkState::Possible(credential) => (credential, false),
            };
            match credential.get_token(scopes, options.cloned()).await {
                Ok(token) => return Ok((credential, token)),
                Err(error) if is_configured => {
                    attempts.push((link.name, "rejected".to_owned()));
                    return Err(CredentialChainError { attempts, source: Some(Arc::new(error)) });
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
        if let Some(credential) = self.chosen.get() {
            return credential.get_token(scopes, options).await;
        }
        let failed_before = self.failed_searches.load(Ordering::Relaxed);
        let mut last_failure = self.search.lock().await;
        if let Some(credential) = self.chosen.get() {
            drop(last_failure);
            return credential.get_token(scopes, options).await;
        }
        let context = TokenRequestContext::of(options.as_ref());
        let shared = last_failure.as_ref().filter(|failed| {
            failed.number > failed_before
                && failed.scopes == scopes
                && failed.context.as_ref() == context
        });
        if let Some(failed) = shared {
            return Err(failed.error.clone().into());
        }
        match self.search(scopes, options.as_ref()).await {
            Ok((credential, token)) => {
                self.chosen.get_or_init(|| Arc::clone(credential));
                Ok(token)
            }
            Err(error) => {
                let number = self.failed_searches.fetch_add(1, Ordering::Relaxed) + 1;
                let scopes = scopes.iter().map(ToString::to_string).collect();
                let (context, shared) = (context.cloned(), error.clone());
                *last_failure = Some(FailedSearch { number, scopes, context, error: shared });
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use azure_core::time::OffsetDateTime;
    use tokio::sync::Semaphore;

    use super::*;

    /// Issues a fixed token, or fails, and records the calls.
    #[derive(Debug, Default)]
    struct TestCredential {
        token: Option<&'static str>,
        /// Each call takes one permit.
        gate: Option<Semaphore>,
        contexts: parking_lot::Mutex<Vec<Option<TokenRequestContext>>>,
    }

    impl TestCredential {
        fn gated(token: Option<&'static str>) -> Arc<Self> {
            Arc::new(Self { token, gate: Some(Semaphore::new(0)), ..Self::default() })
        }

        fn release(&self, calls: usize) {
            self.gate.as_ref().unwrap().add_permits(calls);
        }

        fn call_count(&self) -> usize {
            self.contexts.lock().len()
        }
    }

    #[async_trait]
    impl TokenCredential for TestCredential {
        async fn get_token(
            &self,
            _scopes: &[&str],
            options: Option<TokenRequestOptions<'_>>,
        ) -> azure_core::Result<AccessToken> {
            self.contexts.lock().push(TokenRequestContext::of(options.as_ref()).cloned());
            if let Some(gate) = &self.gate {
                gate.acquire().await.unwrap().forget();
            }
            let expires = OffsetDateTime::UNIX_EPOCH;
            self.token.map(|text| AccessToken::new(text.to_owned(), expires)).ok_or_else(|| {
                let cause = std::io::Error::other("out of order");
                azure_core::Error::new(ErrorKind::Credential, cause)
            })
        }
    }

    fn link(name: &'static str, state: ChainLinkState) -> ChainLink {
        ChainLink { name, state }
    }

    fn possible(credential: &Arc<TestCredential>) -> ChainLink {
        link("managed identity", ChainLinkState::Possible(Arc::<TestCredential>::clone(credential)))
    }

    fn works(text: &'static str) -> Arc<TestCredential> {
        Arc::new(TestCredential { token: Some(text), ..TestCredential::default() })
    }

    fn fails() -> Arc<TestCredential> {
        Arc::default()
    }

    async fn get(chain: &CredentialChain, scope: &str) -> Result<String, String> {
        let token = chain.get_token(&[scope], None).await;
        token.map(|token| token.token.secret().to_owned()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn first_credential_that_works_is_kept() {
        let failing = fails();
        let chain = CredentialChain::new(vec![
            link("environment", ChainLinkState::Absent("AZURE_CLIENT_ID is not set".to_owned())),
            possible(&failing),
            link("Azure CLI", ChainLinkState::Possible(works("cli"))),
        ]);
        for _ in 0..2 {
            assert_eq!(get(&chain, "s").await.unwrap(), "cli");
        }
        assert_eq!(failing.call_count(), 1);
    }

    #[tokio::test]
    async fn first_token_is_requested_with_the_options_of_the_caller() {
        let (failing, working) = (fails(), works("t"));
        let chain = CredentialChain::new(vec![possible(&failing), possible(&working)]);
        let context = TokenRequestContext::new().for_tenant("fabrikam.example".parse().unwrap());
        let mut options = TokenRequestOptions::default();
        options.method_options.context.insert(context.clone());
        chain.get_token(&["s"], Some(options)).await.unwrap();
        for credential in [failing, working] {
            assert_eq!(*credential.contexts.lock(), [Some(context.clone())]);
        }
    }

    #[tokio::test]
    async fn concurrent_first_calls_share_one_search() {
        let (failing, working) = (fails(), TestCredential::gated(Some("t")));
        let chain = CredentialChain::new(vec![possible(&failing), possible(&working)]);
        let calls = futures::future::join_all(["a", "b", "c"].map(|scope| get(&chain, scope)));
        let (tokens, ()) = tokio::join!(calls, async { working.release(3) });
        assert_eq!(tokens, ["t", "t", "t"].map(|token| Ok(token.to_owned())));
        // Each caller then requests its own token from the credential in use.
        assert_eq!((failing.call_count(), working.call_count()), (1, 3));
    }

    #[tokio::test]
    async fn failed_search_is_shared_with_waiting_callers_of_the_same_token_only() {
        let failing = TestCredential::gated(None);
        let chain = CredentialChain::new(vec![possible(&failing)]);
        let calls = futures::future::join_all(["a", "a", "a", "b"].map(|scope| get(&chain, scope)));
        let (outcomes, ()) = tokio::join!(calls, async { failing.release(9) });
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0] && outcome.is_err()));
        assert_eq!(failing.call_count(), 2);
        get(&chain, "a").await.unwrap_err();
        assert_eq!(failing.call_count(), 3);
    }

    #[tokio::test]
    async fn waiting_caller_searches_after_the_first_one_is_dropped() {
        let working = TestCredential::gated(Some("t"));
        let chain = CredentialChain::new(vec![possible(&working)]);
        let dropped = async {
            tokio::select! {
                biased;
                _ = get(&chain, "a") => panic!("the gate is closed"),
                () = tokio::task::yield_now() => {}
            }
            working.release(1);
        };
        let ((), token) = tokio::join!(dropped, get(&chain, "a"));
        assert_eq!(token.unwrap(), "t");
    }

    #[tokio::test]
    async fn rejected_configured_credential_ends_the_search() {
        let working = works("cli");
        let chain = CredentialChain::new(vec![
            link("environment", ChainLinkState::Configured(fails())),
            possible(&working),
        ]);
        let error = chain.search(&["s"], None).await.unwrap_err();
        assert_eq!(error.to_string(), "no credential yielded a token; environment: rejected");
        assert!(error.source.is_some());
        assert_eq!(working.call_count(), 0);
    }

    #[tokio::test]
    async fn error_lists_each_credential_with_its_reason() {
        let chain = CredentialChain::new(vec![
            link("environment", ChainLinkState::Absent("AZURE_CLIENT_ID is not set".to_owned())),
            possible(&fails()),
        ]);
        assert_eq!(
            get(&chain, "s").await.unwrap_err(),
            "no credential yielded a token; environment: AZURE_CLIENT_ID is not set; \
             managed identity: out of order"
        );
    }
}
