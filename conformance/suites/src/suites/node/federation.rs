//! Setup with which the local Azure accepts ServiceAccount tokens of the cluster.

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{NAMESPACE, NodeSuiteFixture, failed_with_causes};
use crate::sign_in_method::SignInMethod;

/// The ServiceAccount that is federated with the test client's identity.
pub(super) const SERVICE_ACCOUNT: &str = "workload";

/// The result of the setup.
#[derive(Debug)]
pub(super) struct TokenFederation {
    /// The server name of this cluster's token proxy.
    pub(super) server_name: String,
}

impl TokenFederation {
    /// Registers the cluster's issuer with the local Azure, and a ServiceAccount as federated credential and
    /// identity binding of a test client.
    pub(super) async fn establish(fixture: &NodeSuiteFixture) -> Result<Self, Failed> {
        let cluster = &fixture.suite_cluster.cluster;
        let issuer = cluster.plan().service_account_issuer.as_str();
        let keys = cluster.fetch_service_account_keys().await.map_err(failed_with_causes)?;
        let azure = &fixture.azure.control_api();
        let trusted = json!({ "issuer": issuer, "jwks": keys });
        azure.put::<Value>("issuers", &trusted).await.map_err(failed_with_causes)?;
        let client = fixture.azure.inputs(SignInMethod::Federated).client;
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
