//! Definitions that another manager owns are named by the chart of the operator, and left as they are.
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

    /// Makes the definitions of HyperShift those of its own release, and returns their versions.
    fn give_to_hypershift(&self) -> Result<Vec<Value>, Failed> {
        self.site.kubectl.run(&["apply", "--filename", &self.operator.crds()]).map_err(chain)?;
        // Ours is handed over to our release.
        self.give(IDENTITIES, "conformance-operator", Helm::NAMESPACE)?;
        let given = |name| {
            self.give(name, "hypershift", "hypershift")?;
            self.version("crd", name)
        };
        HYPERSHIFTS.into_iter().map(given).collect()
    }

    /// Makes a definition that of a release, by the marks that Helm goes by.
    fn give(&self, name: &str, release: &str, namespace: &str) -> Result<(), Failed> {
        let release = format!("meta.helm.sh/release-name={release}");
        let namespace = format!("meta.helm.sh/release-namespace={namespace}");
        let kubectl = &self.site.kubectl;
        kubectl
            .run(&["annotate", "--overwrite", "crd", name, &release, &namespace])
            .map_err(chain)?;
        let label = "app.kubernetes.io/managed-by=Helm";
        kubectl.run(&["label", "--overwrite", "crd", name, label]).map_err(chain)?;
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
