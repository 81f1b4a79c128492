//! What makes the local Azure take the ServiceAccount tokens of the cluster.

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{NAMESPACE, NodeSuiteFixture, failed_with_causes};
use crate::azure_target::SignInMethod;

/// The ServiceAccount that stands for the guests' workload identity.
pub(super) const SERVICE_ACCOUNT: &str = "workload";

/// What was arranged.
#[derive(Debug)]
pub(super) struct TokenFederation {
    /// The server name of the token proxy of this cluster.
    pub(super) server_name: String,
}

impl TokenFederation {
    /// Shows the cluster's issuer to the local Azure, lets one ServiceAccount stand for an
    /// identity at Entra, and at the cluster's token proxy.
    pub(super) async fn establish(stage: &NodeSuiteFixture) -> Result<Self, Failed> {
        let cluster = &stage.suite_cluster.cluster;
        let issuer = cluster.plan().service_account_issuer.as_str();
        let keys = cluster.fetch_service_account_keys().await.map_err(failed_with_causes)?;
        let azure = &stage.azure.control_api();
        let trusted = json!({ "issuer": issuer, "jwks": keys });
        azure.put::<Value>("issuers", &trusted).await.map_err(failed_with_causes)?;
        let client = stage.azure.inputs(SignInMethod::Federated).client;
        let subject = format!("system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}");
        let mut known = json!({ "clientId": client, "issuer": issuer, "subject": subject });
        azure.post::<Value>("federated-credentials", &known).await.map_err(failed_with_causes)?;
        known["clusterId"] = json!("conformance");
        let binding: Value =
            azure.post("identity-bindings", &known).await.map_err(failed_with_causes)?;
        let server_name = binding["serverName"].as_str().ok_or("the binding has no server name")?;
        Ok(Self { server_name: server_name.to_owned() })
    }
}
