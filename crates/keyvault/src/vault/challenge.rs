//! Answering the vault's challenge before it is asked for.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::headers::{AUTHORIZATION, Headers, WWW_AUTHENTICATE};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{AsyncRawResponse, Context, Request, StatusCode, Url};
use lanyard_vocabulary::Cloud;

/// Challenges a request without a token here, where the vault's cloud is known.
///
/// The clients begin every new vault by a request without a token, to learn from its challenge
/// what to ask a token for. For a vault under a cloud's own suffix that is the suffix itself, and
/// a node that reads one secret for each pod would make twice the requests to be told so. Vaults
/// elsewhere (Azure Stack) are asked. A challenge of the vault's own is followed as ever.
#[derive(Debug)]
pub(crate) struct PredictedChallenge {
    challenge: String,
}

impl PredictedChallenge {
    /// The policy for a vault; nothing where the cloud is not known.
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
