//! ServiceAccount tokens and their cache.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::pod::{PodSpec, RedactedString};

/// Mints ServiceAccount tokens, as the API server of a cluster does.
#[async_trait]
pub trait TokenMinter: fmt::Debug + Send + Sync {
    /// Mints a token of the pod's ServiceAccount for this audience, bound to the pod and valid from `now`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no token. The volume is then not published.
    async fn mint(
        &self,
        pod: &PodSpec,
        audience: &str,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<MintedToken, TokenMintError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MintedToken {
    /// The token.
    pub text: RedactedString,
    /// When it expires.
    pub expires: Timestamp,
}

/// The token could not be minted.
#[derive(Debug, thiserror::Error)]
#[error("no token for audience {audience:?}: {problem}")]
pub struct TokenMintError {
    /// The requested audience.
    pub audience: String,
    /// Why minting failed.
    pub problem: String,
}

/// Mints tokens of realistic size that cannot be verified, for drivers that only pass them on.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpaqueTokenMinter;

#[async_trait]
impl TokenMinter for OpaqueTokenMinter {
    async fn mint(
        &self,
        pod: &PodSpec,
        audience: &str,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<MintedToken, TokenMintError> {
        let expires = now.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
        let claims = format!("{}.{audience}.{}.", pod.uid, expires.as_second());
        let text = format!("opaque.{claims:x<TOKEN_LENGTH$}");
        Ok(MintedToken { text: RedactedString::new(text), expires })
    }
}

/// Approximate length of a token of Kubernetes 1.36, in characters.
const TOKEN_LENGTH: usize = 1_047;

/// Tokens that were minted before, by pod UID and audience.
#[derive(Debug, Default)]
pub(crate) struct TokenCache(BTreeMap<(String, String), CachedPodToken>);

#[derive(Debug)]
struct CachedPodToken {
    token: MintedToken,
    renew_after: Timestamp,
}

impl TokenCache {
    /// The cached token of a pod for an audience, unless four fifths of its lifetime have passed.
    pub(crate) fn get(&self, pod: &PodSpec, audience: &str, now: Timestamp) -> Option<MintedToken> {
        self.0
            .get(&(pod.uid.clone(), audience.to_owned()))
            .filter(|retained| now < retained.renew_after)
            .map(|retained| retained.token.clone())
    }

    /// Caches a token for four fifths of its remaining lifetime, unless it is already cached.
    pub(crate) fn insert(
        &mut self,
        pod: &PodSpec,
        audience: &str,
        now: Timestamp,
        token: &MintedToken,
    ) {
        let key = (pod.uid.clone(), audience.to_owned());
        if self.0.get(&key).is_some_and(|retained| retained.token == *token) {
            return;
        }
        let life = Duration::try_from(token.expires.duration_since(now)).unwrap_or_default();
        let renew = now.saturating_add(life / 5 * 4).unwrap_or(Timestamp::MAX);
        let retained = CachedPodToken { token: token.clone(), renew_after: renew };
        self.0.insert(key, retained);
    }

    pub(crate) fn remove_pod(&mut self, uid: &str) {
        self.0.retain(|(pod, _), _| pod != uid);
    }
}

/// Renders tokens as a driver receives them: a JSON object by audience.
pub(crate) fn render_tokens(tokens: &BTreeMap<String, MintedToken>) -> RedactedString {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct CsiTokenJson<'a> {
        token: &'a str,
        expiration_timestamp: String,
    }

    let tokens: BTreeMap<&str, CsiTokenJson<'_>> = tokens
        .iter()
        .map(|(audience, token)| {
            // RFC 3339 without fractions, like `metav1.Time`.
            let expires = Timestamp::from_second(token.expires.as_second());
            let expiration_timestamp = expires.unwrap_or(token.expires).to_string();
            (audience.as_str(), CsiTokenJson { token: token.text.expose(), expiration_timestamp })
        })
        .collect();
    // Serializing a map of strings cannot fail.
    RedactedString::new(serde_json::to_string(&tokens).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[tokio::test]
    async fn token_is_cached_for_four_fifths_of_its_lifetime() {
        let pod = PodSpec::new("ns", "pod", "uid");
        let lifetime = Duration::from_mins(10);
        let token = OpaqueTokenMinter.mint(&pod, "a", at(0), lifetime).await.unwrap();
        let mut cache = TokenCache::default();
        cache.insert(&pod, "a", at(0), &token);
        assert_eq!(cache.get(&pod, "a", at(479)), Some(token));
        assert_eq!(cache.get(&pod, "a", at(480)), None);
        assert_eq!(cache.get(&pod, "b", at(0)), None);
        cache.remove_pod("uid");
        assert_eq!(cache.get(&pod, "a", at(0)), None);
    }

    #[tokio::test]
    async fn minted_tokens_have_jwt_form_and_real_size() {
        let pod = PodSpec::new("ns", "pod", "uid");
        let mint =
            |audience| OpaqueTokenMinter.mint(&pod, audience, at(0), Duration::from_hours(1));
        let audience = "api://AzureADTokenExchange";
        let tokens = BTreeMap::from([(audience.to_owned(), mint(audience).await.unwrap())]);
        let text = render_tokens(&tokens);
        assert!((1_100..1_200).contains(&text.expose().len()), "{}", text.expose().len());
        let value: serde_json::Value = serde_json::from_str(text.expose()).unwrap();
        assert_eq!(value[audience]["expirationTimestamp"], "1970-01-01T01:00:00Z");
        assert_eq!(value[audience]["token"].as_str().unwrap().len(), 1_054);
        assert!(!format!("{tokens:?}").contains("opaque."));
    }
}
