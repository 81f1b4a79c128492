//! Trials of the operator chart with objects of another owner. The chart names the owner and leaves the
//! objects unchanged.
//!
//! The trials are the lifecycle of the CRDs, in order, because deleting a CRD takes time.

use std::path::PathBuf;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::node_chart_ownership::expect_helm_refusal;
use super::{ChartSuiteFixture, failed_with_causes, trial};
use crate::helm::{Helm, LanyardChart};

const HYPERSHIFT_DEFINITIONS: [&str; 2] =
    ["hostedclusters.hypershift.openshift.io", "hostedcontrolplanes.hypershift.openshift.io"];
const IDENTITIES_DEFINITION: &str = "hostedclusteridentities.lanyard.dev";
/// The role of all canaries.
const CANARY_ROLE: &str = "lanyard-canary";

pub(super) fn trials(fixture: &Arc<ChartSuiteFixture>) -> Vec<Trial> {
    vec![
        trial("chart::uninstalling_the_operator_keeps_the_crds", fixture, |fixture| {
            fixture.uninstall_keeps_definitions()
        }),
        trial("chart::install_refuses_and_names_hypershift_crds", fixture, |fixture| {
            fixture.install_refuses_hypershift_definitions()
        }),
        trial("chart::install_with_hypershift_leaves_its_crds_unchanged", fixture, |fixture| {
            fixture.install_leaves_hypershift_definitions()
        }),
        trial("chart::installing_a_second_operator_is_refused", fixture, |fixture| {
            fixture.install_refuses_second_operator()
        }),
    ]
}

impl ChartSuiteFixture {
    fn uninstall_keeps_definitions(&self) -> Result<(), Failed> {
        let values = self.operator_values_file();
        self.operator_helm.install(&values, &[]).map_err(failed_with_causes)?;
        self.operator_helm.upgrade(&values, &["--set", "workers=7"]).map_err(failed_with_causes)?;
        self.operator_helm.uninstall().map_err(failed_with_causes)?;
        for name in HYPERSHIFT_DEFINITIONS.into_iter().chain([IDENTITIES_DEFINITION]) {
            self.resource_version("crd", name)?;
        }
        Ok(())
    }

    fn install_refuses_hypershift_definitions(&self) -> Result<(), Failed> {
        let before = self.mark_definitions_as_hypershift()?;
        let values = self.operator_values_file();
        let ways = [
            "belongs to the Helm release hypershift/hypershift",
            "crds.hypershift=false",
            "meta.helm.sh/release-name=conformance-operator",
        ];
        expect_helm_refusal(self.operator_helm.install(&values, &[]), &ways)?;
        self.operator_helm
            .install(&values, &["--set", "crds.hypershift=false"])
            .map_err(failed_with_causes)?;
        self.operator_helm.uninstall().map_err(failed_with_causes)?;
        self.expect_definitions_unchanged(&before)
    }

    fn install_leaves_hypershift_definitions(&self) -> Result<(), Failed> {
        let before = self.mark_definitions_as_hypershift()?;
        let alongside = ["--set", "role=identity-only"];
        self.operator_helm
            .install(&self.operator_values_file(), &alongside)
            .map_err(failed_with_causes)?;
        self.operator_helm.uninstall().map_err(failed_with_causes)?;
        self.expect_definitions_unchanged(&before)
    }

    fn install_refuses_second_operator(&self) -> Result<(), Failed> {
        let kubectl = &self.suite_cluster.kubectl;
        kubectl
            .run(&["create", "clusterrole", CANARY_ROLE, "--verb=get", "--resource=pods"])
            .map_err(failed_with_causes)?;
        self.set_helm_release("clusterrole", CANARY_ROLE, "first", "operators")?;
        let before = self.resource_version("clusterrole", CANARY_ROLE)?;
        let values = self.operator_values_file();
        let alongside = "crds.hypershift=false,crds.identities=false";
        let ways = [
            "the ClusterRole lanyard-canary belongs to the Helm release operators/first",
            "One release with role=all",
            "rbac.install=false",
        ];
        expect_helm_refusal(self.operator_helm.install(&values, &["--set", alongside]), &ways)?;
        let without_rights = format!("{alongside},rbac.install=false");
        self.operator_helm
            .install(&values, &["--set", &without_rights])
            .map_err(failed_with_causes)?;
        self.operator_helm.uninstall().map_err(failed_with_causes)?;
        self.expect_unchanged("clusterrole", CANARY_ROLE, &before)?;
        kubectl.delete(&["clusterrole", CANARY_ROLE]).map_err(failed_with_causes)?;
        // Now the release is the only one, and an upgrade keeps its objects.
        self.operator_helm.install(&values, &["--set", alongside]).map_err(failed_with_causes)?;
        self.operator_helm
            .upgrade(&values, &["--set", &format!("{alongside},workers=7")])
            .map_err(failed_with_causes)?;
        self.operator_helm.uninstall().map_err(failed_with_causes)
    }

    /// Assigns the HyperShift CRDs to a release of HyperShift, and returns their resource versions.
    fn mark_definitions_as_hypershift(&self) -> Result<Vec<Value>, Failed> {
        self.suite_cluster
            .kubectl
            .run(&["apply", "--filename", &self.operator_helm.crd_directory()])
            .map_err(failed_with_causes)?;
        // Assigns lanyard's CRD to the release of the operator.
        self.set_helm_release(
            "crd",
            IDENTITIES_DEFINITION,
            "conformance-operator",
            Helm::NAMESPACE,
        )?;
        let given = |name| {
            self.set_helm_release("crd", name, "hypershift", "hypershift")?;
            self.resource_version("crd", name)
        };
        HYPERSHIFT_DEFINITIONS.into_iter().map(given).collect()
    }

    /// Assigns an object to a Helm release by the metadata that Helm checks.
    fn set_helm_release(
        &self,
        kind: &str,
        name: &str,
        release: &str,
        namespace: &str,
    ) -> Result<(), Failed> {
        let release = format!("meta.helm.sh/release-name={release}");
        let namespace = format!("meta.helm.sh/release-namespace={namespace}");
        let kubectl = &self.suite_cluster.kubectl;
        kubectl
            .run(&["annotate", "--overwrite", kind, name, &release, &namespace])
            .map_err(failed_with_causes)?;
        let label = "app.kubernetes.io/managed-by=Helm";
        kubectl.run(&["label", "--overwrite", kind, name, label]).map_err(failed_with_causes)?;
        Ok(())
    }

    fn expect_definitions_unchanged(&self, before: &[Value]) -> Result<(), Failed> {
        HYPERSHIFT_DEFINITIONS
            .into_iter()
            .zip(before)
            .try_for_each(|(name, before)| self.expect_unchanged("crd", name, before))
    }

    fn operator_values_file(&self) -> PathBuf {
        self.golden_directory(LanyardChart::Operator).join("defaults.values.yaml")
    }
}
