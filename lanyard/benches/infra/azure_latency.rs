//! How long Azure takes for the resources of a cluster: the reply to a request, and the operation behind it.
//!
//! The values are those that provisioning logs of public projects typically show in a region of the United
//! States; private DNS zones and their links are by far the slowest.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::http::{AsyncRawResponse, HttpClient, Method, Request};
use lanyard_changes::{AzureGraph, AzureResource};
use lanyard_clock::SharedClock;
use serde_json::{Value, json};

/// The seconds of the operations that go on after the reply.
const OPERATION_SECONDS: [(&str, u64); 6] = [
    ("Microsoft.Network/networkSecurityGroups", 4),
    ("Microsoft.Network/virtualNetworks", 5),
    ("Microsoft.Network/privateDnsZones", 32),
    ("Microsoft.Network/privateDnsZones/virtualNetworkLinks", 32),
    ("Microsoft.Network/publicIPAddresses", 4),
    ("Microsoft.Network/loadBalancers", 4),
];
const READ: Duration = Duration::from_millis(150);
const WRITE: Duration = Duration::from_millis(1_200);

/// The settings of the local Azure. Replies name no pause, as those of the real network and DNS providers.
pub(crate) fn operation_rules() -> Value {
    let rule = |(kind, seconds): (&str, u64)| json!({ "resourceType": kind, "seconds": seconds, "retryAfterMilliseconds": null });
    OPERATION_SECONDS.map(rule).into_iter().collect()
}

/// The duration of the slowest chain of dependent resources, if every reply arrived as soon as Azure is done.
pub(crate) fn critical_path(graph: &AzureGraph) -> Duration {
    let mut ends = HashMap::new();
    let mut longest = Duration::ZERO;
    // Resources come after the ones that they need.
    for resource in graph.resources() {
        let needed = resource.depends_on.iter().filter_map(|key| ends.get(key)).max();
        let end = needed.copied().unwrap_or_default() + duration(resource);
        ends.insert(resource.key.clone(), end);
        longest = longest.max(end);
    }
    longest
}

fn duration(resource: &AzureResource) -> Duration {
    let kind = resource.id.resource_type().unwrap_or_default();
    let operation = OPERATION_SECONDS.iter().find(|(known, _)| *known == kind);
    WRITE + Duration::from_secs(operation.map_or(0, |(_, seconds)| *seconds))
}

/// Waits before each request, as long as the network and Azure take for a reply.
#[derive(Debug)]
pub(crate) struct LatencyClient {
    inner: Arc<dyn HttpClient>,
    clock: SharedClock,
}

impl LatencyClient {
    pub(crate) fn wrap(inner: Arc<dyn HttpClient>, clock: SharedClock) -> Arc<dyn HttpClient> {
        Arc::new(Self { inner, clock })
    }
}

#[async_trait]
impl HttpClient for LatencyClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let latency = if request.method() == Method::Get { READ } else { WRITE };
        self.clock.sleep(latency).await;
        self.inner.execute_request(request).await
    }
}
