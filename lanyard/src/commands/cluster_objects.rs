//! The Kubernetes objects of a hosted cluster, for the commands that create and remove them.

use std::fmt;

use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use lanyard_api::HostedCluster;
use lanyard_clock::SharedClock;
use lanyard_desired::{HostedClusterValidationError, validate, validate_schema};
use lanyard_infra::ClusterName;
use lanyard_infra::manifests::KubernetesName;
use lanyard_kubernetes::{ApiError, ApiRetryPolicy, KubernetesApi};
use lanyard_vocabulary::InfraId;
use serde_json::Value;

use super::kubectl::ApiServerArgs;
use super::problem_text::{problem_line, problem_lines};
use crate::exit::{CommandError, ExternalResult as _};
use crate::output;
use crate::settings::ProcessEnvironment;

/// The group of HyperShift's kinds.
const HYPERSHIFT_GROUP: &str = "hypershift.openshift.io";
const HYPERSHIFT_VERSION: &str = "v1beta1";

/// The objects of one hosted cluster on an API server.
pub(in crate::commands) struct ClusterObjects {
    api: KubernetesApi,
    /// The context of the kubeconfig, for errors; `None` in a pod without a kubeconfig.
    context: Option<String>,
    namespace: String,
    name: String,
}

impl ClusterObjects {
    /// Connects to the API server. Sends no request.
    pub(in crate::commands) async fn connect(
        server: &ApiServerArgs,
        environment: &ProcessEnvironment,
        name: &ClusterName,
        namespace: &KubernetesName,
    ) -> Result<Self, CommandError> {
        let (api, context) = server.connect(environment).await?;
        let (namespace, name) = (namespace.to_string(), name.to_string());
        Ok(Self { api, context: context.name, namespace, name })
    }

    pub(in crate::commands) fn name(&self) -> &str {
        &self.name
    }

    pub(in crate::commands) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(in crate::commands) const fn clock(&self) -> &SharedClock {
        self.api.clock()
    }

    fn client(&self) -> Client {
        self.api.client().clone()
    }

    /// The API of a kind in a namespace.
    pub(in crate::commands) fn objects_in(
        &self,
        namespace: &str,
        (group, version, kind, plural): (&str, &str, &str, &str),
    ) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::namespaced_with(self.client(), namespace, &resource)
    }

    /// The namespaces of the API server.
    pub(in crate::commands) fn namespaces(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("", "v1", "Namespace");
        Api::all_with(self.client(), &ApiResource::from_gvk_with_plural(&kind, "namespaces"))
    }

    /// The Secrets in the cluster's namespace.
    pub(in crate::commands) fn secrets(&self) -> Api<DynamicObject> {
        self.objects_in(&self.namespace, ("", "v1", "Secret", "secrets"))
    }

    /// The HostedClusters in the cluster's namespace.
    pub(in crate::commands) fn hosted_clusters(&self) -> Api<DynamicObject> {
        let kind = (HYPERSHIFT_GROUP, HYPERSHIFT_VERSION, HostedCluster::KIND, "hostedclusters");
        self.objects_in(&self.namespace, kind)
    }

    /// The NodePools in the cluster's namespace.
    pub(in crate::commands) fn node_pools(&self) -> Api<DynamicObject> {
        let kind = (HYPERSHIFT_GROUP, HYPERSHIFT_VERSION, "NodePool", "nodepools");
        self.objects_in(&self.namespace, kind)
    }

    /// Makes a call to the API server.
    pub(in crate::commands) async fn call<T, F, Fut>(
        &self,
        action: impl fmt::Display,
        make: F,
    ) -> Result<T, ApiError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, kube::Error>>,
    {
        self.api.call(ApiRetryPolicy::STANDARD, action, make).await
    }

    /// Reads an object; `None` if it does not exist.
    pub(in crate::commands) async fn fetch(
        &self,
        api: &Api<DynamicObject>,
        kind: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, CommandError> {
        let action = format!("read {kind} {name}");
        let read = || api.get(name);
        let found = self.api.call_optional(ApiRetryPolicy::STANDARD, action, read).await;
        found.map_err(|error| api_error(&error))
    }

    /// Checks that the API server serves HostedCluster and NodePool, and that the cluster is not being deleted.
    pub(in crate::commands) async fn check_kinds(&self) -> Result<(), CommandError> {
        let one = ListParams::default().limit(1);
        for (kind, api) in
            [(HostedCluster::KIND, self.hosted_clusters()), ("NodePool", self.node_pools())]
        {
            let listed = self.call(format!("list {kind}"), || api.list(&one)).await;
            listed.map_err(|error| match error {
                ApiError::NotServed { .. } => self.not_served_error(kind, &error).with_hint(
                    "install HyperShift's operator on the management cluster, or give another --context",
                ),
                error => api_error(&error),
            })?;
        }
        let existing = self.find_hosted_cluster().await?;
        if existing.is_some_and(|it| it.metadata.deletion_timestamp.is_some()) {
            return Err(CommandError::unavailable(format!(
                "HostedCluster {}/{} is being deleted",
                self.namespace, self.name
            ))
            .with_hint("wait until it is gone, or finish with `lanyard destroy cluster azure`"));
        }
        Ok(())
    }

    /// The error of an API server that does not serve a kind.
    pub(in crate::commands) fn not_served_error(
        &self,
        kind: &str,
        error: &ApiError,
    ) -> CommandError {
        let server = match &self.context {
            Some(context) => format!("the API server of the context `{context}`"),
            None => "the API server".to_owned(),
        };
        CommandError::unavailable(format!("{server} does not serve the kind {kind}"))
            .with_cause(error)
    }

    /// Reads the HostedCluster; `None` if it does not exist.
    pub(in crate::commands) async fn read_hosted_cluster(
        &self,
    ) -> Result<Option<DynamicObject>, ApiError> {
        let api = self.hosted_clusters();
        let read = || api.get(&self.name);
        let action = format!("read {} {}/{}", HostedCluster::KIND, self.namespace, self.name);
        self.api.call_optional(ApiRetryPolicy::STANDARD, action, read).await
    }

    /// As [`Self::read_hosted_cluster`], with an error for the user.
    pub(in crate::commands) async fn find_hosted_cluster(
        &self,
    ) -> Result<Option<DynamicObject>, CommandError> {
        self.read_hosted_cluster().await.map_err(|error| api_error(&error))
    }

    /// Deletes an object. An object that does not exist is no error.
    pub(in crate::commands) async fn delete(
        &self,
        api: &Api<DynamicObject>,
        kind: &str,
        name: &str,
    ) -> Result<(), CommandError> {
        let parameters = DeleteParams::default();
        let write = || api.delete(name, &parameters);
        let action = format!("delete {kind} {name}");
        let deleted = self.api.call_optional(ApiRetryPolicy::STANDARD, action, write).await;
        deleted.map(drop).map_err(|error| api_error(&error))
    }

    /// The infrastructure id of the existing HostedCluster.
    pub(in crate::commands) async fn recorded_infra_id(
        &self,
    ) -> Result<Option<InfraId>, CommandError> {
        Ok(self.find_hosted_cluster().await?.as_ref().and_then(infra_id_of))
    }
}

/// `spec.infraID` of a HostedCluster.
pub(in crate::commands) fn infra_id_of(cluster: &DynamicObject) -> Option<InfraId> {
    cluster.data.pointer("/spec/infraID")?.as_str()?.parse().ok()
}

/// Converts an error of the API server into an error for the user.
pub(in crate::commands) fn api_error(error: &ApiError) -> CommandError {
    let failure = CommandError::unavailable(error.to_string());
    match error {
        ApiError::Refused { status: 401, .. } => {
            failure.with_hint("sign in to the cluster of the kubeconfig")
        }
        ApiError::Refused { status: 403, .. } => {
            failure.with_hint("ask an administrator of the cluster for the permission")
        }
        error => failure.with_hint_of(error),
    }
}

/// Checks a HostedCluster against the rules of its API, and prints lints.
pub(in crate::commands) fn validate_hosted_cluster(cluster: &Value) -> Result<(), CommandError> {
    let wire: HostedCluster = serde_json::from_value(cluster.clone())
        .or_invalid("the flags do not result in a HostedCluster")?;
    let problems = validate_schema(&wire);
    let problems = match validate(&wire) {
        _ if problems.has_errors() => problems,
        Err(HostedClusterValidationError::Invalid(problems)) => problems,
        Ok(validated) if validated.object_errors.has_errors() => validated.object_errors,
        Ok(validated) => {
            for lint in &validated.lints {
                output::print_stderr(&problem_line(lint));
            }
            return Ok(());
        }
        // Self-managed clusters have only the rules of the schema.
        Err(_) => return Ok(()),
    };
    Err(CommandError::invalid_input(format!(
        "the flags result in an invalid HostedCluster\n\n{}",
        problem_lines(&problems)
    ))
    .with_hint("correct the flags of the fields above"))
}
