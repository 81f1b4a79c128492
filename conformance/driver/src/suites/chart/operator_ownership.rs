//! Definitions that another manager owns are named by the chart of the operator, and left as they are.

use std::path::PathBuf;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use super::{Stage, chain, trial};
use crate::helm::Chart;

const CLUSTERS: &str = "hostedclusters.hypershift.openshift.io";
const IDENTITIES: &str = "hostedclusteridentities.lanyard.dev";

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    vec![
        trial("chart::hypershifts_definitions_are_named_and_left_as_they_are", stage, |stage| {
            stage.refuses_definitions()
        }),
        trial("chart::beside_hypershift_its_definitions_are_not_touched", stage, |stage| {
            stage.leaves_definitions()
        }),
        trial("chart::the_operators_release_leaves_the_definitions_when_it_goes", stage, |stage| {
            stage.keeps_definitions()
        }),
    ]
}

impl Stage {
    fn refuses_definitions(&self) -> Result<(), Failed> {
        self.clear_operator()?;
        self.site.kubectl.run(&["apply", "--filename", &self.operator.crds()]).map_err(chain)?;
        let before = self.version("crd", CLUSTERS)?;
        let refusal = match self.operator.install(&self.operator_values(), &[]) {
            Ok(()) => return Err("Helm installed it".into()),
            Err(error) => error.to_string(),
        };
        // Which of them Helm meets first is its own affair.
        let ways = [
            "belongs to the field manager kubectl-client-side-apply",
            "=false",
            "meta.helm.sh/release-name=",
        ];
        for part in ways {
            if !refusal.contains(part) {
                return Err(format!("the refusal does not say `{part}`: {refusal}").into());
            }
        }
        let without = ["--set", "crds.hypershift=false,crds.identities=false"];
        self.operator.install(&self.operator_values(), &without).map_err(chain)?;
        self.unchanged("crd", CLUSTERS, &before)
    }

    fn leaves_definitions(&self) -> Result<(), Failed> {
        self.clear_operator()?;
        self.site.kubectl.run(&["apply", "--filename", &self.operator.crds()]).map_err(chain)?;
        self.site.kubectl.delete(&["crd", IDENTITIES]).map_err(chain)?;
        let before = self.version("crd", CLUSTERS)?;
        let beside = ["--set", "role=identity-only"];
        self.operator.install(&self.operator_values(), &beside).map_err(chain)?;
        self.version("crd", IDENTITIES)?;
        self.unchanged("crd", CLUSTERS, &before)
    }

    fn keeps_definitions(&self) -> Result<(), Failed> {
        self.clear_operator()?;
        self.operator.install(&self.operator_values(), &[]).map_err(chain)?;
        self.operator.upgrade(&self.operator_values(), &["--set", "workers=7"]).map_err(chain)?;
        self.operator.uninstall().map_err(chain)?;
        for name in [CLUSTERS, IDENTITIES] {
            self.version("crd", name)?;
        }
        Ok(())
    }

    /// Nothing of an earlier case is there.
    fn clear_operator(&self) -> Result<(), Failed> {
        self.operator.uninstall().map_err(chain)?;
        self.site.kubectl.delete(&["--filename", &self.operator.crds()]).map_err(chain)
    }

    fn operator_values(&self) -> PathBuf {
        self.golden(Chart::Operator).join("defaults.values.yaml")
    }
}
