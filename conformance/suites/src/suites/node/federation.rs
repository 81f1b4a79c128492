//! What makes the local Azure take the ServiceAccount tokens of the cluster.

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{NAMESPACE, Stage, chain};
use crate::ground::Holder;

/// The ServiceAccount that stands for the guests' workload identity.
pub(super) const ACCOUNT: &str = "workload";

/// What was arranged.
#[derive(Debug)]
pub(super) struct Federation {
    /// The server name of the token proxy of this cluster.
    pub(super) server_name: String,
}

impl Federation {
    /// Shows the cluster's issuer to the local Azure, lets one ServiceAccount stand for an
    /// identity at Entra, and at the cluster's token proxy.
    pub(super) async fn establish(stage: &Stage) -> Result<Self, Failed> {
        let cluster = &stage.site.cluster;
        let issuer = cluster.plan().service_account_issuer.as_str();
        let keys = cluster.fetch_service_account_keys().await.map_err(chain)?;
        let azure = &stage.azure.control();
        let trusted = json!({ "issuer": issuer, "jwks": keys });
        azure.replace::<Value>("issuers", &trusted).await.map_err(chain)?;
        let client = stage.azure.inputs(Holder::Federated).client;
        let subject = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let mut known = json!({ "clientId": client, "issuer": issuer, "subject": subject });
        azure.write::<Value>("federated-credentials", &known).await.map_err(chain)?;
        known["clusterId"] = json!("conformance");
        let binding: Value = azure.write("identity-bindings", &known).await.map_err(chain)?;
        let server_name = binding["serverName"].as_str().ok_or("the binding has no server name")?;
        Ok(Self { server_name: server_name.to_owned() })
    }
}
