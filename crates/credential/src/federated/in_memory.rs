//! The credential of a federated token that the program passes in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use lanyard_clock::SharedClock;
use parking_lot::Mutex;

use super::token_file::FederatedToken;
use super::{FederatedTokenProvider, FederatedTokenSource};
use crate::identity::{Authority, ClientId, TenantId};
use crate::token::engine::TokenEngine;
use crate::token::engine_credential::engine_credential;
use crate::token::error::TokenError;
use crate::transport::sender::TokenTransport;

/// Exchanges a federated token that the program passes in memory: a node agent holds the tokens of the pods
/// that it acts for.
///
/// [`Self::replace_token`] sets a newer token without an exchange: the cached access tokens belong to the
/// same identity and stay valid.
#[derive(Debug)]
pub struct InMemoryTokenCredential {
    engine: TokenEngine<FederatedTokenSource<InMemoryFederatedToken>>,
}

impl InMemoryTokenCredential {
    /// Creates a credential for `client` in `tenant` with the compact JWT `token`.
    ///
    /// # Errors
    ///
    /// Returns [`TokenError::InMemoryToken`] if the bytes are not a JWT.
    pub fn new(
        tenant: TenantId,
        client: ClientId,
        authority: &Authority,
        token: &[u8],
        transport: &TokenTransport,
    ) -> Result<Arc<Self>, TokenError> {
        let held = InMemoryFederatedToken {
            token: ArcSwap::from(parse(token)?),
            clock: Arc::clone(transport.clock()),
            rejected: Mutex::default(),
        };
        let source = FederatedTokenSource::new(held, tenant, client, authority, transport);
        Ok(Arc::new(Self { engine: TokenEngine::new(source, transport) }))
    }

    /// Replaces the current federated token by `token`, unless the current one expires later.
    ///
    /// An expired token is replaced by any unexpired one. A token that Entra rejected is replaced by any
    /// other, regardless of expiry, and is not accepted again while there is another unexpired token: the
    /// issuer's keys may have changed, or a caller may have passed a token that is not the pod's. A
    /// replacement also clears the remembered failures, because the previous token may have caused them.
    ///
    /// # Errors
    ///
    /// Returns [`TokenError::InMemoryToken`] if the bytes are not a JWT; the previous token stays.
    pub fn replace_token(&self, token: &[u8]) -> Result<(), TokenError> {
        let token = parse(token)?;
        let origin = &self.engine.source().provider;
        let held = origin.token.load_full();
        let is_refused = origin.is_rejected(&token);
        let now = origin.clock.now();
        let is_only_living = held.has_expired(now) && !token.has_expired(now);
        let is_better = if origin.is_rejected(&held) || is_only_living {
            !token.is_same(&held)
        } else {
            !is_refused && token.expires() > held.expires()
        };
        if is_better {
            origin.token.store(token);
            // A token that was rejected before does not clear the failures.
            if !is_refused {
                self.engine.forget_failures();
            }
        }
        Ok(())
    }
}

engine_credential!(InMemoryTokenCredential, health);

#[derive(Debug)]
struct InMemoryFederatedToken {
    token: ArcSwap<FederatedToken>,
    clock: SharedClock,
    /// The tokens that Entra rejected recently, the latest last.
    rejected: Mutex<VecDeque<Arc<FederatedToken>>>,
}

impl InMemoryFederatedToken {
    fn is_rejected(&self, token: &FederatedToken) -> bool {
        self.rejected.lock().iter().any(|refused| refused.is_same(token))
    }
}

#[async_trait]
impl FederatedTokenProvider for InMemoryFederatedToken {
    async fn load(&self, _transport: &TokenTransport) -> Result<Arc<FederatedToken>, TokenError> {
        let token = self.token.load_full();
        match token.expires() {
            Some(expired) if expired <= self.clock.now() => {
                Err(TokenError::InMemoryTokenExpired { expired })
            }
            _ => Ok(token),
        }
    }

    fn record_rejection(&self, token: &Arc<FederatedToken>) {
        if self.is_rejected(token) {
            return;
        }
        let mut refused = self.rejected.lock();
        if refused.len() >= MAX_REJECTED_TOKENS {
            refused.pop_front();
        }
        refused.push_back(Arc::clone(token));
    }
}

/// The number of rejected tokens to remember: enough for several pods that send old tokens.
const MAX_REJECTED_TOKENS: usize = 8;

fn parse(token: &[u8]) -> Result<Arc<FederatedToken>, TokenError> {
    FederatedToken::parse(token)
        .map(Arc::new)
        .map_err(|problem| TokenError::InMemoryToken { problem })
}

#[cfg(test)]
mod tests {
    use azure_core::credentials::TokenCredential as _;
    use std::time::Duration;

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use lanyard_clock::ErrorHint as _;

    use super::*;
    use crate::scripted_service::{ScriptedReply, TokenServiceFixture};
    use lanyard_clock::RetryClass;

    const VAULT: &str = "https://vault.azure.net/.default";
    /// The start time of the fixture's clock, in seconds.
    const NOW: i64 = 1_795_262_400;

    fn jwt(expires: i64) -> String {
        let payload = format!(r#"{{"sub":"system:serviceaccount:ns:sa","exp":{expires}}}"#);
        format!("e30.{}.cGxhbnRlZC1tYXJrZXI", URL_SAFE_NO_PAD.encode(payload))
    }

    fn credential(bench: &TokenServiceFixture, token: &str) -> Arc<InMemoryTokenCredential> {
        let authority = "https://login.example".parse().unwrap();
        let (tenant, client) = ("tenant".parse().unwrap(), "client".parse().unwrap());
        let transport = bench.transport();
        InMemoryTokenCredential::new(tenant, client, &authority, token.as_bytes(), &transport)
            .unwrap()
    }

    async fn get(
        bench: &TokenServiceFixture,
        credential: &InMemoryTokenCredential,
    ) -> Result<String, TokenError> {
        match bench.run_to_completion(credential.get_token(&[VAULT], None)).await {
            Ok(token) => Ok(token.token.secret().to_owned()),
            Err(error) => Err(TokenError::of(&error).unwrap().clone()),
        }
    }

    #[tokio::test]
    async fn newer_token_is_exchanged_only_after_the_access_token_expires() {
        let bench = TokenServiceFixture::new(|_, number| {
            ScriptedReply::token(&format!("t{number}"), 3_600)
        });
        let credential = credential(&bench, &jwt(NOW + 3_600));
        assert_eq!(get(&bench, &credential).await.unwrap(), "t0");
        credential.replace_token(jwt(NOW + 7_200).as_bytes()).unwrap();
        assert_eq!(get(&bench, &credential).await.unwrap(), "t0");
        assert_eq!(bench.script.request_count(), 1);
        bench.clock.advance(Duration::from_mins(65));
        assert_eq!(get(&bench, &credential).await.unwrap(), "t1");
        assert_eq!(
            bench.script.request(1).form_field("client_assertion").unwrap(),
            jwt(NOW + 7_200)
        );
    }

    #[tokio::test]
    async fn token_with_earlier_expiry_does_not_replace_a_later_one() {
        let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600));
        let credential = credential(&bench, &jwt(NOW + 3_600));
        credential.replace_token(jwt(NOW + 60).as_bytes()).unwrap();
        get(&bench, &credential).await.unwrap();
        assert_eq!(
            bench.script.request(0).form_field("client_assertion").unwrap(),
            jwt(NOW + 3_600)
        );
    }

    #[tokio::test]
    async fn rejected_token_is_replaced_by_any_other_and_not_reused() {
        let old = jwt(NOW + 86_400);
        let bench = {
            let old = old.clone();
            TokenServiceFixture::new(move |observed, _| {
                match observed.form_field("client_assertion") {
                    Some(token) if token == old => ScriptedReply::error("invalid_client", 700_024),
                    _ => ScriptedReply::token("t", 60),
                }
            })
        };
        let credential = credential(&bench, &old);
        get(&bench, &credential).await.unwrap_err();
        credential.replace_token(jwt(NOW + 3_600).as_bytes()).unwrap();
        assert_eq!(get(&bench, &credential).await.unwrap(), "t");
        // Another pod still has the old token.
        credential.replace_token(old.as_bytes()).unwrap();
        bench.clock.advance(Duration::from_mins(5));
        assert_eq!(get(&bench, &credential).await.unwrap(), "t");
        let asked = bench.script.request_count();
        assert_eq!(
            bench.script.request(asked - 1).form_field("client_assertion").unwrap(),
            jwt(NOW + 3_600)
        );
    }

    #[tokio::test]
    async fn expired_token_is_not_sent_and_its_replacement_is_used_immediately() {
        let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600));
        let credential = credential(&bench, &jwt(NOW - 1));
        let error = get(&bench, &credential).await.unwrap_err();
        assert!(matches!(error, TokenError::InMemoryTokenExpired { .. }), "{error}");
        assert_eq!(error.retry_class(), RetryClass::Transient);
        assert_eq!(bench.script.request_count(), 0);
        credential.replace_token(jwt(NOW + 60).as_bytes()).unwrap();
        assert_eq!(get(&bench, &credential).await.unwrap(), "t");
    }

    #[tokio::test]
    async fn token_without_expiry_replaces_an_expired_one() {
        let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600));
        let endless = "e30.e30.e30";
        let credential = credential(&bench, &jwt(NOW + 60));
        credential.replace_token(endless.as_bytes()).unwrap();
        bench.clock.advance(Duration::from_mins(1));
        assert!(get(&bench, &credential).await.is_err(), "one that lives keeps its place");
        credential.replace_token(endless.as_bytes()).unwrap();
        assert_eq!(get(&bench, &credential).await.unwrap(), "t");
        assert_eq!(bench.script.request(0).form_field("client_assertion").unwrap(), endless);
    }

    #[tokio::test]
    async fn invalid_tokens_are_rejected_and_tokens_are_never_printed() {
        let bench =
            TokenServiceFixture::new(|observed, _| ScriptedReply::status(401, &observed.body));
        let credential = credential(&bench, &jwt(NOW + 60));
        let refused = credential.replace_token(b"{\"token\":\"planted\"}").unwrap_err();
        assert_eq!(refused.to_string(), "the federated token does not hold a JWT");
        let error = get(&bench, &credential).await.unwrap_err();
        let output = format!("{error} {error:?} {credential:?} {:?}", error.hint());
        assert!(!output.contains("cGxhbnRlZC1tYXJrZXI") && !output.contains("planted"), "{output}");
    }
}
