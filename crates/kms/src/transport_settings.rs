//! The settings of the transport to the vault.

use std::time::Duration;

use lanyard_azure::{AzureTransportSettings, CircuitBreakerPolicy, RequestRate, RetryPolicy};

/// Sets the policies of the plugin. The transport does not retry, because the plugin retries by itself, within the API
/// server's timeout. For the same reason, requests wait only shortly for the rate limiter, and the circuit breaker of
/// a failing vault half-opens soon.
pub fn transport_settings(settings: AzureTransportSettings) -> AzureTransportSettings {
    let breaker = CircuitBreakerPolicy {
        initial_pause: Duration::from_secs(1),
        max_pause: Duration::from_secs(8),
        ..CircuitBreakerPolicy::default()
    };
    AzureTransportSettings {
        rate: VAULT_RATE,
        retry: RetryPolicy { retries: 0, cap: Duration::from_secs(1), ..RetryPolicy::default() },
        breaker: Some(breaker),
        ..settings
    }
}

/// A vault allows 400 operations per second, and the plugin is almost its only client. A starting API server
/// with many seeds requests all of them at once.
const VAULT_RATE: RequestRate = RequestRate { per_second: 200, burst: 512 };
