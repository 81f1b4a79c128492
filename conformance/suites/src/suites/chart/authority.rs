//! The CA and the namespaces of the chart of the local Azure.

use std::collections::BTreeSet;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::{Stage, chain, trial};
use crate::helm::{Chart, Helm};

/// The namespace of the control plane of the program's example.
const CONTROL_PLANE: &str = "clusters-harbour";
/// The name of the Secret and of every `ConfigMap` with the CA.
const NAME: &str = "conformance-azure-lanyard-azure-ca";

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    vec![
        trial("chart::a_generated_ca_stays_the_same_on_upgrades", stage, |stage| {
            stage.keeps_the_ca()
        }),
        trial("chart::a_control_plane_namespace_that_exists_gets_the_ca_only", stage, |it| {
            it.leaves_the_namespace()
        }),
    ]
}

/// The namespaces of rendered objects beside that of the release.
pub(super) fn namespaces(chart: Chart, rendered: &str) -> BTreeSet<String> {
    if chart != Chart::Azure {
        return BTreeSet::new();
    }
    let named = rendered.lines().filter_map(|line| line.strip_prefix("  namespace: "));
    let names = named.map(|name| name.trim_matches('"').to_owned());
    names.filter(|name| name != Helm::NAMESPACE).collect()
}

impl Stage {
    fn keeps_the_ca(&self) -> Result<(), Failed> {
        let generated = self.site.directory().join("azure.json");
        let values = json!({ "image": { "repository": "registry.example/lanyard-azure" } });
        std::fs::write(&generated, values.to_string()).map_err(chain)?;
        self.azure.install(&generated, &[]).map_err(chain)?;
        let before = self.certificate(Helm::NAMESPACE)?;
        if before != self.certificate(CONTROL_PLANE)? {
            return Err("the namespaces have different certificates".into());
        }
        let secret = self.site.kubectl.read(&["secret", NAME, "--namespace", Helm::NAMESPACE]);
        let secret = secret.map_err(chain)?;
        for field in ["tls.crt", "tls.key"] {
            if secret["data"][field].as_str().is_none_or(str::is_empty) {
                return Err(format!("the Secret lacks {field}").into());
            }
        }
        let more = ["--set", "podLabels.upgraded=yes"];
        self.azure.upgrade(&generated, &more).map_err(chain)?;
        if before != self.certificate(CONTROL_PLANE)? {
            return Err("the upgrade generated another CA".into());
        }
        self.azure.uninstall().map_err(chain)?;
        let namespace = self.site.kubectl.read(&["namespace", CONTROL_PLANE]).map_err(chain)?;
        // The operator applies this label with a value of its own.
        if !namespace["metadata"]["labels"]["app.kubernetes.io/managed-by"].is_null() {
            return Err(format!("Helm holds a label of the operator: {namespace}").into());
        }
        self.site.kubectl.delete(&["namespace", CONTROL_PLANE]).map_err(chain)
    }

    fn leaves_the_namespace(&self) -> Result<(), Failed> {
        let kubectl = &self.site.kubectl;
        kubectl.run(&["create", "namespace", CONTROL_PLANE]).map_err(chain)?;
        let before = self.version("namespace", CONTROL_PLANE)?;
        let values = self.golden(Chart::Azure).join("defaults.values.yaml");
        self.azure.install(&values, &[]).map_err(chain)?;
        self.certificate(CONTROL_PLANE)?;
        self.azure.uninstall().map_err(chain)?;
        self.unchanged("namespace", CONTROL_PLANE, &before)?;
        kubectl.delete(&["namespace", CONTROL_PLANE]).map_err(chain)
    }

    /// The certificate that a namespace has.
    fn certificate(&self, namespace: &str) -> Result<String, Failed> {
        let read = self.site.kubectl.read(&["configmap", NAME, "--namespace", namespace]);
        match &read.map_err(chain)?["data"]["ca.crt"] {
            Value::String(pem) if pem.starts_with("-----BEGIN CERTIFICATE-----") => Ok(pem.clone()),
            other => Err(format!("{namespace} has no certificate: {other}").into()),
        }
    }
}
