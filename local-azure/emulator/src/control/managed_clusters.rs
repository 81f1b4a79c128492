//! Managed clusters (AKS): their kubeconfigs, their API servers, and the issuers of their tokens.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::managed_clusters::{MANAGED_CLUSTER_TYPE, issuer_in_profile};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::cluster_settings::ClusterApiServer;
use lanyard_emulator_state::resources::resource_store::ArmResource;
use serde::Deserialize;
use serde_json::{Value, json};

use super::federation::{JsonWebKeySet, require_https};
use super::{control_error, parse_body};

/// The body of `PATCH managed-clusters`. Missing fields stay as they are.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangeManagedClusterRequest {
    cluster_id: String,
    kubeconfig: Option<RedactedText>,
    admin_kubeconfig: Option<RedactedText>,
    api_server: Option<ApiServerRequest>,
}

/// The API server of a cluster, as it runs now.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiServerRequest {
    /// The issuer of its tokens.
    issuer: Option<String>,
    /// The keys that verify its tokens.
    jwks: JsonWebKeySet,
}

/// `GET managed-clusters`.
pub(super) fn list_clusters(call: &OperationContext<'_>) -> ServiceReply {
    let everywhere = AccessScope::root();
    let clusters = call.azure().resources.of_type_within(&everywhere, MANAGED_CLUSTER_TYPE);
    let clusters: Vec<_> = clusters.map(|cluster| cluster_json(call, cluster)).collect();
    ServiceReply::json(StatusCode::OK, &json!({ "value": clusters }))
}

/// `PATCH managed-clusters`: sets kubeconfigs, and registers an API server or reports its restart. If the API server
/// uses the issuer of the cluster's profile, the issuer is published, and pending operations end.
pub(super) fn change_cluster(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let body: ChangeManagedClusterRequest = parse_body(call)?;
    let id = find_cluster(call, &body.cluster_id)?.id.clone();
    let api_server = match body.api_server {
        Some(ApiServerRequest { issuer, jwks }) => {
            issuer.as_deref().map_or(Ok(()), require_https)?;
            Some(ClusterApiServer { issuer, keys: jwks.into_rsa_signing_keys()? })
        }
        None => None,
    };
    let now = call.now;
    let azure = call.azure_mut();
    azure.change_cluster_settings(&id, |settings| {
        settings.kubeconfig = body.kubeconfig.or(settings.kubeconfig.take());
        settings.admin_kubeconfig = body.admin_kubeconfig.or(settings.admin_kubeconfig.take());
        settings.api_server = api_server.or(settings.api_server.take());
    });
    let cluster = find_cluster(call, &body.cluster_id)?;
    let reply = ServiceReply::json(StatusCode::OK, &cluster_json(call, cluster));
    if issuer_in_profile(cluster).is_some_and(|it| !call.azure().is_restart_pending(&id, it)) {
        call.azure_mut().resources.end_held_operations(&id, now);
    }
    Ok(reply)
}

/// Finds a managed cluster by its resource id.
pub(super) fn find_cluster<'c>(
    call: &'c OperationContext<'_>,
    id: &str,
) -> Result<&'c ArmResource, ServiceReply> {
    let id = id.parse::<AccessScope>().ok();
    let resource = id.and_then(|id| call.azure().resources.resource(&id));
    resource.filter(|it| it.kind.eq_ignore_ascii_case(MANAGED_CLUSTER_TYPE)).ok_or_else(|| {
        let message =
            "No managed cluster has this id; `GET /lanyard/v1/managed-clusters` lists them.";
        control_error(StatusCode::NOT_FOUND, "ClusterNotFound", message)
    })
}

fn cluster_json(call: &OperationContext<'_>, cluster: &ArmResource) -> Value {
    let azure = call.azure();
    let (id, issuer) = (&cluster.id, issuer_in_profile(cluster));
    let server = azure.cluster_settings(id).and_then(|settings| settings.api_server.as_ref());
    json!({
        "clusterId": id.as_str(),
        "issuer": issuer,
        "hasApiServer": server.is_some(),
        "reportedIssuer": server.and_then(|server| server.issuer.as_ref()),
        "restartPending": issuer.is_some_and(|issuer| azure.is_restart_pending(id, issuer)),
    })
}

#[cfg(test)]
mod tests;
