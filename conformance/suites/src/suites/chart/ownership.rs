//! Objects that another manager owns are named and left as they are.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::{Stage, chain, trial};
use crate::helm::{Chart, HelmError};

const DRIVER: &str = "secrets-store.csi.k8s.io";
const CLASSES: &str = "secretproviderclasses.secrets-store.csi.x-k8s.io";

/// Marks that managers leave on objects, and what a refusal must call them.
const OWNERS: [(&str, &str, &str); 4] = [
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
    ("somebody_with_kubectl", "{}", "the field manager kubectl-client-side-apply"),
];

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    let mut trials: Vec<Trial> = OWNERS
        .into_iter()
        .map(|(name, metadata, owner)| {
            let name = format!("chart::a_driver_of_{name}_is_named_and_left_as_it_is");
            trial(&name, stage, move |stage| stage.refuses_driver(metadata, owner))
        })
        .collect();
    trials.extend([
        trial("chart::crds_of_another_manager_are_named_and_left_as_they_are", stage, |stage| {
            stage.refuses_crds()
        }),
        trial("chart::a_driver_object_of_another_manager_can_be_left_to_it", stage, |stage| {
            stage.leaves_driver()
        }),
        trial("chart::it_runs_beside_a_driver_of_another_manager", stage, |stage| {
            stage.runs_beside()
        }),
        trial("chart::a_release_upgrades_what_it_installed_and_leaves_the_crds", stage, |stage| {
            stage.upgrades()
        }),
    ]);
    trials
}

fn driver(metadata: &str) -> Result<Value, Failed> {
    let mut metadata: Value = serde_json::from_str(metadata).map_err(chain)?;
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

/// Expects that Helm refused, and said all of this.
pub(super) fn refuses(installed: Result<(), HelmError>, parts: &[&str]) -> Result<(), Failed> {
    let refusal = match installed {
        Ok(()) => return Err("Helm installed it".into()),
        Err(error) => error.to_string(),
    };
    match parts.iter().find(|part| !refusal.contains(**part)) {
        None => Ok(()),
        Some(part) => Err(format!("the refusal does not say `{part}`: {refusal}").into()),
    }
}

impl Stage {
    fn refuses_driver(&self, metadata: &str, owner: &str) -> Result<(), Failed> {
        self.clear()?;
        self.site.kubectl.apply(&driver(metadata)?).map_err(chain)?;
        let before = self.version("csidriver", DRIVER)?;
        refuses(self.helm.install(&self.values(), &[]), &[DRIVER, owner])?;
        self.unchanged("csidriver", DRIVER, &before)
    }

    fn refuses_crds(&self) -> Result<(), Failed> {
        self.clear()?;
        self.site.kubectl.run(&["apply", "--filename", &self.helm.crds()]).map_err(chain)?;
        let before = self.version("crd", CLASSES)?;
        let ways = [
            "secretproviderclasses",
            "linux.crds.enabled=false",
            "meta.helm.sh/release-name=conformance",
        ];
        let values = self.values();
        refuses(self.helm.install(&values, &[]), &ways)?;
        self.helm.install(&values, &["--set", "linux.crds.enabled=false"]).map_err(chain)?;
        self.unchanged("crd", CLASSES, &before)
    }

    fn leaves_driver(&self) -> Result<(), Failed> {
        self.clear()?;
        self.site.kubectl.apply(&driver("{}")?).map_err(chain)?;
        let before = self.version("csidriver", DRIVER)?;
        self.helm.install(&self.values(), &["--set", "csiDriver.enabled=false"]).map_err(chain)?;
        self.unchanged("csidriver", DRIVER, &before)
    }

    fn runs_beside(&self) -> Result<(), Failed> {
        self.clear()?;
        self.site.kubectl.apply(&driver("{}")?).map_err(chain)?;
        self.site.kubectl.run(&["apply", "--filename", &self.helm.crds()]).map_err(chain)?;
        let (driver, crd) = (self.version("csidriver", DRIVER)?, self.version("crd", CLASSES)?);
        let name = "driverName=node.lanyard.dev";
        self.helm.install(&self.values(), &["--set", name]).map_err(chain)?;
        self.version("csidriver", "node.lanyard.dev")?;
        self.unchanged("csidriver", DRIVER, &driver)?;
        self.unchanged("crd", CLASSES, &crd)
    }

    fn upgrades(&self) -> Result<(), Failed> {
        self.clear()?;
        self.helm.install(&self.values(), &[]).map_err(chain)?;
        self.helm
            .upgrade(&self.values(), &["--set", "enableSecretRotation=false"])
            .map_err(chain)?;
        let driver = self.site.kubectl.read(&["csidriver", DRIVER]).map_err(chain)?;
        if driver["spec"]["requiresRepublish"] != json!(false) {
            return Err(format!("the upgrade did not arrive: {}", driver["spec"]).into());
        }
        self.helm.uninstall().map_err(chain)?;
        if self.site.kubectl.read(&["csidriver", DRIVER]).is_ok() {
            return Err("the CSIDriver object was left behind".into());
        }
        self.version("crd", CLASSES).map(drop)
    }

    /// Nothing of an earlier case is there.
    fn clear(&self) -> Result<(), Failed> {
        self.helm.uninstall().map_err(chain)?;
        let kubectl = &self.site.kubectl;
        kubectl.delete(&["csidriver", "--all"]).map_err(chain)?;
        kubectl.delete(&["--filename", &self.helm.crds()]).map_err(chain)
    }

    fn values(&self) -> std::path::PathBuf {
        self.golden(Chart::Node).join("defaults.values.yaml")
    }

    pub(super) fn version(&self, kind: &str, name: &str) -> Result<Value, Failed> {
        let object = self.site.kubectl.read(&[kind, name]).map_err(chain)?;
        Ok(object["metadata"]["resourceVersion"].clone())
    }

    pub(super) fn unchanged(&self, kind: &str, name: &str, before: &Value) -> Result<(), Failed> {
        if self.version(kind, name)? == *before {
            return Ok(());
        }
        Err(format!("{kind} {name} was written to").into())
    }
}
