//! Trials of the CA and the namespaces of the local Azure's chart.

use std::collections::BTreeSet;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::{ChartSuiteFixture, failed_with_causes, trial};
use crate::helm::{Helm, LanyardChart};

/// The control plane namespace of the chart's default HostedCluster.
const CONTROL_PLANE_NAMESPACE: &str = "clusters-harbour";
/// The name of the Secret and of every `ConfigMap` with the CA.
const CA_OBJECT_NAME: &str = "conformance-azure-lanyard-azure-ca";

pub(super) fn trials(fixture: &Arc<ChartSuiteFixture>) -> Vec<Trial> {
    vec![
        trial("chart::upgrade_keeps_the_generated_ca", fixture, |fixture| {
            fixture.upgrade_keeps_generated_ca()
        }),
        trial("chart::existing_control_plane_namespace_gets_only_the_ca", fixture, |it| {
            it.existing_namespace_gets_only_ca()
        }),
    ]
}

/// The namespaces of rendered objects, except that of the release.
pub(super) fn rendered_namespaces(chart: LanyardChart, rendered: &str) -> BTreeSet<String> {
    if chart != LanyardChart::Azure {
        return BTreeSet::new();
    }
    let named = rendered.lines().filter_map(|line| line.strip_prefix("  namespace: "));
    let names = named.map(|name| name.trim_matches('"').to_owned());
    names.filter(|name| name != Helm::NAMESPACE).collect()
}

impl ChartSuiteFixture {
    fn upgrade_keeps_generated_ca(&self) -> Result<(), Failed> {
        let generated = self.suite_cluster.directory().join("azure.json");
        let values = json!({ "image": { "repository": "registry.example/lanyard-azure" } });
        std::fs::write(&generated, values.to_string()).map_err(failed_with_causes)?;
        self.azure_helm.install(&generated, &[]).map_err(failed_with_causes)?;
        let before = self.read_ca_certificate(Helm::NAMESPACE)?;
        if before != self.read_ca_certificate(CONTROL_PLANE_NAMESPACE)? {
            return Err("the namespaces have different certificates".into());
        }
        let secret = self.suite_cluster.kubectl.get_json(&[
            "secret",
            CA_OBJECT_NAME,
            "--namespace",
            Helm::NAMESPACE,
        ]);
        let secret = secret.map_err(failed_with_causes)?;
        for field in ["tls.crt", "tls.key"] {
            if secret["data"][field].as_str().is_none_or(str::is_empty) {
                return Err(format!("the Secret lacks {field}").into());
            }
        }
        let more = ["--set", "podLabels.upgraded=yes"];
        self.azure_helm.upgrade(&generated, &more).map_err(failed_with_causes)?;
        if before != self.read_ca_certificate(CONTROL_PLANE_NAMESPACE)? {
            return Err("the upgrade generated another CA".into());
        }
        self.azure_helm.uninstall().map_err(failed_with_causes)?;
        let namespace = self
            .suite_cluster
            .kubectl
            .get_json(&["namespace", CONTROL_PLANE_NAMESPACE])
            .map_err(failed_with_causes)?;
        // The operator applies this label with its own value.
        if !namespace["metadata"]["labels"]["app.kubernetes.io/managed-by"].is_null() {
            return Err(format!("Helm holds a label of the operator: {namespace}").into());
        }
        self.suite_cluster
            .kubectl
            .delete(&["namespace", CONTROL_PLANE_NAMESPACE])
            .map_err(failed_with_causes)
    }

    fn existing_namespace_gets_only_ca(&self) -> Result<(), Failed> {
        let kubectl = &self.suite_cluster.kubectl;
        kubectl
            .run(&["create", "namespace", CONTROL_PLANE_NAMESPACE])
            .map_err(failed_with_causes)?;
        let before = self.resource_version("namespace", CONTROL_PLANE_NAMESPACE)?;
        let values = self.golden_directory(LanyardChart::Azure).join("defaults.values.yaml");
        self.azure_helm.install(&values, &[]).map_err(failed_with_causes)?;
        self.read_ca_certificate(CONTROL_PLANE_NAMESPACE)?;
        self.azure_helm.uninstall().map_err(failed_with_causes)?;
        self.expect_unchanged("namespace", CONTROL_PLANE_NAMESPACE, &before)?;
        kubectl.delete(&["namespace", CONTROL_PLANE_NAMESPACE]).map_err(failed_with_causes)
    }

    /// The CA certificate in a namespace.
    fn read_ca_certificate(&self, namespace: &str) -> Result<String, Failed> {
        let read = self.suite_cluster.kubectl.get_json(&[
            "configmap",
            CA_OBJECT_NAME,
            "--namespace",
            namespace,
        ]);
        match &read.map_err(failed_with_causes)?["data"]["ca.crt"] {
            Value::String(pem) if pem.starts_with("-----BEGIN CERTIFICATE-----") => Ok(pem.clone()),
            other => Err(format!("{namespace} has no certificate: {other}").into()),
        }
    }
}
