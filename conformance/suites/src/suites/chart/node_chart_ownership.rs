//! Trials of the node chart with objects of another owner. The chart names the owner and leaves the objects
//! unchanged.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::{ChartSuiteFixture, failed_with_causes, trial};
use crate::helm::{HelmError, LanyardChart};

const DRIVER: &str = "secrets-store.csi.k8s.io";
const CLASS_DEFINITION: &str = "secretproviderclasses.secrets-store.csi.x-k8s.io";

/// Metadata by which owners mark objects, and how the error must name the owner.
const FOREIGN_OWNERS: [(&str, &str, &str); 4] = [
    (
        "the_addon_manager",
        r#"{"labels": {"addonmanager.kubernetes.io/mode": "Reconcile"}}"#,
        "the add-on manager of the platform",
    ),
    (
        "another_helm_release",
        r#"{"annotations": {"meta.helm.sh/release-name": "csi", "meta.helm.sh/release-namespace": "kube-system"},
            "labels": {"app.kubernetes.io/managed-by": "Helm"}}"#,
        "the Helm release kube-system/csi",
    ),
    (
        "an_operator",
        r#"{"labels": {"app.kubernetes.io/managed-by": "secrets-store-operator"}}"#,
        "secrets-store-operator",
    ),
    ("a_kubectl_user", "{}", "the field manager kubectl-client-side-apply"),
];

pub(super) fn trials(fixture: &Arc<ChartSuiteFixture>) -> Vec<Trial> {
    let mut trials: Vec<Trial> = FOREIGN_OWNERS
        .into_iter()
        .map(|(name, metadata, owner)| {
            let name = format!("chart::install_refuses_a_driver_owned_by_{name}");
            trial(&name, fixture, move |fixture| {
                fixture.install_refuses_foreign_driver(metadata, owner)
            })
        })
        .collect();
    trials.extend([
        trial("chart::install_refuses_crds_of_another_manager", fixture, |fixture| {
            fixture.install_refuses_foreign_crds()
        }),
        trial("chart::install_can_keep_a_foreign_csi_driver_object", fixture, |fixture| {
            fixture.install_leaves_foreign_driver()
        }),
        trial("chart::install_coexists_with_another_driver", fixture, |fixture| {
            fixture.install_beside_foreign_driver()
        }),
        trial("chart::upgrade_changes_release_objects_and_keeps_crds", fixture, |fixture| {
            fixture.upgrade_leaves_crds()
        }),
    ]);
    trials
}

fn csi_driver_manifest(metadata: &str) -> Result<Value, Failed> {
    let mut metadata: Value = serde_json::from_str(metadata).map_err(failed_with_causes)?;
    metadata["name"] = json!(DRIVER);
    Ok(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": metadata,
        "spec": {
            "attachRequired": false,
            "podInfoOnMount": true,
            "volumeLifecycleModes": ["Ephemeral"],
        },
    }))
}

/// Expects that Helm failed with an error that contains all parts.
pub(super) fn expect_helm_refusal(
    installed: Result<(), HelmError>,
    parts: &[&str],
) -> Result<(), Failed> {
    let error = match installed {
        Ok(()) => return Err("Helm installed the chart".into()),
        Err(error) => error.to_string(),
    };
    match parts.iter().find(|part| !error.contains(**part)) {
        None => Ok(()),
        Some(part) => Err(format!("the error does not say `{part}`: {error}").into()),
    }
}

impl ChartSuiteFixture {
    fn install_refuses_foreign_driver(&self, metadata: &str, owner: &str) -> Result<(), Failed> {
        self.remove_installed_objects()?;
        self.suite_cluster
            .kubectl
            .apply(&csi_driver_manifest(metadata)?)
            .map_err(failed_with_causes)?;
        let before = self.resource_version("csidriver", DRIVER)?;
        expect_helm_refusal(
            self.node_helm.install(&self.node_values_file(), &[]),
            &[DRIVER, owner],
        )?;
        self.expect_unchanged("csidriver", DRIVER, &before)
    }

    fn install_refuses_foreign_crds(&self) -> Result<(), Failed> {
        self.remove_installed_objects()?;
        self.suite_cluster
            .kubectl
            .run(&["apply", "--filename", &self.node_helm.crd_directory()])
            .map_err(failed_with_causes)?;
        let before = self.resource_version("crd", CLASS_DEFINITION)?;
        let ways = [
            "secretproviderclasses",
            "linux.crds.enabled=false",
            "meta.helm.sh/release-name=conformance",
        ];
        let values = self.node_values_file();
        expect_helm_refusal(self.node_helm.install(&values, &[]), &ways)?;
        self.node_helm
            .install(&values, &["--set", "linux.crds.enabled=false"])
            .map_err(failed_with_causes)?;
        self.expect_unchanged("crd", CLASS_DEFINITION, &before)
    }

    fn install_leaves_foreign_driver(&self) -> Result<(), Failed> {
        self.remove_installed_objects()?;
        self.suite_cluster
            .kubectl
            .apply(&csi_driver_manifest("{}")?)
            .map_err(failed_with_causes)?;
        let before = self.resource_version("csidriver", DRIVER)?;
        self.node_helm
            .install(&self.node_values_file(), &["--set", "csiDriver.enabled=false"])
            .map_err(failed_with_causes)?;
        self.expect_unchanged("csidriver", DRIVER, &before)
    }

    fn install_beside_foreign_driver(&self) -> Result<(), Failed> {
        self.remove_installed_objects()?;
        self.suite_cluster
            .kubectl
            .apply(&csi_driver_manifest("{}")?)
            .map_err(failed_with_causes)?;
        self.suite_cluster
            .kubectl
            .run(&["apply", "--filename", &self.node_helm.crd_directory()])
            .map_err(failed_with_causes)?;
        let (driver, crd) = (
            self.resource_version("csidriver", DRIVER)?,
            self.resource_version("crd", CLASS_DEFINITION)?,
        );
        let name = "driverName=node.lanyard.dev";
        self.node_helm
            .install(&self.node_values_file(), &["--set", name])
            .map_err(failed_with_causes)?;
        self.resource_version("csidriver", "node.lanyard.dev")?;
        self.expect_unchanged("csidriver", DRIVER, &driver)?;
        self.expect_unchanged("crd", CLASS_DEFINITION, &crd)
    }

    fn upgrade_leaves_crds(&self) -> Result<(), Failed> {
        self.remove_installed_objects()?;
        self.node_helm.install(&self.node_values_file(), &[]).map_err(failed_with_causes)?;
        self.node_helm
            .upgrade(&self.node_values_file(), &["--set", "enableSecretRotation=false"])
            .map_err(failed_with_causes)?;
        let driver = self
            .suite_cluster
            .kubectl
            .get_json(&["csidriver", DRIVER])
            .map_err(failed_with_causes)?;
        if driver["spec"]["requiresRepublish"] != json!(false) {
            return Err(format!("the upgrade did not arrive: {}", driver["spec"]).into());
        }
        self.node_helm.uninstall().map_err(failed_with_causes)?;
        if self.suite_cluster.kubectl.get_json(&["csidriver", DRIVER]).is_ok() {
            return Err("the CSIDriver object was left behind".into());
        }
        self.resource_version("crd", CLASS_DEFINITION).map(drop)
    }

    /// Removes the objects of earlier trials.
    fn remove_installed_objects(&self) -> Result<(), Failed> {
        self.node_helm.uninstall().map_err(failed_with_causes)?;
        let kubectl = &self.suite_cluster.kubectl;
        kubectl.delete(&["csidriver", "--all"]).map_err(failed_with_causes)?;
        kubectl.delete(&["--filename", &self.node_helm.crd_directory()]).map_err(failed_with_causes)
    }

    fn node_values_file(&self) -> std::path::PathBuf {
        self.golden_directory(LanyardChart::Node).join("defaults.values.yaml")
    }

    pub(super) fn resource_version(&self, kind: &str, name: &str) -> Result<Value, Failed> {
        let object =
            self.suite_cluster.kubectl.get_json(&[kind, name]).map_err(failed_with_causes)?;
        Ok(object["metadata"]["resourceVersion"].clone())
    }

    pub(super) fn expect_unchanged(
        &self,
        kind: &str,
        name: &str,
        before: &Value,
    ) -> Result<(), Failed> {
        if self.resource_version(kind, name)? == *before {
            return Ok(());
        }
        Err(format!("{kind} {name} was changed").into())
    }
}
