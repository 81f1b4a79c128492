//! A namespace of its own for each trial, and the administrator's client in it.

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::{Api, Client};
use lanyard_cluster::SharedControlPlane;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::OperatorSuiteFixture;
use crate::api_server::{DynamicKind, create_trial_namespace};

/// A namespace of a trial.
pub(crate) struct OperatorTrialFixture {
    pub(crate) plane: SharedControlPlane,
    pub(crate) namespace: String,
    /// The administrator.
    pub(crate) client: Client,
    /// A complete HostedCluster.
    pub(crate) example: Arc<Value>,
}

impl OperatorTrialFixture {
    pub(super) async fn create(stage: &OperatorSuiteFixture) -> Result<Self, Failed> {
        let client = stage.client.clone();
        let namespace = create_trial_namespace(&client).await?;
        let (plane, example) = (Arc::clone(&stage.plane), Arc::clone(&stage.example));
        Ok(Self { plane, namespace, client, example })
    }

    /// The objects of a kind of ours in the namespace of the trial.
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
