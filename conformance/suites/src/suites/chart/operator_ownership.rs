//! What another manager owns is named by the chart of the operator, and left as it is.
//!
//! The cases are the life of the definitions, in this order: an API server takes its time to delete one.

use std::path::PathBuf;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::ownership::refuses;
use super::{Stage, chain, trial};
use crate::helm::{Chart, Helm};

const HYPERSHIFTS: [&str; 2] =
    ["hostedclusters.hypershift.openshift.io", "hostedcontrolplanes.hypershift.openshift.io"];
const IDENTITIES: &str = "hostedclusteridentities.lanyard.dev";
/// The role of all canaries.
const CANARY: &str = "lanyard-canary";

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    vec![
        trial("chart::the_operators_release_leaves_the_definitions_when_it_goes", stage, |stage| {
            stage.keeps_definitions()
        }),
        trial("chart::hypershifts_definitions_are_named_and_left_as_they_are", stage, |stage| {
            stage.refuses_definitions()
        }),
        trial("chart::beside_hypershift_its_definitions_are_not_touched", stage, |stage| {
            stage.leaves_definitions()
        }),
        trial("chart::a_second_operator_of_a_cluster_is_told_of_the_first", stage, |stage| {
            stage.refuses_a_second()
        }),
    ]
}

impl Stage {
    fn keeps_definitions(&self) -> Result<(), Failed> {
        let values = self.operator_values();
        self.operator.install(&values, &[]).map_err(chain)?;
        self.operator.upgrade(&values, &["--set", "workers=7"]).map_err(chain)?;
        self.operator.uninstall().map_err(chain)?;
        for name in HYPERSHIFTS.into_iter().chain([IDENTITIES]) {
            self.version("crd", name)?;
        }
        Ok(())
    }

    fn refuses_definitions(&self) -> Result<(), Failed> {
        let before = self.give_to_hypershift()?;
        let values = self.operator_values();
        let ways = [
            "belongs to the Helm release hypershift/hypershift",
            "crds.hypershift=false",
            "meta.helm.sh/release-name=conformance-operator",
        ];
        refuses(self.operator.install(&values, &[]), &ways)?;
        self.operator.install(&values, &["--set", "crds.hypershift=false"]).map_err(chain)?;
        self.operator.uninstall().map_err(chain)?;
        self.are_unchanged(&before)
    }

    fn leaves_definitions(&self) -> Result<(), Failed> {
        let before = self.give_to_hypershift()?;
        let beside = ["--set", "role=identity-only"];
        self.operator.install(&self.operator_values(), &beside).map_err(chain)?;
        self.operator.uninstall().map_err(chain)?;
        self.are_unchanged(&before)
    }

    fn refuses_a_second(&self) -> Result<(), Failed> {
        let kubectl = &self.site.kubectl;
        kubectl
            .run(&["create", "clusterrole", CANARY, "--verb=get", "--resource=pods"])
            .map_err(chain)?;
        self.give("clusterrole", CANARY, "first", "operators")?;
        let before = self.version("clusterrole", CANARY)?;
        let values = self.operator_values();
        let beside = "crds.hypershift=false,crds.identities=false";
        let ways = [
            "the ClusterRole lanyard-canary belongs to the Helm release operators/first",
            "One release with role=all",
            "rbac.install=false",
        ];
        refuses(self.operator.install(&values, &["--set", beside]), &ways)?;
        let without_rights = format!("{beside},rbac.install=false");
        self.operator.install(&values, &["--set", &without_rights]).map_err(chain)?;
        self.operator.uninstall().map_err(chain)?;
        self.unchanged("clusterrole", CANARY, &before)?;
        kubectl.delete(&["clusterrole", CANARY]).map_err(chain)?;
        // It is the only one now, and stays what it is when it is upgraded.
        self.operator.install(&values, &["--set", beside]).map_err(chain)?;
        self.operator
            .upgrade(&values, &["--set", &format!("{beside},workers=7")])
            .map_err(chain)?;
        self.operator.uninstall().map_err(chain)
    }

    /// Makes the definitions of HyperShift those of its own release, and returns their versions.
    fn give_to_hypershift(&self) -> Result<Vec<Value>, Failed> {
        self.site.kubectl.run(&["apply", "--filename", &self.operator.crds()]).map_err(chain)?;
        // Ours is handed over to our release.
        self.give("crd", IDENTITIES, "conformance-operator", Helm::NAMESPACE)?;
        let given = |name| {
            self.give("crd", name, "hypershift", "hypershift")?;
            self.version("crd", name)
        };
        HYPERSHIFTS.into_iter().map(given).collect()
    }

    /// Makes an object that of a release, by the marks that Helm goes by.
    fn give(&self, kind: &str, name: &str, release: &str, namespace: &str) -> Result<(), Failed> {
        let release = format!("meta.helm.sh/release-name={release}");
        let namespace = format!("meta.helm.sh/release-namespace={namespace}");
        let kubectl = &self.site.kubectl;
        kubectl
            .run(&["annotate", "--overwrite", kind, name, &release, &namespace])
            .map_err(chain)?;
        let label = "app.kubernetes.io/managed-by=Helm";
        kubectl.run(&["label", "--overwrite", kind, name, label]).map_err(chain)?;
        Ok(())
    }

    fn are_unchanged(&self, before: &[Value]) -> Result<(), Failed> {
        HYPERSHIFTS
            .into_iter()
            .zip(before)
            .try_for_each(|(name, before)| self.unchanged("crd", name, before))
    }

    fn operator_values(&self) -> PathBuf {
        self.golden(Chart::Operator).join("defaults.values.yaml")
    }
}
