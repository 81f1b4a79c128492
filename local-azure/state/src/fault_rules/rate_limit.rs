//! Rates beyond which a fault rule affects requests: windows, token buckets, and the limits that Azure
//! publishes.

use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::provider_limits::{ThrottlingProvider, provider_limits};
use super::token_bucket::{BucketSize, TokenBuckets};
use crate::azure_service::AzureService;
use crate::request::ServiceRequest;

/// A request rate, counted in windows that start with their first request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// The number of requests within the rate in each window.
    requests: u32,
    /// The length of a window in seconds.
    seconds: u32,
    /// The latest window.
    #[serde(skip)]
    last_window: Option<RateWindow>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RateWindow {
    begins: Timestamp,
    requests: u32,
}

impl RateLimit {
    /// Whether the windows have no length, so that no request would exceed the rate.
    pub(crate) const fn has_no_length(&self) -> bool {
        self.seconds == 0
    }

    /// Counts a request. Returns the time until the next window if the request exceeds the rate.
    pub(crate) fn count_and_check_exceeded(&mut self, now: Timestamp) -> Option<SignedDuration> {
        let length = SignedDuration::from_secs(i64::from(self.seconds));
        let fresh = RateWindow { begins: now, requests: 0 };
        let window = self.last_window.get_or_insert(fresh);
        if now.duration_since(window.begins) >= length {
            *window = fresh;
        }
        window.requests = window.requests.saturating_add(1);
        (window.requests > self.requests).then(|| length - now.duration_since(window.begins))
    }
}

/// A token bucket: each request takes a token, and tokens return at a steady rate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TokenBucketLimit {
    /// The number of tokens in a full bucket.
    capacity: u32,
    /// The number of tokens that return in `seconds`.
    refill: u32,
    #[serde(default = "one_second")]
    seconds: u32,
    /// Which requests share a bucket.
    #[serde(default, alias = "shared_by")]
    shared_by: BucketScope,
    #[serde(skip)]
    buckets: TokenBuckets,
}

const fn one_second() -> u32 {
    1
}

/// The requests that share a token bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum BucketScope {
    /// All requests that match the rule.
    #[default]
    Rule,
    /// The requests to a host.
    Host,
    /// The requests of a principal.
    Principal,
}

impl TokenBucketLimit {
    /// Whether the tokens would return within no time.
    pub(crate) const fn has_no_length(&self) -> bool {
        self.seconds == 0
    }

    /// Takes a token. Returns the time until the next token if there is none.
    pub(crate) fn take_token(
        &mut self,
        host: &str,
        principal: &str,
        now: Timestamp,
    ) -> Option<SignedDuration> {
        let key = match self.shared_by {
            BucketScope::Rule => "",
            BucketScope::Host => host,
            BucketScope::Principal => principal,
        };
        let size =
            BucketSize { capacity: self.capacity, tokens: self.refill, seconds: self.seconds };
        self.buckets.take_token(key.to_owned(), size, now)
    }
}

/// A request beyond a published limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExceededLimit {
    /// The time until the next token.
    pub(crate) wait: SignedDuration,
    /// The resource provider with the limit; `None` for the limits of the services themselves.
    pub(crate) provider: Option<ThrottlingProvider>,
}

/// The limits that Azure publishes for a service, as token buckets.
///
/// Sources: "Understand how Azure Resource Manager throttles requests", "Azure Key Vault service limits",
/// "Microsoft Graph service-specific throttling limits" (identity and access) and "Azure Instance Metadata
/// Service" (rate limits). Azure publishes none for the token endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PublishedLimitsName", into = "PublishedLimitsName")]
pub struct PublishedLimits {
    buckets: TokenBuckets,
}

/// The value of `limits`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PublishedLimitsName {
    Published,
}

impl From<PublishedLimitsName> for PublishedLimits {
    fn from(_: PublishedLimitsName) -> Self {
        Self::default()
    }
}

impl From<PublishedLimits> for PublishedLimitsName {
    fn from(_: PublishedLimits) -> Self {
        Self::Published
    }
}

impl PublishedLimits {
    /// Takes a token from each bucket of a request, up to the first one without a token. `tenant` is that of the
    /// principal.
    pub(crate) fn take_token(
        &mut self,
        service: AzureService,
        request: &ServiceRequest,
        principal: &str,
        tenant: &str,
        now: Timestamp,
    ) -> Option<ExceededLimit> {
        let (key, size) = published_limit(service, request, principal)?;
        if let Some(wait) = self.buckets.take_token(key, size, now) {
            return Some(ExceededLimit { wait, provider: None });
        }
        if service != AzureService::Arm {
            return None;
        }
        provider_limits(request, tenant).into_iter().find_map(|limit| {
            let wait = self.buckets.take_token(limit.key, limit.size, now)?;
            Some(ExceededLimit { wait, provider: Some(limit.provider) })
        })
    }
}

/// The key and the size of the bucket of a request; `None` if Azure publishes no limit.
fn published_limit(
    service: AzureService,
    request: &ServiceRequest,
    principal: &str,
) -> Option<(String, BucketSize)> {
    let size = |capacity, tokens, seconds| BucketSize { capacity, tokens, seconds };
    match service {
        AzureService::Arm => {
            let mut segments = request.path.split('/').skip(1);
            let subscription = match segments.next() {
                Some(first) if first.eq_ignore_ascii_case("subscriptions") => segments.next(),
                _ => None,
            };
            let subscription = subscription.unwrap_or_default().to_ascii_lowercase();
            let (kind, size) = match request.method {
                Method::GET | Method::HEAD => ("reads", size(250, 25, 1)),
                Method::DELETE => ("deletes", size(200, 10, 1)),
                _ => ("writes", size(200, 10, 1)),
            };
            Some((format!("{subscription}/{principal}/{kind}"), size))
        }
        AzureService::KeyVault => {
            let collection = request.path.split('/').nth(1).unwrap_or_default();
            let is_create = request.path.ends_with("/create") && collection == "keys";
            let is_write = request.method == Method::PUT && collection == "secrets"
                || request.path.ends_with("/import") && collection == "certificates";
            let (kind, size) = if is_create {
                ("creates", size(20, 20, 10))
            } else if is_write {
                ("writes", size(300, 300, 10))
            } else {
                ("others", size(4_000, 4_000, 10))
            };
            Some((format!("{}/{kind}", request.host), size))
        }
        AzureService::Graph => {
            let (kind, size) = match request.method {
                Method::GET | Method::HEAD => ("reads", size(3_500, 3_500, 10)),
                _ => ("writes", size(3_000, 3_000, 150)),
            };
            Some((format!("{principal}/{kind}"), size))
        }
        AzureService::Imds => {
            let is_token = request.path.starts_with("/metadata/identity");
            let (kind, size) =
                if is_token { ("tokens", size(20, 20, 1)) } else { ("metadata", size(5, 5, 1)) };
            Some((kind.to_owned(), size))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_permits_bursts_of_its_capacity_and_the_steady_rate() {
        let start = crate::testing::start_time();
        let at = |millis| start + SignedDuration::from_millis(millis);
        let mut bucket: TokenBucketLimit =
            serde_json::from_value(serde_json::json!({ "capacity": 2, "refill": 4 })).unwrap();
        let mut take = |millis| bucket.take_token("h", "p", at(millis)).map(|it| it.as_millis());
        assert_eq!((take(0), take(0)), (None, None));
        assert_eq!(take(0), Some(250));
        assert_eq!(take(100), Some(150));
        assert_eq!(take(250), None);
        assert_eq!((take(5_000), take(5_000)), (None, None));
        assert_eq!(take(5_000), Some(250));
    }

    #[test]
    fn each_principal_has_its_own_bucket() {
        let now = crate::testing::start_time();
        let limit = serde_json::json!({
            "capacity": 1, "refill": 1, "sharedBy": "principal",
        });
        let mut bucket: TokenBucketLimit = serde_json::from_value(limit).unwrap();
        assert_eq!(bucket.take_token("h", "a", now), None);
        assert_eq!(bucket.take_token("h", "b", now), None);
        assert!(bucket.take_token("h", "a", now).is_some());
    }
}
