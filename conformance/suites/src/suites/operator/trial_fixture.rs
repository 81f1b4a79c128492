//! The fixture of a trial: a namespace and the administrator's client.

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::{Api, Client};
use lanyard_cluster::SharedControlPlane;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::OperatorSuiteFixture;
use crate::api_server::{DynamicKind, create_trial_namespace};

/// The fixture of one trial.
pub(crate) struct OperatorTrialFixture {
    pub(crate) plane: SharedControlPlane,
    pub(crate) namespace: String,
    /// The client of the administrator.
    pub(crate) client: Client,
    /// A complete HostedCluster.
    pub(crate) example: Arc<Value>,
}

impl OperatorTrialFixture {
    pub(super) async fn create(suite: &OperatorSuiteFixture) -> Result<Self, Failed> {
        let client = suite.client.clone();
        let namespace = create_trial_namespace(&client).await?;
        let (plane, example) = (Arc::clone(&suite.plane), Arc::clone(&suite.example));
        Ok(Self { plane, namespace, client, example })
    }

    /// The API of a kind in the namespace of the trial.
    pub(crate) fn dynamic_api(&self, kind: &DynamicKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, kind.api_resource())
    }

    /// The example in the namespace of the trial.
    pub(crate) fn hosted_cluster(&self) -> Value {
        let mut cluster = (*self.example).clone();
        cluster["metadata"]["namespace"] = json!(self.namespace);
        cluster
    }
}
