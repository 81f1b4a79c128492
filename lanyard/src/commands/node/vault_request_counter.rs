//! Counts every request to a vault and its outcome.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::http::{AsyncRawResponse, HttpClient, Request, StatusCode, Url};
use lanyard_clock::SharedClock;
use lanyard_node::{NodeMetrics, ReadKind};
use lanyard_vocabulary::OutcomeCode;

/// An HTTP client that counts requests to vaults and passes on all requests.
#[derive(Debug)]
pub(super) struct VaultRequestCounter {
    inner: Arc<dyn HttpClient>,
    metrics: NodeMetrics,
    clock: SharedClock,
}

impl VaultRequestCounter {
    pub(super) fn wrap(
        inner: Arc<dyn HttpClient>,
        metrics: NodeMetrics,
        clock: SharedClock,
    ) -> Arc<dyn HttpClient> {
        Arc::new(Self { inner, metrics, clock })
    }

    fn record_request(&self, kind: ReadKind, took: Duration, status: Option<StatusCode>) {
        if status == Some(StatusCode::TooManyRequests) {
            self.metrics.record_throttle();
        }
        self.metrics.record_vault_request(kind, took, outcome_of_status(status));
    }
}

#[async_trait]
impl HttpClient for VaultRequestCounter {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let Some(kind) = read_kind(request.url()) else {
            return self.inner.execute_request(request).await;
        };
        let start = self.clock.monotonic();
        let response = self.inner.execute_request(request).await;
        let took = self.clock.monotonic().saturating_sub(start);
        self.record_request(kind, took, response.as_ref().ok().map(AsyncRawResponse::status));
        response
    }
}

/// The kind of a vault read. The collection is the first segment of the path (Key Vault REST API).
fn read_kind(url: &Url) -> Option<ReadKind> {
    match url.path_segments()?.next()? {
        "secrets" => Some(ReadKind::Secret),
        "keys" => Some(ReadKind::Key),
        "certificates" => Some(ReadKind::Certificate),
        _ => None,
    }
}

/// The outcome code of a response status; `None` if the vault was not reached.
fn outcome_of_status(status: Option<StatusCode>) -> Result<(), OutcomeCode> {
    match status.map(u16::from) {
        Some(200..=299) => Ok(()),
        Some(401 | 403) => Err(OutcomeCode::VaultForbidden),
        Some(404) => Err(OutcomeCode::ObjectNotFound),
        Some(429) => Err(OutcomeCode::VaultThrottled),
        _ => Err(OutcomeCode::VaultUnavailable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vault_reads_are_distinguished_from_other_requests() {
        let cases = [
            ("https://kv1.vault.azure.net/secrets/a/1?api-version=7.4", Some(ReadKind::Secret)),
            ("https://kv1.vault.azure.net/keys/a", Some(ReadKind::Key)),
            ("https://kv1.vault.azure.net/certificates/a", Some(ReadKind::Certificate)),
            ("https://login.microsoftonline.com/tenant/oauth2/v2.0/token", None),
        ];
        for (url, expected) in cases {
            assert_eq!(read_kind(&url.parse().unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn http_statuses_map_to_outcome_codes() {
        let cases = [
            (Some(200), Ok(())),
            (Some(403), Err(OutcomeCode::VaultForbidden)),
            (Some(429), Err(OutcomeCode::VaultThrottled)),
            (Some(500), Err(OutcomeCode::VaultUnavailable)),
            (None, Err(OutcomeCode::VaultUnavailable)),
        ];
        for (status, expected) in cases {
            assert_eq!(outcome_of_status(status.map(StatusCode::from)), expected, "{status:?}");
        }
    }
}
