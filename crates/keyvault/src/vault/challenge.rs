//! Predicts the vault's authentication challenge.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::headers::{AUTHORIZATION, Headers, WWW_AUTHENTICATE};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{AsyncRawResponse, Context, Request, StatusCode, Url};
use lanyard_vocabulary::Cloud;

/// Answers a request without a token with a local challenge, if the vault's cloud is known.
///
/// The clients start with a request without a token to learn the token's resource from the challenge. For a
/// vault under a cloud's own suffix, the resource is that suffix, and a node that reads one secret for each
/// pod would otherwise send twice the requests. Other vaults (Azure Stack) receive the request. A challenge
/// from the vault itself is handled as usual.
#[derive(Debug)]
pub(crate) struct PredictedChallenge {
    challenge: String,
}

impl PredictedChallenge {
    /// Creates the policy for a vault; `None` if its cloud is unknown.
    pub(crate) fn for_vault_url(vault: &Url) -> Option<Self> {
        let (name, suffix) = vault.host_str()?.split_once('.')?;
        let endpoints = Cloud::ALL.into_iter().filter_map(Cloud::endpoints);
        let known = endpoints.into_iter().find(|known| known.vault_suffix == suffix)?;
        let resource = known.vault_audience();
        (!name.is_empty()).then(|| Self { challenge: format!("Bearer resource=\"{resource}\"") })
    }
}

#[async_trait]
impl Policy for PredictedChallenge {
    #[expect(elided_lifetimes_in_paths, reason = "the trait binds the lifetime late")]
    async fn send(
        &self,
        context: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        match next.split_first() {
            Some((first, rest)) if request.headers().get_optional_str(&AUTHORIZATION).is_some() => {
                first.send(context, request, rest).await
            }
            _ => {
                let mut headers = Headers::new();
                headers.insert(WWW_AUTHENTICATE, self.challenge.clone());
                Ok(AsyncRawResponse::from_bytes(StatusCode::Unauthorized, headers, ""))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_is_predicted_only_under_a_cloud_vault_suffix() {
        let resource =
            |url: &str| Some(PredictedChallenge::for_vault_url(&url.parse().ok()?)?.challenge);
        let of = |suffix: &str| Some(format!("Bearer resource=\"https://{suffix}\""));
        assert_eq!(resource("https://kv1.vault.azure.net/"), of("vault.azure.net"));
        assert_eq!(resource("https://kv1.vault.azure.cn/"), of("vault.azure.cn"));
        for unknown in [
            "https://vault.azure.net/",
            "https://kv1.evilvault.azure.net/",
            "https://a.kv1.vault.azure.net/",
            "https://kv1.vault.local.azurestack.external/",
            "https://127.0.0.1/",
        ] {
            assert_eq!(resource(unknown), None, "{unknown}");
        }
    }
}
