//! The suite `chart`: lanyard's charts with Helm and a Kubernetes API server.

mod generated_ca;
mod node_chart_ownership;
mod operator_chart_ownership;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use super::{expect_equal, failed_with_causes};
use crate::helm::{Helm, HelmError, LanyardChart};
use crate::suite_cluster::SuiteCluster;

/// Values of a chart that are rendered and compared with a golden file.
#[derive(Debug, Clone, Copy)]
struct ChartValuesVariant {
    chart: LanyardChart,
    /// The name of the files `NAME.values.yaml` and `NAME.golden.yaml`.
    name: &'static str,
    /// The Kubernetes version for rendering.
    kubernetes_version: &'static str,
    /// An API besides those of Kubernetes for rendering.
    extra_api_version: Option<&'static str>,
}

const fn chart_values_variant(
    chart: LanyardChart,
    name: &'static str,
    kubernetes: &'static str,
) -> ChartValuesVariant {
    ChartValuesVariant { chart, name, kubernetes_version: kubernetes, extra_api_version: None }
}

impl ChartValuesVariant {
    /// The part of the trial names for this variant.
    fn trial_suffix(self) -> String {
        let name = self.name.replace(['-', '.'], "_");
        match self.chart {
            LanyardChart::Node => name,
            LanyardChart::Operator => format!("operator_{name}"),
            LanyardChart::Azure => format!("azure_{name}"),
        }
    }

    /// Adds an API for rendering.
    const fn with_api(self, api: &'static str) -> Self {
        Self { extra_api_version: Some(api), ..self }
    }
}

const POD_MONITOR_API: &str = "monitoring.coreos.com/v1/PodMonitor";

const VARIANTS: [ChartValuesVariant; 12] = [
    chart_values_variant(LanyardChart::Node, "defaults", "1.36.3"),
    chart_values_variant(LanyardChart::Node, "tokens-in-the-volume-context", "1.34.4"),
    chart_values_variant(LanyardChart::Node, "with-another-driver", "1.36.3"),
    chart_values_variant(LanyardChart::Node, "minimal", "1.36.3"),
    chart_values_variant(LanyardChart::Node, "openshift", "1.36.3")
        .with_api("security.openshift.io/v1"),
    chart_values_variant(LanyardChart::Node, "everything", "1.36.3").with_api(POD_MONITOR_API),
    chart_values_variant(LanyardChart::Operator, "defaults", "1.36.3"),
    chart_values_variant(LanyardChart::Operator, "with-hypershift", "1.36.3"),
    chart_values_variant(LanyardChart::Operator, "everything", "1.36.3").with_api(POD_MONITOR_API),
    chart_values_variant(LanyardChart::Azure, "defaults", "1.36.3"),
    chart_values_variant(LanyardChart::Azure, "network-of-the-node", "1.36.3"),
    chart_values_variant(LanyardChart::Azure, "everything", "1.36.3"),
];

/// Values that the node chart must refuse: the name of the case, the value, and a part of the error.
const REFUSED_NODE_VALUES: [(&str, &str, &str); 14] = [
    ("an_unknown_value", "linux.imgae.tag=1", "imgae"),
    ("an_unsupported_value_of_the_upstream_chart", "windows.enabled=true", "windows"),
    ("a_driver_name_that_the_kubelet_refuses", "driverName=.driver", "driverName"),
    ("a_relative_kubelet_directory", "linux.kubeletRootDir=kubelet", "kubeletRootDir"),
    ("an_interval_without_a_unit", "rotationPollInterval=120", "rotationPollInterval"),
    ("a_policy_mode_that_does_not_exist", "policy.mode=off", "mode"),
    ("a_policy_mode_without_a_policy", "policy.mode=enforce", "/policy/document"),
    (
        "a_provider_socket_that_is_not_enabled",
        "azureProvider=socket,providerSocket.enabled=true",
        "/providerSocket/enabled",
    ),
    ("an_invalid_memory_limit", "volumesMemoryLimit=half", "volumesMemoryLimit"),
    (
        "a_request_rate_above_the_vault_limit",
        "vaultRequestsPerSecond=401",
        "vaultRequestsPerSecond",
    ),
    (
        "a_host_directory_that_hides_container_files",
        "cloudEnvironment.directory=/etc",
        "/cloudEnvironment/directory",
    ),
    (
        "a_config_map_and_a_directory_for_the_cloud_environment",
        "cloudEnvironment.directory=/etc/kubernetes,cloudEnvironment.configMap=azure-stack",
        "cloudEnvironment: give a configMap or a directory",
    ),
    ("an_invalid_port", "livenessProbe.port=70000", "port"),
    (
        "an_image_without_a_repository",
        "linux.image.repository=",
        "linux.image.repository is needed",
    ),
];

/// Values that the operator chart must refuse.
const REFUSED_OPERATOR_VALUES: [(&str, &str, &str); 12] = [
    ("an_unknown_value", "replicass=2", "replicass"),
    ("a_role_that_does_not_exist", "role=observer", "/role"),
    ("an_invalid_key_vault_user_client_id", "keyVaultUserClientID=reader", "/keyVaultUserClientID"),
    ("an_address_without_a_port", "metricsAddr=8080", "/metricsAddr"),
    (
        "a_metrics_address_on_loopback",
        "metricsAddr=127.0.0.1:8080",
        "metricsAddr: the kubelet cannot reach 127.0.0.1:8080",
    ),
    (
        "a_metrics_address_on_localhost",
        "metricsAddr=localhost:8080",
        "metricsAddr: the kubelet cannot reach localhost:8080",
    ),
    ("a_ca_bundle_without_use", "caBundle.configMap=authorities", "caBundle"),
    ("too_many_shards", "shards=65", "/shards"),
    ("no_workers", "workers=0", "/workers"),
    ("an_interval_without_a_unit", "workloads.canary.interval=60", "/workloads/canary/interval"),
    ("an_unknown_value_of_the_canaries", "workloads.canary.imag=x", "imag"),
    ("an_image_without_a_repository", "image.repository=", "image.repository is needed"),
];

/// Values that the chart of the local Azure must refuse.
const REFUSED_AZURE_VALUES: [(&str, &str, &str); 9] = [
    ("an_unknown_value", "hostedclusters=x", "hostedclusters"),
    ("an_unsupported_service_type", "service.type=LoadBalancer", "type"),
    ("more_than_one_replica", "replicas=2", "replicas"),
    (
        "a_listen_address_reachable_from_outside_the_node",
        "hostNetwork=true,listen=0.0.0.0:7750",
        "listen: with hostNetwork=true every machine that reaches the node",
    ),
    (
        "a_listen_address_on_loopback",
        "listen=127.0.0.1:7750",
        "listen: other pods cannot reach 127.0.0.1:7750",
    ),
    ("an_address_without_a_port", "listen=0.0.0.0", "/listen"),
    ("a_certificate_without_its_key", "ca.key=", "/ca"),
    (
        "a_value_that_is_not_a_hosted_cluster",
        "hostedCluster=kind: Pod",
        "the value is not a single HostedCluster",
    ),
    ("an_image_without_a_repository", "image.repository=", "image.repository is needed"),
];

/// The fixture of the suite `chart`.
#[derive(Debug)]
pub(crate) struct ChartSuiteFixture {
    pub(crate) node_helm: Helm,
    /// Helm for the operator chart.
    pub(crate) operator_helm: Helm,
    /// Helm for the chart of the local Azure.
    pub(crate) azure_helm: Helm,
    pub(crate) suite_cluster: Arc<SuiteCluster>,
    /// `conformance/kubernetes`.
    pub(crate) golden_root: PathBuf,
    /// Whether to write the golden files instead of comparing them.
    pub(crate) update_golden: bool,
}

pub(crate) fn trials(fixture: ChartSuiteFixture) -> Vec<Trial> {
    let fixture = Arc::new(fixture);
    let mut trials = vec![
        trial("chart::lint_finds_nothing", &fixture, |fixture| {
            fixture.node_helm.lint().map_err(failed_with_causes)
        }),
        trial("chart::lint_finds_nothing_in_the_chart_of_the_operator", &fixture, |fixture| {
            fixture.operator_helm.lint().map_err(failed_with_causes)
        }),
        trial("chart::lint_finds_nothing_in_the_chart_of_the_local_azure", &fixture, |fixture| {
            fixture.azure_helm.lint().map_err(failed_with_causes)
        }),
    ];
    for variant in VARIANTS {
        let name = variant.trial_suffix();
        trials.push(trial(
            &format!("chart::{name}_matches_golden_file"),
            &fixture,
            move |fixture| fixture.expect_golden(variant),
        ));
        if variant.extra_api_version.is_none() {
            trials.push(trial(
                &format!("chart::api_server_admits_every_object_of_{name}"),
                &fixture,
                move |fixture| fixture.expect_admitted(variant),
            ));
        }
    }
    for (name, value, named) in REFUSED_NODE_VALUES {
        trials.push(trial(&format!("chart::{name}_is_refused"), &fixture, move |fixture| {
            fixture.expect_values_refused(LanyardChart::Node, value, named)
        }));
    }
    for (name, value, named) in REFUSED_OPERATOR_VALUES {
        let name = format!("chart::{name}_is_refused_by_the_operator");
        trials.push(trial(&name, &fixture, move |fixture| {
            fixture.expect_values_refused(LanyardChart::Operator, value, named)
        }));
    }
    for (name, value, named) in REFUSED_AZURE_VALUES {
        let name = format!("chart::{name}_is_refused_by_the_local_azure");
        trials.push(trial(&name, &fixture, move |fixture| {
            fixture.expect_values_refused(LanyardChart::Azure, value, named)
        }));
    }
    trials.push(trial(
        "chart::api_server_without_admission_policies_is_refused_by_the_operator",
        &fixture,
        ChartSuiteFixture::expect_old_server_refused,
    ));
    trials.push(trial(
        "chart::operator_is_rendered_without_admission_policies",
        &fixture,
        ChartSuiteFixture::expect_admission_policies_optional,
    ));
    trials.extend(node_chart_ownership::trials(&fixture));
    trials.extend(operator_chart_ownership::trials(&fixture));
    trials.extend(generated_ca::trials(&fixture));
    trials
}

fn trial(
    name: &str,
    fixture: &Arc<ChartSuiteFixture>,
    run: impl FnOnce(&ChartSuiteFixture) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let fixture = Arc::clone(fixture);
    Trial::test(name, move || run(&fixture))
}

impl ChartSuiteFixture {
    const fn helm_for(&self, chart: LanyardChart) -> &Helm {
        match chart {
            LanyardChart::Node => &self.node_helm,
            LanyardChart::Operator => &self.operator_helm,
            LanyardChart::Azure => &self.azure_helm,
        }
    }

    /// The directory with the values and golden files of a chart.
    fn golden_directory(&self, chart: LanyardChart) -> PathBuf {
        self.golden_root.join(match chart {
            LanyardChart::Node => "chart",
            LanyardChart::Operator => "operator-chart",
            LanyardChart::Azure => "azure-chart",
        })
    }

    fn render_variant(&self, variant: ChartValuesVariant) -> Result<String, Failed> {
        let values =
            self.golden_directory(variant.chart).join(format!("{}.values.yaml", variant.name));
        let mut arguments = vec!["--kube-version", variant.kubernetes_version];
        if let Some(api) = variant.extra_api_version {
            arguments.extend(["--api-versions", api]);
        }
        self.helm_for(variant.chart).template(&values, &arguments).map_err(failed_with_causes)
    }

    fn expect_golden(&self, variant: ChartValuesVariant) -> Result<(), Failed> {
        let rendered = self.render_variant(variant)?;
        let golden =
            self.golden_directory(variant.chart).join(format!("{}.golden.yaml", variant.name));
        if self.update_golden {
            return fs::write(&golden, rendered).map_err(failed_with_causes);
        }
        let committed = fs::read_to_string(&golden).map_err(failed_with_causes)?;
        compare_with_golden(&committed, &rendered, &golden)
    }

    /// Expects that the API server admits every rendered object in a strict dry run.
    fn expect_admitted(&self, variant: ChartValuesVariant) -> Result<(), Failed> {
        let rendered = self.render_variant(variant)?;
        let kubectl = &self.suite_cluster.kubectl;
        // A dry run does not create namespaces, so objects in new namespaces would be rejected.
        let namespaces = generated_ca::rendered_namespaces(variant.chart, &rendered);
        for name in &namespaces {
            kubectl.run(&["create", "namespace", name]).map_err(failed_with_causes)?;
        }
        let admitted = kubectl.apply_dry_run(&rendered);
        for name in &namespaces {
            kubectl.delete(&["namespace", name]).map_err(failed_with_causes)?;
        }
        admitted.map_err(failed_with_causes)
    }

    /// `ValidatingAdmissionPolicy` objects are stable since Kubernetes 1.30, and API servers enforce the rules of
    /// CRDs since 1.25.
    fn expect_old_server_refused(&self) -> Result<(), Failed> {
        for (version, value, named) in [
            ("1.29.9", "rbac.admissionPolicies=true", "so obtain cluster-admin"),
            ("1.25.0", "rbac.admissionPolicies=true", "set rbac.admissionPolicies=false"),
            ("1.24.17", "rbac.admissionPolicies=false", ">=1.25.0-0"),
        ] {
            match self.template_operator(version, value) {
                Ok(_) => {
                    let text = format!("Helm rendered the chart for {version} with {value}");
                    return Err(text.into());
                }
                Err(HelmError::Failed { message, .. }) if message.contains(named) => {}
                Err(error) => {
                    return Err(format!("the error does not contain `{named}`: {error}").into());
                }
            }
        }
        Ok(())
    }

    fn expect_admission_policies_optional(&self) -> Result<(), Failed> {
        for (version, value, policies) in [
            ("1.36.3", "rbac.admissionPolicies=true", 3),
            ("1.36.3", "rbac.admissionPolicies=false", 0),
            ("1.36.3", "rbac.install=false", 0),
            ("1.36.3", "role=identity-only", 0),
            ("1.30.0-provider.1", "rbac.admissionPolicies=true", 3),
            ("1.29.9", "rbac.admissionPolicies=false", 0),
            ("1.29.9", "rbac.install=false", 0),
            ("1.29.9", "role=identity-only", 0),
        ] {
            let rendered = self.template_operator(version, value).map_err(failed_with_causes)?;
            let found = rendered.matches("kind: ValidatingAdmissionPolicy\n").count();
            let what = format!("admission policies for {version} with {value}");
            expect_equal(&what, found, policies)?;
        }
        Ok(())
    }

    /// Renders the chart of the operator for a version of Kubernetes, with one value besides those of the defaults.
    fn template_operator(&self, version: &str, value: &str) -> Result<String, HelmError> {
        let values = self.golden_directory(LanyardChart::Operator).join("defaults.values.yaml");
        self.operator_helm.template(&values, &["--kube-version", version, "--set", value])
    }

    fn expect_values_refused(
        &self,
        chart: LanyardChart,
        value: &str,
        named: &str,
    ) -> Result<(), Failed> {
        let values = self.golden_directory(chart).join("defaults.values.yaml");
        match self.helm_for(chart).template(&values, &["--set", value]) {
            Ok(_) => Err("Helm rendered invalid values".into()),
            // Only Helm's message counts, because the command line contains the value in any case.
            Err(HelmError::Failed { message, .. }) if message.contains(named) => Ok(()),
            Err(error) => Err(format!("the error does not name `{named}`: {error}").into()),
        }
    }
}

fn compare_with_golden(committed: &str, rendered: &str, golden: &Path) -> Result<(), Failed> {
    if committed == rendered {
        return Ok(());
    }
    let differing = committed.lines().zip(rendered.lines()).position(|(one, other)| one != other);
    let line = differing.unwrap_or_else(|| committed.lines().count().min(rendered.lines().count()));
    let show = |text: &str| text.lines().nth(line).unwrap_or("(the end)").to_owned();
    Err(format!(
        "{} differs at line {}\n  committed: {}\n  rendered:  {}\nif the change is intended, run cargo xtask conformance chart --update-golden",
        golden.display(),
        line + 1,
        show(committed),
        show(rendered)
    )
    .into())
}
