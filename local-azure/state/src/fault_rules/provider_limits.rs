//! The limits that resource providers publish, in addition to those of Azure Resource Manager.
//!
//! Sources: "Azure subscription and service limits" (managed identities) and "Quotas, virtual machine size
//! restrictions, and region availability in Azure Kubernetes Service" (throttling limits of the resource provider).

use http::Method;

use super::token_bucket::BucketSize;
use crate::request::ServiceRequest;

/// A resource provider that rejects requests beyond its own limits, with its own error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottlingProvider {
    ManagedIdentity,
    ContainerService,
}

/// A token bucket of a resource provider.
#[derive(Debug)]
pub(super) struct ProviderLimit {
    pub(super) key: String,
    pub(super) size: BucketSize,
    pub(super) provider: ThrottlingProvider,
}

/// The operations of a resource with a limit of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitedOperation {
    Read,
    List,
    Write,
    Delete,
}

/// The buckets from which a request takes a token, the widest one first. `tenant` is that of the caller.
pub(super) fn provider_limits(request: &ServiceRequest, tenant: &str) -> Vec<ProviderLimit> {
    let path = request.path.to_ascii_lowercase();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let Some(["subscriptions", subscription]) = segments.get(..2) else { return Vec::new() };
    let Some(provider) = segments.iter().rposition(|segment| *segment == "providers") else {
        return Vec::new();
    };
    let target = segments.get(provider + 1..).unwrap_or_default();
    // A type and a name follow each other: a collection has no name.
    let operation = match request.method {
        Method::GET if target.len().is_multiple_of(2) => LimitedOperation::List,
        Method::GET => LimitedOperation::Read,
        Method::PUT | Method::PATCH => LimitedOperation::Write,
        Method::DELETE => LimitedOperation::Delete,
        _ => return Vec::new(),
    };
    let resource = segments.get(..provider + 4).unwrap_or(&segments).join("/");
    match target {
        ["microsoft.managedidentity", "userassignedidentities", ..] => {
            identity_limits(operation, [tenant, subscription, &resource])
        }
        ["microsoft.containerservice", "managedclusters"]
        | ["microsoft.containerservice", "managedclusters", _]
            if request.method != Method::PATCH =>
        {
            cluster_limit(operation, subscription, &resource).into_iter().collect()
        }
        ["microsoft.containerservice", "locations", _, "operations", _] => {
            vec![kubernetes_limit("status", subscription, (200, 2, 1))]
        }
        _ => Vec::new(),
    }
}

/// The limits of identities. Their federated credentials count as the same resource.
fn identity_limits(operation: LimitedOperation, scopes: [&str; 3]) -> Vec<ProviderLimit> {
    // A burst, and the tokens that return in a number of seconds.
    let rates = match operation {
        LimitedOperation::Write | LimitedOperation::Delete => [(10, 10, 1), (2, 2, 1), (1, 1, 4)],
        LimitedOperation::Read => [(30, 30, 1), (10, 10, 1), (1, 1, 2)],
        LimitedOperation::List => [(15, 15, 1), (5, 5, 1), (1, 1, 4)],
    };
    let limit = |(scope, (capacity, tokens, seconds)): (&str, _)| ProviderLimit {
        key: format!("identities/{operation:?}/{scope}"),
        size: BucketSize { capacity, tokens, seconds },
        provider: ThrottlingProvider::ManagedIdentity,
    };
    scopes.into_iter().zip(rates).map(limit).collect()
}

fn cluster_limit(
    operation: LimitedOperation,
    subscription: &str,
    cluster: &str,
) -> Option<ProviderLimit> {
    match operation {
        LimitedOperation::Write => Some(kubernetes_limit("put", cluster, (20, 1, 60))),
        LimitedOperation::Read => Some(kubernetes_limit("get", cluster, (60, 1, 1))),
        LimitedOperation::List => Some(kubernetes_limit("list", subscription, (500, 1, 1))),
        LimitedOperation::Delete => None,
    }
}

fn kubernetes_limit(
    kind: &str,
    scope: &str,
    (capacity, tokens, seconds): (u32, u32, u32),
) -> ProviderLimit {
    ProviderLimit {
        key: format!("clusters/{kind}/{scope}"),
        size: BucketSize { capacity, tokens, seconds },
        provider: ThrottlingProvider::ContainerService,
    }
}
